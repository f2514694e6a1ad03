// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Jobs of the GPU scheduler and fences, from the tracepoints of both generations. A job is named by its finished fence.
 *
 * Completions come in interrupts and workers, so whose they are is not known from the current task: fences are followed
 * that a target's thread made, queued a job for, or waits for.
 *
 * Macros given by -D:
 *   DRM_JOBS       1: the scheduler's events are there
 *   DRM_BLOCKED    1: so is the event of a job that cannot be scheduled
 *   DRM_INITS      1: record the making of fences
 * Offsets of kernel structures; see structures.py. Each may be absent:
 *   DRM_FENCE_CONTEXT, DRM_FENCE_SEQNO    in struct dma_fence
 *   DRM_FENCE_FINISHED                    in struct drm_sched_fence
 *   DRM_FENCE_TO_SCHEDULER                from a finished fence to the pointer to its scheduler
 *   DRM_SCHEDULER_DEVICE, DRM_DEVICE_NAME in struct drm_gpu_scheduler, in struct device
 *   DRM_JOB_FENCE                         in struct drm_sched_job
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

#define DRIVER_BYTES 32
#define TIMELINE_BYTES 56

/* What names a fence of this boot. Context 0 is the kernel's own, of fences that never had to be waited for. */
struct drm_fence {
    u64 context;
    u64 seqno;
};

/* Fences to record the signal of. The oldest is pushed out: one that never signals keeps its room only until then. */
BPF_TABLE("lru_hash", u64, u8, drm_fences, 65536);

/* dma_fence events have 32 bits of each number, so all are compared by these. */
static __always_inline u64 short_name(struct drm_fence fence) {
    return fence.context << 32 | (u32)fence.seqno;
}

static __always_inline void follow(struct drm_fence fence) {
    u64 name = short_name(fence);
    u8 one = 1;

    if (fence.context)
        drm_fences.update(&name, &one);
}

static __always_inline bool followed(struct drm_fence fence) {
    u64 name = short_name(fence);

#if FP_ALL_PROCESSES
    return true;
#else
    return drm_fences.lookup(&name) != 0;
#endif
}

static __always_inline u64 word_at(u64 address) {
    u64 word = 0;

    bpf_probe_read_kernel(&word, sizeof(word), (const void *)address);
    return word;
}

/* ---- making of fences ---- */

/* By thread: the fence of the scheduler that it made last. A job's are made, scheduled then finished, right before it is queued. */
BPF_TABLE("lru_hash", u32, struct drm_fence, drm_made, 4096);

static __always_inline bool is_of_scheduler(const char *driver) {
    const char name[10] = "drm_sched";

#pragma unroll
    for (u32 i = 0; i < sizeof(name); i++)
        if (driver[i] != name[i])
            return false;
    return true;
}

int on_init(void *ctx) {
    struct drm_fence fence = {};
    char driver[DRIVER_BYTES];
    u32 tid = bpf_get_current_pid_tgid(), flags = FP_TASK;

    if (!fp_is_target())
        return 0;
    fence.context = FP_FIELD_dma_fence_init_context(ctx);
    fence.seqno = FP_FIELD_dma_fence_init_seqno(ctx);
    flags |= FP_FIELD_dma_fence_init_driver(ctx, driver);
    if (is_of_scheduler(driver))
        drm_made.update(&tid, &fence);
    else
        follow(fence);
#if DRM_INITS
    struct fp_drm_fence_init *r = FP_RESERVE(struct fp_drm_fence_init, FP_KIND_DRM_FENCE_INIT);

    if (!r)
        return 0;
    flags |= FP_FIELD_dma_fence_init_timeline(ctx, r->timeline);
    __builtin_memcpy(r->driver, driver, sizeof(r->driver));
    fp_fill(&r->h, FP_KIND_DRM_FENCE_INIT, flags);
    r->context = fence.context;
    r->seqno = fence.seqno;
    fp_submit(r);
#endif
    return 0;
}

/* ---- signals ---- */

static __always_inline void signaled(struct drm_fence fence) {
    struct fp_drm_fence_signaled *r;
    u64 name = short_name(fence);

    if (!followed(fence))
        return;
    drm_fences.delete(&name);
    r = FP_RESERVE(struct fp_drm_fence_signaled, FP_KIND_DRM_FENCE_SIGNALED);
    if (!r)
        return;
    fp_fill(&r->h, FP_KIND_DRM_FENCE_SIGNALED, 0);
    r->context = fence.context;
    r->seqno = fence.seqno;
    fp_submit(r);
}

int on_signaled(void *ctx) {
    struct drm_fence fence = {};

    fence.context = FP_FIELD_dma_fence_signaled_context(ctx);
    fence.seqno = FP_FIELD_dma_fence_signaled_seqno(ctx);
    signaled(fence);
    return 0;
}

#ifdef DRM_FENCE_CONTEXT

static __always_inline void load_fence(u64 address, struct drm_fence *fence) {
    fence->context = word_at(address + DRM_FENCE_CONTEXT);
    fence->seqno = word_at(address + DRM_FENCE_SEQNO);
}

#ifdef FP_RAW_ARGUMENT

/* Argument: struct dma_fence *. */
int on_signaled_raw(void *ctx) {
    struct drm_fence fence = {};

    load_fence(FP_RAW_ARGUMENT(ctx, 0), &fence);
    signaled(fence);
    return 0;
}

#endif

#endif

/* ---- waits, which the waiting thread announces itself ---- */

struct drm_waiting {
    u64 begin_ns;
    u32 context;
    u32 seqno;
    u32 flags;
    u32 reserved;
    char driver[DRIVER_BYTES];
    char timeline[TIMELINE_BYTES];
};

/* By thread: the wait it is in. */
BPF_TABLE("lru_hash", u32, struct drm_waiting, drm_waits, 16384);

int on_wait_start(void *ctx) {
    struct drm_waiting waiting = {};
    struct drm_fence fence = {};
    u32 tid = bpf_get_current_pid_tgid();

    if (!fp_is_target())
        return 0;
    waiting.begin_ns = fp_now();
    fence.context = waiting.context = FP_FIELD_dma_fence_wait_start_context(ctx);
    fence.seqno = waiting.seqno = FP_FIELD_dma_fence_wait_start_seqno(ctx);
    waiting.flags = FP_FIELD_dma_fence_wait_start_driver(ctx, waiting.driver);
    waiting.flags |= FP_FIELD_dma_fence_wait_start_timeline(ctx, waiting.timeline);
    follow(fence);
    drm_waits.update(&tid, &waiting);
    return 0;
}

/* The names are those of the start: from 6.17 on a signalled fence has none. */
int on_wait_end(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct drm_waiting *waiting;
    struct fp_drm_fence_wait *r;

    if (!fp_is_target())
        return 0;
    waiting = drm_waits.lookup(&tid);
    if (!waiting || waiting->context != (u32)FP_FIELD_dma_fence_wait_end_context(ctx) ||
        waiting->seqno != (u32)FP_FIELD_dma_fence_wait_end_seqno(ctx)) {
        fp_lost(FP_KIND_DRM_FENCE_WAIT, FP_STAGE_NO_ENTRY);
        return 0;
    }
    r = FP_RESERVE(struct fp_drm_fence_wait, FP_KIND_DRM_FENCE_WAIT);
    if (r) {
        fp_fill(&r->h, FP_KIND_DRM_FENCE_WAIT, FP_TASK | waiting->flags);
        r->begin_ns = waiting->begin_ns;
        r->context = waiting->context;
        r->seqno = waiting->seqno;
        __builtin_memcpy(r->driver, waiting->driver, sizeof(r->driver));
        __builtin_memcpy(r->timeline, waiting->timeline, sizeof(r->timeline));
        fp_submit(r);
    }
    drm_waits.delete(&tid);
    return 0;
}

#if DRM_JOBS

/* ---- which job: by context and seqno (6.17+), else by the address of its finished fence ---- */

#if FP_HAS_drm_sched_job_queue_fence_context

#define FENCE_OF(event, ctx, fence)                                                                                    \
    do {                                                                                                               \
        (fence)->context = FP_FIELD_##event##_fence_context(ctx);                                                      \
        (fence)->seqno = FP_FIELD_##event##_fence_seqno(ctx);                                                          \
    } while (0)

#else

#define FENCE_OF(event, ctx, fence) read_fence(FP_FIELD_##event##_fence_address(ctx), fence)

#ifdef DRM_FENCE_CONTEXT

#define read_fence load_fence
#define name_fence load_fence

#else

/*
 * By address: the finished fence of a job that is queued and not done. The kernel frees a fence no sooner, and an entry
 * is replaced when the address is handed out again.
 */
BPF_TABLE("lru_hash", u64, struct drm_fence, drm_addresses, 65536);

static __always_inline void read_fence(u64 address, struct drm_fence *fence) {
    struct drm_fence *known = drm_addresses.lookup(&address);

    if (known)
        *fence = *known;
}

/* What the queueing thread made last is the job's finished fence. */
static __always_inline void name_fence(u64 address, struct drm_fence *fence) {
    u32 tid = bpf_get_current_pid_tgid();
    struct drm_fence *made = drm_made.lookup(&tid);

    if (!made)
        return;
    *fence = *made;
    drm_addresses.update(&address, fence);
}

#endif

/* ---- dependencies of those kernels name a job by its ring's name and its number there ---- */

#define SLOTS 4    /* rings of one name, on several devices, whose numbers happen to be equal */

struct drm_pending_name {
    u64 id;
    u32 slot;
    u32 reserved;
    char ring[32];
};

/* Jobs that are queued and have not run. */
BPF_TABLE("lru_hash", struct drm_pending_name, struct drm_fence, drm_pending, 16384);

static __always_inline void add_pending(void *ctx, struct drm_fence fence) {
    struct drm_pending_name name = {.id = FP_FIELD_drm_sched_job_queue_id(ctx)};

    FP_FIELD_drm_sched_job_queue_ring(ctx, name.ring);
#pragma unroll
    for (u32 i = 0; i < SLOTS; i++) {
        name.slot = i;
        if (!drm_pending.insert(&name, &fence))
            return;
    }
    /* All are of jobs that never ran, or of a module that was loaded anew: numbers begin with 1 then. */
    drm_pending.update(&name, &fence);
}

static __always_inline void drop_pending(void *ctx, struct drm_fence fence) {
    struct drm_pending_name name = {.id = FP_FIELD_drm_sched_job_run_id(ctx)};
    struct drm_fence *pending;

    FP_FIELD_drm_sched_job_run_ring(ctx, name.ring);
#pragma unroll
    for (u32 i = 0; i < SLOTS; i++) {
        name.slot = i;
        pending = drm_pending.lookup(&name);
        if (pending && pending->context == fence.context && pending->seqno == fence.seqno)
            drm_pending.delete(&name);
    }
}

/* How many queued jobs this may be about; one of them is in *fence. */
static __always_inline u32 find_pending(void *ctx, struct drm_fence *fence) {
    struct drm_pending_name name = {.id = FP_FIELD_drm_sched_job_add_dep_id(ctx)};
    struct drm_fence *pending;
    u32 found = 0;

    FP_FIELD_drm_sched_job_add_dep_ring(ctx, name.ring);
#pragma unroll
    for (u32 i = 0; i < SLOTS; i++) {
        name.slot = i;
        pending = drm_pending.lookup(&name);
        if (!pending)
            continue;
        *fence = *pending;
        found++;
    }
    return found;
}

#endif

/* ---- jobs ---- */

/* The scheduler and the name of its device, where the event has neither. */
static __always_inline void read_device(void *ctx, struct fp_drm_job_queue *r) {
    r->scheduler = 0;
    fp_clear(r->dev, sizeof(r->dev));
#if !FP_HAS_drm_sched_job_queue_dev && defined(DRM_FENCE_TO_SCHEDULER)
    r->scheduler = word_at(FP_FIELD_drm_sched_job_queue_fence_address(ctx) + DRM_FENCE_TO_SCHEDULER);
#ifdef DRM_SCHEDULER_DEVICE
    bpf_probe_read_kernel_str(r->dev, sizeof(r->dev),
                              (const void *)word_at(word_at(r->scheduler + DRM_SCHEDULER_DEVICE) + DRM_DEVICE_NAME));
#endif
#endif
}

/* Runs in the thread that submits. */
int on_queue(void *ctx) {
    struct drm_fence fence = {};
    struct fp_drm_job_queue *r;
    u32 flags = FP_TASK;

    if (!fp_is_target())
        return 0;
#if FP_HAS_drm_sched_job_queue_fence_context
    FENCE_OF(drm_sched_job_queue, ctx, &fence);
#else
    name_fence(FP_FIELD_drm_sched_job_queue_fence_address(ctx), &fence);
    if (fence.context)
        add_pending(ctx, fence);
#endif
    if (!fence.context) {
        fp_lost(FP_KIND_DRM_JOB_QUEUE, FP_STAGE_READ_FAULT);
        return 0;
    }
    follow(fence);
    r = FP_RESERVE(struct fp_drm_job_queue, FP_KIND_DRM_JOB_QUEUE);
    if (!r)
        return 0;
    flags |= FP_FIELD_drm_sched_job_queue_ring(ctx, r->ring);
    read_device(ctx, r);
#if FP_HAS_drm_sched_job_queue_dev
    flags |= FP_FIELD_drm_sched_job_queue_dev(ctx, r->dev);
#endif
    fp_fill(&r->h, FP_KIND_DRM_JOB_QUEUE, flags);
    r->fence_context = fence.context;
    r->fence_seqno = fence.seqno;
    r->client_id = FP_FIELD_drm_sched_job_queue_client_id(ctx);
    r->id = FP_FIELD_drm_sched_job_queue_id(ctx);
    r->job_count = FP_FIELD_drm_sched_job_queue_job_count(ctx);
    r->hw_job_count = FP_FIELD_drm_sched_job_queue_hw_job_count(ctx);
    fp_submit(r);
    return 0;
}

/* Runs in the scheduler's worker, which is nobody's. */
int on_run(void *ctx) {
    struct drm_fence fence = {};
    struct fp_drm_job_run *r;

    FENCE_OF(drm_sched_job_run, ctx, &fence);
    if (!followed(fence))
        return 0;
#if !FP_HAS_drm_sched_job_queue_fence_context
    drop_pending(ctx, fence);
#endif
    r = FP_RESERVE(struct fp_drm_job_run, FP_KIND_DRM_JOB_RUN);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_DRM_JOB_RUN, 0);
    r->fence_context = fence.context;
    r->fence_seqno = fence.seqno;
    r->job_count = FP_FIELD_drm_sched_job_run_job_count(ctx);
    r->hw_job_count = FP_FIELD_drm_sched_job_run_hw_job_count(ctx);
    fp_submit(r);
    return 0;
}

static __always_inline void done(struct drm_fence fence) {
    struct fp_drm_job_done *r;

    if (!followed(fence))
        return;
    r = FP_RESERVE(struct fp_drm_job_done, FP_KIND_DRM_JOB_DONE);
    if (!r)
        return;
    fp_fill(&r->h, FP_KIND_DRM_JOB_DONE, 0);
    r->fence_context = fence.context;
    r->fence_seqno = fence.seqno;
    fp_submit(r);
}

/* Runs in whatever the driver completes jobs in, often an interrupt. */
int on_done(void *ctx) {
    struct drm_fence fence = {};

    FENCE_OF(drm_sched_job_done, ctx, &fence);
    done(fence);
    return 0;
}

#if defined(FP_RAW_ARGUMENT) && defined(DRM_FENCE_CONTEXT) && defined(DRM_FENCE_FINISHED)

/* Argument: struct drm_sched_fence *. */
int on_done_raw(void *ctx) {
    struct drm_fence fence = {};

    load_fence(FP_RAW_ARGUMENT(ctx, 0) + DRM_FENCE_FINISHED, &fence);
    done(fence);
    return 0;
}

#endif

/* `jobs`: how many it may be about. */
static __always_inline void depends(struct drm_fence fence, struct drm_fence on, u32 jobs, u32 flags) {
    struct fp_drm_job_dependency *r;

    follow(on);
    r = FP_RESERVE(struct fp_drm_job_dependency, FP_KIND_DRM_JOB_DEPENDENCY);
    if (!r)
        return;
    fp_fill(&r->h, FP_KIND_DRM_JOB_DEPENDENCY, flags);
    r->fence_context = jobs == 1 ? fence.context : 0;
    r->fence_seqno = jobs == 1 ? fence.seqno : 0;
    r->dependency_context = on.context;
    r->dependency_seqno = on.seqno;
    r->candidates = jobs;
    fp_submit(r);
}

/* In the submitting thread, right after the job was queued (6.17+), else in the worker that looks at it. */
int on_dependency(void *ctx) {
    struct drm_fence fence = {}, on = {};
    u32 jobs = 1, flags = 0;

#if FP_HAS_drm_sched_job_queue_fence_context
    FENCE_OF(drm_sched_job_add_dep, ctx, &fence);
    if (!followed(fence))
        return 0;
    flags = FP_TASK;
#else
    jobs = find_pending(ctx, &fence);
    if (!jobs)
        return 0;
#endif
    on.context = FP_FIELD_drm_sched_job_add_dep_ctx(ctx);
    on.seqno = FP_FIELD_drm_sched_job_add_dep_seqno(ctx);
    depends(fence, on, jobs, flags);
    return 0;
}

#if defined(FP_RAW_ARGUMENT) && defined(DRM_FENCE_CONTEXT) && defined(DRM_JOB_FENCE)

/* In the worker. Arguments: struct drm_sched_job *, struct dma_fence *. */
int on_dependency_raw(void *ctx) {
    struct drm_fence fence = {}, on = {};

    load_fence(word_at(FP_RAW_ARGUMENT(ctx, 0) + DRM_JOB_FENCE) + DRM_FENCE_FINISHED, &fence);
    load_fence(FP_RAW_ARGUMENT(ctx, 1), &on);
    if (followed(fence))
        depends(fence, on, 1, 0);
    return 0;
}

#endif

#if DRM_BLOCKED

/* In the scheduler's worker: a dependency is not signalled, so that the job has to wait. */
int on_blocked(void *ctx) {
    struct drm_fence fence = {};
    struct fp_drm_job_blocked *r;

    FENCE_OF(drm_sched_job_unschedulable, ctx, &fence);
    if (!followed(fence))
        return 0;
    r = FP_RESERVE(struct fp_drm_job_blocked, FP_KIND_DRM_JOB_BLOCKED);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_DRM_JOB_BLOCKED, 0);
    r->fence_context = fence.context;
    r->fence_seqno = fence.seqno;
    r->dependency_context = FP_FIELD_drm_sched_job_unschedulable_ctx(ctx);
    r->dependency_seqno = FP_FIELD_drm_sched_job_unschedulable_seqno(ctx);
    fp_submit(r);
    return 0;
}

#endif

#endif
