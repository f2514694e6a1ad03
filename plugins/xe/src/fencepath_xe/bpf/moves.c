// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Buffer objects of targets. Anybody may move one: it is a target's if a target was the first to move it, which it does when it
 * makes a buffer in the GPU's own memory. Creation carries no address, and of the end there is no event.
 *
 * A move happens in task context. Only a target's own thread is named as who did it.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/* Process that a buffer is of, by address. Where the address is used again, the first move of the new buffer says so. */
BPF_TABLE("lru_hash", u64, u32, xe_owners, 131072);

static __always_inline u32 xe_owner(u64 bo) {
    u32 *found = xe_owners.lookup(&bo);

    return found ? *found : 0;
}

static __always_inline void xe_own(u64 bo, u32 tgid) {
    xe_owners.update(&bo, &tgid);
}

static __always_inline void xe_disown(u64 bo) {
    xe_owners.delete(&bo);
}

int on_bo_move(void *ctx) {
    u64 bo = FP_FIELD_xe_bo_move_bo(ctx);
    u32 lacks_source = FP_FIELD_xe_bo_move_lacks_source(ctx);
    bool by_target = fp_is_target();
    struct fp_xe_bo_move *r;
    u32 owner = xe_owner(bo);

    /* Nothing is copied where there was nothing: a buffer that is new. */
    if (lacks_source && !by_target) {
        xe_disown(bo);
        return 0;
    }
    if (by_target && (lacks_source || !owner)) {
        owner = bpf_get_current_pid_tgid() >> 32;
        xe_own(bo, owner);
    }
    if (!owner)
        return 0;
    r = FP_RESERVE(struct fp_xe_bo_move, FP_KIND_XE_BO_MOVE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_BO_MOVE, by_target ? FP_TASK : 0);
    r->bo = bo;
    r->size_bytes = FP_FIELD_xe_bo_move_size_bytes(ctx);
    r->owner_tgid = owner;
    r->lacks_source = lacks_source;
    r->h.flags |= FP_FIELD_xe_bo_move_source(ctx, r->source);
    r->h.flags |= FP_FIELD_xe_bo_move_target(ctx, r->target);
    r->h.flags |= FP_FIELD_xe_bo_move_device(ctx, r->device);
    fp_submit(r);
    return 0;
}
