// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Queues of targets, and what the driver and the GuC do with them in workers: a queue is a target's if a target made it or put
 * something on it. Its number at the GuC, the GT and the device name it. kinds.ACTIONS has the numbers of the actions.
 *
 * Macros given by -D:
 *   XE_HAS_<PROGRAM>    the kernel has the event of this program, for those that it may lack
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

struct xe_queue {
    u64 device[2];
    u32 guc_id;
    u32 gt;
};

BPF_TABLE("lru_hash", struct xe_queue, u8, xe_queues, 16384);

static __always_inline void xe_learn(const struct xe_queue *queue) {
    struct xe_queue key = *queue;
    u8 one = 1;

    if (xe_queues.update(&key, &one))
        fp_lost(FP_KIND_XE_EXEC_QUEUE_STATE, FP_STAGE_MAP_FULL);
}

static __always_inline void xe_forget(const struct xe_queue *queue) {
    struct xe_queue key = *queue;

    xe_queues.delete(&key);
}

static __always_inline bool xe_is_known(const struct xe_queue *queue) {
    struct xe_queue key = *queue;

    return xe_queues.lookup(&key) != 0;
}

#define XE_KEY(key, event, ctx)                                                                                        \
    do {                                                                                                               \
        FP_FIELD_##event##_device(ctx, (key)->device);                                                                 \
        (key)->guc_id = FP_FIELD_##event##_guc_id(ctx);                                                                \
        (key)->gt = FP_FIELD_##event##_gt(ctx);                                                                        \
    } while (0)

#define XE_QUEUE(r, event, ctx)                                                                                        \
    do {                                                                                                               \
        (r)->engine_class = FP_FIELD_##event##_engine_class(ctx);                                                      \
        (r)->logical_mask = FP_FIELD_##event##_logical_mask(ctx);                                                      \
        (r)->guc_state = FP_FIELD_##event##_guc_state(ctx);                                                            \
        (r)->queue_flags = FP_FIELD_##event##_queue_flags(ctx);                                                        \
        (r)->guc_id = FP_FIELD_##event##_guc_id(ctx);                                                                  \
        (r)->gt = FP_FIELD_##event##_gt(ctx);                                                                          \
        (r)->width = FP_FIELD_##event##_width(ctx);                                                                    \
        (r)->h.flags |= FP_FIELD_##event##_device(ctx, (r)->device);                                                   \
    } while (0)

/* A number at the GuC that somebody else gets now is no target's any more. */
#define XE_CREATE(number, name)                                                                                        \
    int on_##name(void *ctx) {                                                                                         \
        struct fp_xe_exec_queue_create *r;                                                                             \
        struct xe_queue key = {};                                                                                      \
                                                                                                                       \
        XE_KEY(&key, xe_##name, ctx);                                                                                  \
        if (!fp_is_target()) {                                                                                         \
            xe_forget(&key);                                                                                           \
            return 0;                                                                                                  \
        }                                                                                                              \
        xe_learn(&key);                                                                                                \
        r = FP_RESERVE(struct fp_xe_exec_queue_create, FP_KIND_XE_EXEC_QUEUE_CREATE);                                  \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, FP_KIND_XE_EXEC_QUEUE_CREATE, FP_TASK);                                                         \
        r->action = number;                                                                                            \
        XE_QUEUE(r, xe_##name, ctx);                                                                                   \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

/* Whoever runs. Only a target's own thread is named. */
#define XE_STEP(record, kind, number, name)                                                                            \
    int on_##name(void *ctx) {                                                                                         \
        bool by_target = fp_is_target();                                                                               \
        struct xe_queue key = {};                                                                                      \
        struct record *r;                                                                                              \
                                                                                                                       \
        XE_KEY(&key, xe_##name, ctx);                                                                                  \
        if (!by_target && !xe_is_known(&key))                                                                          \
            return 0;                                                                                                  \
        r = FP_RESERVE(struct record, kind);                                                                           \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, kind, by_target ? FP_TASK : 0);                                                                 \
        r->action = number;                                                                                            \
        XE_QUEUE(r, xe_##name, ctx);                                                                                   \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

#define XE_STATE(number, name) XE_STEP(fp_xe_exec_queue_state, FP_KIND_XE_EXEC_QUEUE_STATE, number, name)
#define XE_ERROR(number, name) XE_STEP(fp_xe_exec_queue_error, FP_KIND_XE_EXEC_QUEUE_ERROR, number, name)

XE_CREATE(0, exec_queue_create)
#ifdef XE_HAS_EXEC_QUEUE_CREATE_MULTI_QUEUE
XE_CREATE(1, exec_queue_create_multi_queue)
#endif

int on_exec_queue_destroy(void *ctx) {
    struct fp_xe_exec_queue_destroy *r;
    bool by_target = fp_is_target();
    struct xe_queue key = {};

    XE_KEY(&key, xe_exec_queue_destroy, ctx);
    if (!by_target && !xe_is_known(&key))
        return 0;
    r = FP_RESERVE(struct fp_xe_exec_queue_destroy, FP_KIND_XE_EXEC_QUEUE_DESTROY);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_EXEC_QUEUE_DESTROY, by_target ? FP_TASK : 0);
    XE_QUEUE(r, xe_exec_queue_destroy, ctx);
    fp_submit(r);
    return 0;
}

XE_STATE(0, exec_queue_register)
#ifdef XE_HAS_EXEC_QUEUE_DEREGISTER
XE_STATE(1, exec_queue_deregister)
#endif
#ifdef XE_HAS_EXEC_QUEUE_DEREGISTER_DONE
XE_STATE(2, exec_queue_deregister_done)
#endif
#ifdef XE_HAS_EXEC_QUEUE_SCHEDULING_ENABLE
XE_STATE(3, exec_queue_scheduling_enable)
#endif
#ifdef XE_HAS_EXEC_QUEUE_SCHEDULING_DISABLE
XE_STATE(4, exec_queue_scheduling_disable)
#endif
#ifdef XE_HAS_EXEC_QUEUE_SCHEDULING_DONE
XE_STATE(5, exec_queue_scheduling_done)
#endif
#ifdef XE_HAS_EXEC_QUEUE_SUBMIT
XE_STATE(6, exec_queue_submit)
#endif
#ifdef XE_HAS_EXEC_QUEUE_RESUBMIT
XE_STATE(7, exec_queue_resubmit)
#endif
#ifdef XE_HAS_EXEC_QUEUE_SUPRESS_RESUME
XE_STATE(8, exec_queue_supress_resume)
#endif
#ifdef XE_HAS_EXEC_QUEUE_STOP
XE_STATE(9, exec_queue_stop)
#endif
#ifdef XE_HAS_EXEC_QUEUE_CLOSE
XE_STATE(10, exec_queue_close)
#endif
#ifdef XE_HAS_EXEC_QUEUE_CLEANUP_ENTITY
XE_STATE(11, exec_queue_cleanup_entity)
#endif
#ifdef XE_HAS_EXEC_QUEUE_LR_CLEANUP
XE_STATE(12, exec_queue_lr_cleanup)
#endif
XE_ERROR(0, exec_queue_reset)
#ifdef XE_HAS_EXEC_QUEUE_MEMORY_CAT_ERROR
XE_ERROR(1, exec_queue_memory_cat_error)
#endif
#ifdef XE_HAS_EXEC_QUEUE_KILL
XE_ERROR(2, exec_queue_kill)
#endif
#ifdef XE_HAS_EXEC_QUEUE_CGP_CONTEXT_ERROR
XE_ERROR(3, exec_queue_cgp_context_error)
#endif
#ifdef XE_HAS_EXEC_QUEUE_REACH_MAX_JOB_COUNT
XE_ERROR(4, exec_queue_reach_max_job_count)
#endif
#ifdef XE_HAS_GUC_UNCORRECTABLE_ERROR
XE_ERROR(5, guc_uncorrectable_error)
#endif
