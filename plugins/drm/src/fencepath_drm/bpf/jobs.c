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
 *   DRM_PARTS      1: record which fences stand for others
 *   DRM_WAKES      1: record which fence's signal woke a thread
 * Offsets of kernel structures; see structures.py. Each may be absent:
 *   DRM_FENCE_CONTEXT, DRM_FENCE_SEQNO    in struct dma_fence
 *   DRM_FENCE_FINISHED                    in struct drm_sched_fence
 *   DRM_FENCE_TO_SCHEDULER                from a finished fence to the pointer to its scheduler
 *   DRM_SCHEDULER_DEVICE, DRM_DEVICE_NAME in struct drm_gpu_scheduler, in struct device
 *   DRM_JOB_FENCE                         in struct drm_sched_job
 *   DRM_TASK_PID                          in struct task_struct
 * With DRM_PARTS these:
 *   DRM_FENCE_OPS, DRM_OPS_NAME           in struct dma_fence, in struct dma_fence_ops: the function that names the driver
 *   DRM_CHAIN_FENCE, DRM_CHAIN_PREV, DRM_CHAIN_PREV_SEQNO    in struct dma_fence_chain
 *   DRM_ARRAY_COUNT, DRM_ARRAY_FENCES     in struct dma_fence_array
 * Addresses of this boot:
 *   DRM_CHAIN_NAME, DRM_ARRAY_NAME        that function of such fences, by which they are told
 *   DRM_SIGNAL_RANGES      whether an address is in a function that signals: IN_RANGE(begin, bytes) with | between
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

/* ---- which signal woke whom ---- */

/*
 * Whoever waits for a fence, in whatever way (syncobj, sync_file, poll, epoll, eventfd), is woken from a callback of the
 * fence, which runs inside dma_fence_signal and what that calls. So the kernel's stack at a wake-up says whether a signal
 * is at work, and how many return addresses into those functions there are says which: as many as at the event of that
 * signal, which came on the same CPU, with interrupts off from there to here.
 */
#if DRM_WAKES

#define DRM_FRAMES 64       /* more than a kernel's stack is deep, with an interrupt on it */
#define DRM_LEVELS 16       /* addresses in those functions; a signal has one to four */
#define DRM_NEAR_NS 1000000000ULL

struct drm_stack {
    u64 frames[DRM_FRAMES];
};

/* Signals run with interrupts off, and so do wake-ups: one program at a time needs it. */
BPF_PERCPU_ARRAY(drm_stacks, struct drm_stack, 1);

struct drm_level {
    struct drm_fence fence;
    u64 number;
};

/* Signals on a CPU. */
struct drm_signals {
    u64 time_ns;     /* of the last one */
    u64 number;      /* how many there were */
    u64 stranger;    /* number of the last one that is not followed, whose level is not known */
    u32 tid;         /* who was the current thread at the last one */
    u32 reserved;
    struct drm_level levels[DRM_LEVELS];
};

BPF_PERCPU_ARRAY(drm_cpus, struct drm_signals, 1);

/* 1 if so, else 0; without a branch, as the verifier would have to follow both ways of each. */
static __always_inline u64 is_within(u64 address, u64 begin, u64 bytes) {
    u64 from = address - begin;

    return (~from & (from - bytes)) >> 63;
}

#define IN_RANGE(begin, bytes) is_within(address, begin, bytes)

/* How many return addresses into the signalling functions the stack has, below DRM_LEVELS; 0 if that is not known. */
static __always_inline u64 signal_level(void *ctx) {
    struct drm_stack *stack;
    u64 found = 0;
    int zero = 0;
    long size;

    stack = drm_stacks.lookup(&zero);
    if (!stack)
        return 0;
    size = bpf_get_stack(ctx, stack, sizeof(*stack), 0);
    if (size <= 0 || size >= sizeof(*stack))
        return 0;
    /* unrolled it keeps more than the 512 bytes that a program has */
#pragma clang loop unroll(disable)
    for (u64 i = 0; i < DRM_FRAMES; i++) {
        u64 address = stack->frames[i];

        /* what is behind the end is of an earlier stack */
        found += (DRM_SIGNAL_RANGES) & ((8 * i - (u64)size) >> 63);
    }
    if (found >= DRM_LEVELS)
        return 0;
    /* the verifier does not know of each use that it was compared */
    asm volatile("" : "+r"(found));
    return found & (DRM_LEVELS - 1);
}

/* At the event of a signal, before any callback has run. */
static __always_inline void note_signal(void *ctx, struct drm_fence fence) {
    int zero = 0;
    struct drm_signals *cpu = drm_cpus.lookup(&zero);
    u64 level;

    if (!cpu)
        return;
    cpu->time_ns = fp_now();
    cpu->tid = (u32)bpf_get_current_pid_tgid();
    cpu->number++;
    level = followed(fence) ? signal_level(ctx) : 0;
    if (!level) {
        cpu->stranger = cpu->number;
        return;
    }
    cpu->levels[level].fence = fence;
    cpu->levels[level].number = cpu->number;
}

/* Argument: struct task_struct *, who is woken. */
int on_waking_raw(void *ctx) {
    u64 task = FP_RAW_ARGUMENT(ctx, 0), level;
    struct fp_drm_fence_wake *r;
    struct drm_signals *cpu;
    u32 wakee_tid = 0;
    int zero = 0;

    cpu = drm_cpus.lookup(&zero);
    if (!cpu || !cpu->number || cpu->tid != (u32)bpf_get_current_pid_tgid() || fp_now() - cpu->time_ns > DRM_NEAR_NS)
        return 0;
    bpf_probe_read_kernel(&wakee_tid, sizeof(wakee_tid), (const void *)(task + DRM_TASK_PID));
    if (!fp_target_tid(wakee_tid))
        return 0;
    level = signal_level(ctx);
    if (!level || cpu->levels[level].number <= cpu->stranger)
        return 0;
    r = FP_RESERVE(struct fp_drm_fence_wake, FP_KIND_DRM_FENCE_WAKE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_DRM_FENCE_WAKE, 0);
    r->context = cpu->levels[level].fence.context;
    r->seqno = cpu->levels[level].fence.seqno;
    r->wakee_tid = wakee_tid;
    fp_submit(r);
    return 0;
}

#else

static __always_inline void note_signal(void *ctx, struct drm_fence fence) {
}

#endif

/* ---- which fences stand for others ---- */

#if DRM_PARTS

static __always_inline u64 namer_of(u64 fence) {
    return word_at(word_at(fence + DRM_FENCE_OPS) + DRM_OPS_NAME);
}

static __always_inline void part_of(struct drm_fence fence, u64 address, u64 prev_seqno, u32 is_point, u32 flags) {
    struct fp_drm_fence_part *r;

    r = FP_RESERVE(struct fp_drm_fence_part, FP_KIND_DRM_FENCE_PART);
    if (!r)
        return;
    fp_fill(&r->h, FP_KIND_DRM_FENCE_PART, flags);
    r->context = fence.context;
    r->seqno = fence.seqno;
    r->part_context = word_at(address + DRM_FENCE_CONTEXT);
    r->part_seqno = word_at(address + DRM_FENCE_SEQNO);
    r->prev_seqno = prev_seqno;
    r->is_point = is_point;
    fp_submit(r);
}

/* By thread: the point of a timeline that it made last. */
BPF_TABLE("lru_hash", u32, struct drm_fence, drm_points, 4096);

/* A point of a timeline is made; what it stands for is in it by then. */
static __always_inline void on_point(u64 address) {
    u64 part = word_at(address + DRM_CHAIN_FENCE), prev, prev_seqno;
    u32 tid = bpf_get_current_pid_tgid();
    struct drm_fence fence = {}, *known;

    if (!fp_is_target() || namer_of(address) != DRM_CHAIN_NAME)
        return;
    load_fence(part, &fence);
    follow(fence);
    load_fence(address, &fence);
    known = drm_points.lookup(&tid);
    if (known && known->context == fence.context && known->seqno == fence.seqno)
        return;
    drm_points.update(&tid, &fence);
    prev = word_at(address + DRM_CHAIN_PREV);
    prev_seqno = word_at(address + DRM_CHAIN_PREV_SEQNO);
    /* it comes after a fence that is no point of its timeline; one of context 0 never had to be waited for */
    if (!prev_seqno && prev && word_at(prev + DRM_FENCE_CONTEXT))
        prev_seqno = ~0ULL;
    part_of(fence, part, prev_seqno, 1, FP_TASK);
}

/*
 * Two programs, as some kernels (7.3 does) can preempt one and then skip it for other threads of the CPU. Argument: struct
 * dma_fence *.
 */
int on_part_raw(void *ctx) {
    on_point(FP_RAW_ARGUMENT(ctx, 0));
    return 0;
}

int on_part_again_raw(void *ctx) {
    on_point(FP_RAW_ARGUMENT(ctx, 0));
    return 0;
}

#define DRM_MEMBERS 8       /* of a merged fence; of one that has more nothing is said */

/*
 * A merged fence is signalled. Its members are put into it only after it was made. This has to be attached before
 * on_signaled_raw, after which the fence is not followed any more.
 */
int on_members_raw(void *ctx) {
    u64 address = FP_RAW_ARGUMENT(ctx, 0), members = word_at(address + DRM_ARRAY_FENCES);
    u32 count = word_at(address + DRM_ARRAY_COUNT);
    struct drm_fence fence = {};

    load_fence(address, &fence);
    if (namer_of(address) != DRM_ARRAY_NAME || count > DRM_MEMBERS || !followed(fence))
        return 0;
#pragma unroll
    for (u32 i = 0; i < DRM_MEMBERS; i++)
        if (i < count)
            part_of(fence, word_at(members + 8 * i), 0, 0, 0);
    return 0;
}

#endif

/* Argument: struct dma_fence *. */
int on_signaled_raw(void *ctx) {
    struct drm_fence fence = {};

    load_fence(FP_RAW_ARGUMENT(ctx, 0), &fence);
    note_signal(ctx, fence);
    signaled(fence);
    return 0;
}

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
    r->scheduler = fp_identity(r->scheduler);
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

#if defined(DRM_FENCE_CONTEXT) && defined(DRM_FENCE_FINISHED)

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

#if defined(DRM_FENCE_CONTEXT) && defined(DRM_JOB_FENCE)

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
