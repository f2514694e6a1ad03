// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Memory that the driver is asked to give back. The driver's event says what is wanted; what was given the kernel says after
 * all calls of one reclaim, in the same thread.
 *
 * Macros given by -D:
 *   I915_SLABS    1: the kernel has the events of reclaim
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

struct i915_reclaim {
    u64 begin_ns;
    u64 target_pages;
    u32 calls;
    s32 device;
    u32 shrink_flags;
    u32 reserved;
};

static __always_inline void i915_shrunk(const struct i915_reclaim *reclaim, s64 freed_pages) {
    struct fp_i915_shrink *r = FP_RESERVE(struct fp_i915_shrink, FP_KIND_I915_SHRINK);

    if (!r)
        return;
    fp_fill(&r->h, FP_KIND_I915_SHRINK, fp_is_target() ? FP_TASK : 0);
    r->begin_ns = reclaim->begin_ns ? reclaim->begin_ns : r->h.time_ns;
    r->target_pages = reclaim->target_pages;
    r->freed_pages = freed_pages;
    r->calls = reclaim->calls;
    r->device = reclaim->device;
    r->shrink_flags = reclaim->shrink_flags;
    fp_submit(r);
}

#if I915_SLABS

/* Reclaim that has begun, of any shrinker, by tid. One thread is in one at a time. */
BPF_TABLE("lru_hash", u32, struct i915_reclaim, i915_reclaims, 8192);

int on_slab_start(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct i915_reclaim begun = {};

    begun.begin_ns = fp_now();
    i915_reclaims.update(&tid, &begun);
    return 0;
}

int on_slab_end(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct i915_reclaim *found = i915_reclaims.lookup(&tid);
    struct i915_reclaim reclaim;

    if (!found)
        return 0;
    reclaim = *found;
    i915_reclaims.delete(&tid);
    if (reclaim.calls)
        i915_shrunk(&reclaim, FP_FIELD_mm_shrink_slab_end_freed_pages(ctx));
    return 0;
}

#endif

/* Outside of reclaim where the driver itself is short of memory, or all of it is to go. */
int on_shrink(void *ctx) {
    struct i915_reclaim alone = {};
#if I915_SLABS
    u32 tid = bpf_get_current_pid_tgid();
    struct i915_reclaim *found = i915_reclaims.lookup(&tid);

    if (found) {
        found->target_pages += FP_FIELD_i915_gem_shrink_target_pages(ctx);
        found->calls++;
        found->device = FP_FIELD_i915_gem_shrink_device(ctx);
        found->shrink_flags = FP_FIELD_i915_gem_shrink_shrink_flags(ctx);
        return 0;
    }
#endif
    alone.target_pages = FP_FIELD_i915_gem_shrink_target_pages(ctx);
    alone.calls = 1;
    alone.device = FP_FIELD_i915_gem_shrink_device(ctx);
    alone.shrink_flags = FP_FIELD_i915_gem_shrink_shrink_flags(ctx);
    i915_shrunk(&alone, -1);
    return 0;
}
