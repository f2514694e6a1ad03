// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Buffer objects of targets and their mappings. Anybody may move a buffer: it is a target's if a target made or mapped it.
 *
 * All of this happens in task context. Only a target's own thread is named as who did it.
 *
 * Macros given by -D:
 *   AMDGPU_PAGE_BYTES    of the host
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/* PAGE_SHIFT of the GPU, AMDGPU_GPU_PAGE_SHIFT of the driver. */
#define GPU_PAGE_SHIFT 12
#define NO_PLACEMENT 0xffffffffu

/* Process that a buffer is of, by the buffer's address. */
BPF_TABLE("lru_hash", u64, u32, amdgpu_owners, 131072);

int on_bo_create(void *ctx) {
    u64 bo = FP_FIELD_amdgpu_bo_create_bo(ctx);
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    struct fp_amdgpu_bo_create *r;

    if (!fp_is_target()) {
        /* The address may have been a target's buffer, whose end was not seen. */
        amdgpu_owners.delete(&bo);
        return 0;
    }
    amdgpu_owners.update(&bo, &tgid);
    r = FP_RESERVE(struct fp_amdgpu_bo_create, FP_KIND_AMDGPU_BO_CREATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_BO_CREATE, FP_TASK);
    r->bo = bo;
    r->size_bytes = (u64)FP_FIELD_amdgpu_bo_create_pages(ctx) * AMDGPU_PAGE_BYTES;
    r->placement = FP_FIELD_amdgpu_bo_create_placement(ctx);
    r->preferred_domains = FP_FIELD_amdgpu_bo_create_preferred_domains(ctx);
    r->allowed_domains = FP_FIELD_amdgpu_bo_create_allowed_domains(ctx);
    r->create_flags = FP_FIELD_amdgpu_bo_create_create_flags(ctx);
    fp_submit(r);
    return 0;
}

int on_bo_move(void *ctx) {
    u64 bo = FP_FIELD_amdgpu_bo_move_bo(ctx);
    u32 target = FP_FIELD_amdgpu_bo_move_target(ctx);
    bool by_target = fp_is_target();
    struct fp_amdgpu_bo_move *r;
    u32 *found = amdgpu_owners.lookup(&bo);
    u32 owner = found ? *found : 0;

    if (!owner && !by_target)
        return 0;
    if (target == NO_PLACEMENT)
        amdgpu_owners.delete(&bo);
    r = FP_RESERVE(struct fp_amdgpu_bo_move, FP_KIND_AMDGPU_BO_MOVE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_BO_MOVE, by_target ? FP_TASK : 0);
    r->bo = bo;
    r->size_bytes = FP_FIELD_amdgpu_bo_move_size_bytes(ctx);
    r->source = FP_FIELD_amdgpu_bo_move_source(ctx);
    r->target = target;
    r->owner_tgid = owner;
    fp_submit(r);
    return 0;
}

/* A buffer that was made before the recording, or came from another process, is the target's that maps it first. */
static __always_inline void amdgpu_learn(u64 bo) {
    u32 tgid = bpf_get_current_pid_tgid() >> 32;

    if (bo && !amdgpu_owners.lookup(&bo))
        amdgpu_owners.update(&bo, &tgid);
}

#define AMDGPU_FILL_RANGE(r, event, ctx)                                                                               \
    do {                                                                                                               \
        u64 start = FP_FIELD_##event##_start(ctx);                                                                     \
        (r)->bo = FP_FIELD_##event##_bo(ctx);                                                                          \
        (r)->address = start << GPU_PAGE_SHIFT;                                                                        \
        (r)->size_bytes = (FP_FIELD_##event##_last(ctx) - start + 1) << GPU_PAGE_SHIFT;                                \
        (r)->offset_bytes = FP_FIELD_##event##_offset(ctx);                                                            \
        (r)->mapping_flags = FP_FIELD_##event##_mapping_flags(ctx);                                                            \
    } while (0)

int on_map(void *ctx) {
    struct fp_amdgpu_vm_map *r;

    if (!fp_is_target())
        return 0;
    amdgpu_learn(FP_FIELD_amdgpu_vm_bo_map_bo(ctx));
    r = FP_RESERVE(struct fp_amdgpu_vm_map, FP_KIND_AMDGPU_VM_MAP);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_VM_MAP, FP_TASK);
    AMDGPU_FILL_RANGE(r, amdgpu_vm_bo_map, ctx);
    fp_submit(r);
    return 0;
}

int on_unmap(void *ctx) {
    struct fp_amdgpu_vm_unmap *r;

    if (!fp_is_target())
        return 0;
    r = FP_RESERVE(struct fp_amdgpu_vm_unmap, FP_KIND_AMDGPU_VM_UNMAP);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_VM_UNMAP, FP_TASK);
    AMDGPU_FILL_RANGE(r, amdgpu_vm_bo_unmap, ctx);
    fp_submit(r);
    return 0;
}
