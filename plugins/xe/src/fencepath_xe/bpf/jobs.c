// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Jobs of targets and the hardware's fences for them. The scheduler and interrupts do most of it: a job is a target's if a
 * target has put it on its queue. kinds.ACTIONS has the numbers of the actions.
 *
 * Macros given by -D:
 *   XE_HAS_<PROGRAM>    the kernel has the event of this program, for those that it may lack
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/*
 * Fences of targets' jobs, by address: the job's own, which is the hardware's unless the queue has several engines. Another
 * job may get the address once the job is freed.
 */
BPF_TABLE("lru_hash", u64, u8, xe_fences, 65536);

static __always_inline void xe_learn(u64 fence) {
    u8 one = 1;

    if (fence && xe_fences.update(&fence, &one))
        fp_lost(FP_KIND_XE_JOB_RUN, FP_STAGE_MAP_FULL);
}

static __always_inline void xe_forget(u64 fence) {
    xe_fences.delete(&fence);
}

static __always_inline bool xe_is_known(u64 fence) {
    return xe_fences.lookup(&fence) != 0;
}

#define XE_JOB(r, event, ctx)                                                                                          \
    do {                                                                                                               \
        (r)->fence_address = FP_FIELD_##event##_fence_address(ctx);                                                                    \
        (r)->batch_address = FP_FIELD_##event##_batch_address(ctx);                                                    \
        (r)->seqno = FP_FIELD_##event##_seqno(ctx);                                                                    \
        (r)->lrc_seqno = FP_FIELD_##event##_lrc_seqno(ctx);                                                            \
        (r)->guc_state = FP_FIELD_##event##_guc_state(ctx);                                                            \
        (r)->job_flags = FP_FIELD_##event##_job_flags(ctx);                                                            \
        (r)->error = FP_FIELD_##event##_error(ctx);                                                                    \
        (r)->gt = FP_FIELD_##event##_gt(ctx);                                                                          \
        (r)->guc_id = FP_FIELD_##event##_guc_id(ctx);                                                                  \
        (r)->h.flags |= FP_FIELD_##event##_device(ctx, (r)->device);                                                   \
    } while (0)

/* Runs in the ioctl, or in a worker of the driver. The fence may not be there yet. */
int on_sched_job_create(void *ctx) {
    struct fp_xe_job_create *r;

    if (!fp_is_target())
        return 0;
    r = FP_RESERVE(struct fp_xe_job_create, FP_KIND_XE_JOB_CREATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_JOB_CREATE, FP_TASK);
    XE_JOB(r, xe_sched_job_create, ctx);
    fp_submit(r);
    return 0;
}

/* Runs in the ioctl, before the job is queued. */
int on_sched_job_exec(void *ctx) {
    struct fp_xe_job_exec *r;

    if (!fp_is_target()) {
        xe_forget(FP_FIELD_xe_sched_job_exec_fence_address(ctx));
        return 0;
    }
    xe_learn(FP_FIELD_xe_sched_job_exec_fence_address(ctx));
    r = FP_RESERVE(struct fp_xe_job_exec, FP_KIND_XE_JOB_EXEC);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_JOB_EXEC, FP_TASK);
    XE_JOB(r, xe_sched_job_exec, ctx);
    fp_submit(r);
    return 0;
}

int on_sched_job_run(void *ctx) {
    struct fp_xe_job_run *r;

    if (!xe_is_known(FP_FIELD_xe_sched_job_run_fence_address(ctx)))
        return 0;
    r = FP_RESERVE(struct fp_xe_job_run, FP_KIND_XE_JOB_RUN);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_JOB_RUN, 0);
    XE_JOB(r, xe_sched_job_run, ctx);
    fp_submit(r);
    return 0;
}

int on_sched_job_free(void *ctx) {
    struct fp_xe_job_free *r;

    if (!xe_is_known(FP_FIELD_xe_sched_job_free_fence_address(ctx)))
        return 0;
    xe_forget(FP_FIELD_xe_sched_job_free_fence_address(ctx));
    r = FP_RESERVE(struct fp_xe_job_free, FP_KIND_XE_JOB_FREE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_JOB_FREE, 0);
    XE_JOB(r, xe_sched_job_free, ctx);
    fp_submit(r);
    return 0;
}

#define XE_JOB_ERROR(number, name)                                                                                     \
    int on_sched_job_##name(void *ctx) {                                                                               \
        struct fp_xe_job_error *r;                                                                                     \
                                                                                                                       \
        if (!xe_is_known(FP_FIELD_xe_sched_job_##name##_fence_address(ctx)))                                                   \
            return 0;                                                                                                  \
        r = FP_RESERVE(struct fp_xe_job_error, FP_KIND_XE_JOB_ERROR);                                                  \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, FP_KIND_XE_JOB_ERROR, 0);                                                                       \
        r->action = number;                                                                                            \
        XE_JOB(r, xe_sched_job_##name, ctx);                                                                           \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

XE_JOB_ERROR(0, timedout)
#ifdef XE_HAS_SCHED_JOB_SET_ERROR
XE_JOB_ERROR(1, set_error)
#endif
#ifdef XE_HAS_SCHED_JOB_BAN
XE_JOB_ERROR(2, ban)
#endif

#define XE_FENCE(r, event, ctx)                                                                                        \
    do {                                                                                                               \
        (r)->fence_address = FP_FIELD_##event##_fence_address(ctx);                                                                    \
        (r)->fence_context = FP_FIELD_##event##_fence_context(ctx);                                                    \
        (r)->fence_seqno = FP_FIELD_##event##_fence_seqno(ctx);                                                        \
        (r)->h.flags |= FP_FIELD_##event##_device(ctx, (r)->device);                                                   \
    } while (0)

/* Made where the job is, or where it is handed over; the address may have been a job's whose end was not seen. */
int on_hw_fence_create(void *ctx) {
    u64 fence = FP_FIELD_xe_hw_fence_create_fence_address(ctx);
    struct fp_xe_hw_fence_create *r;
    bool by_target = fp_is_target();

    if (by_target)
        xe_learn(fence);
    else if (!xe_is_known(fence))
        return 0;
    r = FP_RESERVE(struct fp_xe_hw_fence_create, FP_KIND_XE_HW_FENCE_CREATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_HW_FENCE_CREATE, by_target ? FP_TASK : 0);
    XE_FENCE(r, xe_hw_fence_create, ctx);
    fp_submit(r);
    return 0;
}

/* Runs in an interrupt or what follows one. */
int on_hw_fence_signal(void *ctx) {
    struct fp_xe_hw_fence_signal *r;

    if (!xe_is_known(FP_FIELD_xe_hw_fence_signal_fence_address(ctx)))
        return 0;
    r = FP_RESERVE(struct fp_xe_hw_fence_signal, FP_KIND_XE_HW_FENCE_SIGNAL);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_HW_FENCE_SIGNAL, 0);
    XE_FENCE(r, xe_hw_fence_signal, ctx);
    fp_submit(r);
    return 0;
}
