// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Requests of targets. What happens to one later is done by workers and interrupts: it is a target's if a target has added one
 * to its timeline, which has one fence context. The kernel never gives a context out twice.
 *
 * Macros given by -D:
 *   I915_LOW_LEVEL    1: the kernel has the low-level tracepoints
 *   I915_GUC          1: and that of submission to the GuC
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

struct i915_begun {
    u64 begin_ns;
    u64 context;
    u32 seqno;
    u32 wait_flags;
};

struct i915_run_key {
    u64 context;
    u32 seqno;
    u32 device;
    u16 engine_class;
    u16 engine_instance;
    u32 reserved;
};

struct i915_on_hardware {
    u64 begin_ns;
    u32 port;
    s32 priority;
};

/* Fence contexts that targets added requests to. */
BPF_TABLE("lru_hash", u64, u8, i915_contexts, 16384);
/* Waits that have begun, by tid: a thread waits for one request at a time. */
BPF_TABLE("lru_hash", u32, struct i915_begun, i915_waits, 8192);

static __always_inline void i915_learn(u64 context) {
    u8 one = 1;

    if (i915_contexts.update(&context, &one))
        fp_lost(FP_KIND_I915_REQUEST_RETIRE, FP_STAGE_MAP_FULL);
}

static __always_inline bool i915_is_known(u64 context) {
    return i915_contexts.lookup(&context) != 0;
}

#define I915_FILL(r, event, ctx)                                                                                       \
    do {                                                                                                               \
        (r)->context = FP_FIELD_##event##_context(ctx);                                                                \
        (r)->seqno = FP_FIELD_##event##_seqno(ctx);                                                                    \
        (r)->device = FP_FIELD_##event##_device(ctx);                                                                  \
        (r)->engine_class = FP_FIELD_##event##_engine_class(ctx);                                                      \
        (r)->engine_instance = FP_FIELD_##event##_engine_instance(ctx);                                                \
    } while (0)

int on_queue(void *ctx) {
    struct fp_i915_request_queue *r;

    if (!fp_is_target())
        return 0;
    i915_learn(FP_FIELD_i915_request_queue_context(ctx));
    r = FP_RESERVE(struct fp_i915_request_queue, FP_KIND_I915_REQUEST_QUEUE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_REQUEST_QUEUE, FP_TASK);
    I915_FILL(r, i915_request_queue, ctx);
    r->request_flags = FP_FIELD_i915_request_queue_request_flags(ctx);
    fp_submit(r);
    return 0;
}

/* Also for requests that the driver makes on its own, in a thread of a target. */
int on_add(void *ctx) {
    struct fp_i915_request_add *r;

    if (!fp_is_target())
        return 0;
    i915_learn(FP_FIELD_i915_request_add_context(ctx));
    r = FP_RESERVE(struct fp_i915_request_add, FP_KIND_I915_REQUEST_ADD);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_REQUEST_ADD, FP_TASK);
    I915_FILL(r, i915_request_add, ctx);
    r->tail = FP_FIELD_i915_request_add_tail(ctx);
    fp_submit(r);
    return 0;
}

/* A program for an event that concerns a request, whoever runs. */
#define I915_STEP(program, record, number, event)                                                                      \
    int program(void *ctx) {                                                                                           \
        struct record *r;                                                                                              \
                                                                                                                       \
        if (!i915_is_known(FP_FIELD_##event##_context(ctx)))                                                           \
            return 0;                                                                                                  \
        r = FP_RESERVE(struct record, number);                                                                         \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, number, 0);                                                                                     \
        I915_FILL(r, event, ctx);                                                                                      \
        r->tail = FP_FIELD_##event##_tail(ctx);                                                                        \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

I915_STEP(on_retire, fp_i915_request_retire, FP_KIND_I915_REQUEST_RETIRE, i915_request_retire)

int on_wait_begin(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct i915_begun begun = {};

    if (!fp_is_target())
        return 0;
    begun.begin_ns = fp_now();
    begun.context = FP_FIELD_i915_request_wait_begin_context(ctx);
    begun.seqno = FP_FIELD_i915_request_wait_begin_seqno(ctx);
    begun.wait_flags = FP_FIELD_i915_request_wait_begin_wait_flags(ctx);
    i915_waits.update(&tid, &begun);
    return 0;
}

int on_wait_end(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct fp_i915_request_wait *r;
    struct i915_begun *begun;
    u64 begin_ns;
    u32 wait_flags;

    if (!fp_is_target())
        return 0;
    begun = i915_waits.lookup(&tid);
    if (!begun || begun->context != FP_FIELD_i915_request_wait_end_context(ctx) ||
        begun->seqno != FP_FIELD_i915_request_wait_end_seqno(ctx)) {
        fp_lost(FP_KIND_I915_REQUEST_WAIT, FP_STAGE_NO_ENTRY);
        return 0;
    }
    begin_ns = begun->begin_ns;
    wait_flags = begun->wait_flags;
    i915_waits.delete(&tid);
    r = FP_RESERVE(struct fp_i915_request_wait, FP_KIND_I915_REQUEST_WAIT);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_REQUEST_WAIT, FP_TASK);
    r->begin_ns = begin_ns;
    I915_FILL(r, i915_request_wait_end, ctx);
    r->wait_flags = wait_flags;
    fp_submit(r);
    return 0;
}

#if I915_LOW_LEVEL

/* Requests on the hardware. One may be there on two engines of a virtual one in turn. */
BPF_TABLE("lru_hash", struct i915_run_key, struct i915_on_hardware, i915_running, 8192);

I915_STEP(on_submit, fp_i915_request_submit, FP_KIND_I915_REQUEST_SUBMIT, i915_request_submit)
I915_STEP(on_execute, fp_i915_request_execute, FP_KIND_I915_REQUEST_EXECUTE, i915_request_execute)

int on_in(void *ctx) {
    struct i915_on_hardware state = {};
    struct i915_run_key key = {};

    if (!i915_is_known(FP_FIELD_i915_request_in_context(ctx)))
        return 0;
    I915_FILL(&key, i915_request_in, ctx);
    state.begin_ns = fp_now();
    state.port = FP_FIELD_i915_request_in_port(ctx);
    state.priority = FP_FIELD_i915_request_in_priority(ctx);
    i915_running.update(&key, &state);
    return 0;
}

int on_out(void *ctx) {
    struct i915_on_hardware state, *found;
    struct i915_run_key key = {};
    struct fp_i915_request_run *r;

    if (!i915_is_known(FP_FIELD_i915_request_out_context(ctx)))
        return 0;
    I915_FILL(&key, i915_request_out, ctx);
    found = i915_running.lookup(&key);
    if (!found) {
        fp_lost(FP_KIND_I915_REQUEST_RUN, FP_STAGE_NO_ENTRY);
        return 0;
    }
    state = *found;
    i915_running.delete(&key);
    r = FP_RESERVE(struct fp_i915_request_run, FP_KIND_I915_REQUEST_RUN);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_REQUEST_RUN, 0);
    r->begin_ns = state.begin_ns;
    I915_FILL(r, i915_request_out, ctx);
    r->port = state.port;
    r->priority = state.priority;
    r->completed = FP_FIELD_i915_request_out_completed(ctx);
    fp_submit(r);
    return 0;
}

#if I915_GUC
I915_STEP(on_guc_submit, fp_i915_request_guc_submit, FP_KIND_I915_REQUEST_GUC_SUBMIT, i915_request_guc_submit)
#endif

#endif
