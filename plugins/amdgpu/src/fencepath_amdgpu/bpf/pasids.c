// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Address spaces and entries of the GPU's interrupt ring. Whoever runs then has nothing to do with them: they are told apart
 * by the pasid, and what is known to be another process' is left out. With many an interrupt it is 0, which is nobody's.
 *
 * Macros given by -D:
 *   AMDGPU_SPACES        1: record allocation, end and use of address spaces
 *   AMDGPU_INTERRUPTS    1: record interrupts
 *   AMDGPU_NOTES         1: with interrupts alone, learn whose an address space is
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

#define AMDGPU_OURS 1
#define AMDGPU_OTHERS 2

/* A pasid has 16 bits. 0: allocated before the recording, so not known. */
BPF_TABLE("array", u32, u32, amdgpu_pasids, 65536);

static __always_inline void amdgpu_pasid_set(u32 pasid, u32 whose) {
    u32 *entry = amdgpu_pasids.lookup(&pasid);

    if (entry)
        *entry = whose;
}

static __always_inline u32 amdgpu_pasid_whose(u32 pasid) {
    u32 *entry = amdgpu_pasids.lookup(&pasid);

    return entry ? *entry : 0;
}

#if AMDGPU_SPACES

/* Runs while the GPU is being opened, in the process that does it. */
int on_pasid_allocate(void *ctx) {
    u32 pasid = FP_FIELD_amdgpu_pasid_allocated_pasid(ctx);
    struct fp_amdgpu_pasid_allocate *r;

    if (!fp_is_target()) {
        amdgpu_pasid_set(pasid, AMDGPU_OTHERS);
        return 0;
    }
    amdgpu_pasid_set(pasid, AMDGPU_OURS);
    r = FP_RESERVE(struct fp_amdgpu_pasid_allocate, FP_KIND_AMDGPU_PASID_ALLOCATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_PASID_ALLOCATE, FP_TASK);
    r->pasid = pasid;
    fp_submit(r);
    return 0;
}

/* May run in a worker, or in an interrupt once a last fence is signaled. */
int on_pasid_free(void *ctx) {
    u32 pasid = FP_FIELD_amdgpu_pasid_freed_pasid(ctx);
    u32 whose = amdgpu_pasid_whose(pasid);
    struct fp_amdgpu_pasid_free *r;

    amdgpu_pasid_set(pasid, 0);
    if (whose != AMDGPU_OURS)
        return 0;
    r = FP_RESERVE(struct fp_amdgpu_pasid_free, FP_KIND_AMDGPU_PASID_FREE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_PASID_FREE, 0);
    r->pasid = pasid;
    fp_submit(r);
    return 0;
}

int on_grab_id(void *ctx) {
    u32 pasid = FP_FIELD_amdgpu_vm_grab_id_pasid(ctx);
    struct fp_amdgpu_vm_grab_id *r;

    if (amdgpu_pasid_whose(pasid) == AMDGPU_OTHERS)
        return 0;
    r = FP_RESERVE(struct fp_amdgpu_vm_grab_id, FP_KIND_AMDGPU_VM_GRAB_ID);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_VM_GRAB_ID, 0);
    r->pasid = pasid;
    r->vmid = FP_FIELD_amdgpu_vm_grab_id_vmid(ctx);
    r->hub = FP_FIELD_amdgpu_vm_grab_id_hub(ctx);
    r->page_directory = FP_FIELD_amdgpu_vm_grab_id_page_directory(ctx);
    r->needs_flush = FP_FIELD_amdgpu_vm_grab_id_needs_flush(ctx);
    r->h.flags |= FP_FIELD_amdgpu_vm_grab_id_ring(ctx, r->ring);
    fp_submit(r);
    return 0;
}

#endif

#if AMDGPU_INTERRUPTS

int on_interrupt(void *ctx) {
    u32 pasid = FP_FIELD_amdgpu_iv_pasid(ctx);
    struct fp_amdgpu_interrupt *r;

    if (amdgpu_pasid_whose(pasid) == AMDGPU_OTHERS)
        return 0;
    r = FP_RESERVE(struct fp_amdgpu_interrupt, FP_KIND_AMDGPU_INTERRUPT);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_INTERRUPT, 0);
    r->gpu_ticks = FP_FIELD_amdgpu_iv_gpu_ticks(ctx);
    r->gpu_ticks_source = FP_FIELD_amdgpu_iv_gpu_ticks_source(ctx);
    r->ring = FP_FIELD_amdgpu_iv_ring(ctx);
    r->client = FP_FIELD_amdgpu_iv_client(ctx);
    r->source = FP_FIELD_amdgpu_iv_source(ctx);
    r->client_ring = FP_FIELD_amdgpu_iv_client_ring(ctx);
    r->vmid = FP_FIELD_amdgpu_iv_vmid(ctx);
    r->vmid_source = FP_FIELD_amdgpu_iv_vmid_source(ctx);
    r->pasid = pasid;
    r->h.flags |= FP_FIELD_amdgpu_iv_data(ctx, r->data);
    fp_submit(r);
    return 0;
}

#if AMDGPU_NOTES

int note_pasid_allocate(void *ctx) {
    amdgpu_pasid_set(FP_FIELD_amdgpu_pasid_allocated_pasid(ctx), fp_is_target() ? AMDGPU_OURS : AMDGPU_OTHERS);
    return 0;
}

int note_pasid_free(void *ctx) {
    amdgpu_pasid_set(FP_FIELD_amdgpu_pasid_freed_pasid(ctx), 0);
    return 0;
}

#endif

#endif
