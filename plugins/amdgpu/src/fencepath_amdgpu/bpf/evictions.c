// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Memory of ROCm processes, by the fence that stands for it: whoever waits for the fence wants the memory, it is signaled once
 * the queues are off the GPU, and a new one on the same context is made when the memory is back.
 *
 * Every fence of the machine comes by; all but those of amdkfd are left at the driver's name.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/* Process that a fence context was made by. */
BPF_TABLE("lru_hash", u32, u32, kfd_owners, 4096);

/* "amdgpu_amdkfd_fence", of the driver's amdkfd_fence_get_driver_name, as three words. */
#define WORD(a, b, c, d, e, f, g, h)                                                                                   \
    ((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 | (u64)(f) << 40 | (u64)(g) << 48 |   \
     (u64)(h) << 56)

static __always_inline bool is_kfd(const u64 *name) {
    return name[0] == WORD('a', 'm', 'd', 'g', 'p', 'u', '_', 'a') &&
           name[1] == WORD('m', 'd', 'k', 'f', 'd', '_', 'f', 'e') && name[2] == WORD('n', 'c', 'e', 0, 0, 0, 0, 0);
}

static __always_inline u32 owner_of(u32 context) {
    u32 *owner = kfd_owners.lookup(&context);

    return owner ? *owner : 0;
}

#define KFD_RECORD(record, number, event, ctx)                                                                         \
    do {                                                                                                               \
        struct record *r = FP_RESERVE(struct record, number);                                                          \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, number, 0);                                                                                     \
        r->context = FP_FIELD_##event##_context(ctx);                                                                  \
        r->seqno = FP_FIELD_##event##_seqno(ctx);                                                                      \
        r->owner_tgid = owner_of(FP_FIELD_##event##_context(ctx));                                                     \
        r->h.flags |= FP_FIELD_##event##_timeline(ctx, r->timeline);                                                   \
        fp_submit(r);                                                                                                  \
    } while (0)

int on_evict(void *ctx) {
    u64 name[3];

    FP_FIELD_dma_fence_enable_signal_driver(ctx, name);
    if (is_kfd(name))
        KFD_RECORD(fp_amdgpu_kfd_evict, FP_KIND_AMDGPU_KFD_EVICT, dma_fence_enable_signal, ctx);
    return 0;
}

int on_evicted(void *ctx) {
    u64 name[3];

    FP_FIELD_dma_fence_signaled_driver(ctx, name);
    if (is_kfd(name))
        KFD_RECORD(fp_amdgpu_kfd_evicted, FP_KIND_AMDGPU_KFD_EVICTED, dma_fence_signaled, ctx);
    return 0;
}

/* The first fence of a context is made by the process itself, later ones by workers. */
int on_resident(void *ctx) {
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    u64 name[3];
    u32 context;

    FP_FIELD_dma_fence_init_driver(ctx, name);
    if (!is_kfd(name))
        return 0;
    context = FP_FIELD_dma_fence_init_context(ctx);
    if (fp_is_target())
        kfd_owners.update(&context, &tgid);
    KFD_RECORD(fp_amdgpu_kfd_resident, FP_KIND_AMDGPU_KFD_RESIDENT, dma_fence_init, ctx);
    return 0;
}
