// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Contexts at the GuC. The events name nobody, so all of the machine are recorded. kinds.GUC_CONTEXT_ACTIONS has the numbers.
 *
 * Macros given by -D:
 *   I915_HAS_<ACTION>    the kernel has this event
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

#define I915_GUC_CONTEXT(number, name)                                                                                 \
    int on_##name(void *ctx) {                                                                                         \
        struct fp_i915_guc_context *r = FP_RESERVE(struct fp_i915_guc_context, FP_KIND_I915_GUC_CONTEXT);              \
                                                                                                                       \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, FP_KIND_I915_GUC_CONTEXT, 0);                                                                   \
        r->action = number;                                                                                            \
        r->guc_id = FP_FIELD_intel_context_##name##_guc_id(ctx);                                                       \
        r->pin_count = FP_FIELD_intel_context_##name##_pin_count(ctx);                                                 \
        r->sched_state = FP_FIELD_intel_context_##name##_sched_state(ctx);                                             \
        r->guc_priority = FP_FIELD_intel_context_##name##_guc_priority(ctx);                                           \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

#ifdef I915_HAS_CREATE
I915_GUC_CONTEXT(0, create)
#endif
#ifdef I915_HAS_FREE
I915_GUC_CONTEXT(1, free)
#endif
#ifdef I915_HAS_REGISTER
I915_GUC_CONTEXT(2, register)
#endif
#ifdef I915_HAS_DEREGISTER
I915_GUC_CONTEXT(3, deregister)
#endif
#ifdef I915_HAS_DEREGISTER_DONE
I915_GUC_CONTEXT(4, deregister_done)
#endif
#ifdef I915_HAS_SCHED_ENABLE
I915_GUC_CONTEXT(5, sched_enable)
#endif
#ifdef I915_HAS_SCHED_DISABLE
I915_GUC_CONTEXT(6, sched_disable)
#endif
#ifdef I915_HAS_SCHED_DONE
I915_GUC_CONTEXT(7, sched_done)
#endif
#ifdef I915_HAS_DO_PIN
I915_GUC_CONTEXT(8, do_pin)
#endif
#ifdef I915_HAS_DO_UNPIN
I915_GUC_CONTEXT(9, do_unpin)
#endif
#ifdef I915_HAS_FENCE_RELEASE
I915_GUC_CONTEXT(10, fence_release)
#endif
#ifdef I915_HAS_STEAL_GUC_ID
I915_GUC_CONTEXT(11, steal_guc_id)
#endif
#ifdef I915_HAS_SET_PRIO
I915_GUC_CONTEXT(12, set_prio)
#endif
#ifdef I915_HAS_RESET
I915_GUC_CONTEXT(13, reset)
#endif
#ifdef I915_HAS_BAN
I915_GUC_CONTEXT(14, ban)
#endif
