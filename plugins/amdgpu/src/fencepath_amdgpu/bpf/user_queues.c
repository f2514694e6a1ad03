// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * User queues of targets. What the driver does with one of its own accord is known by the doorbell of the queue.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

struct userq_begun {
    u64 begin_ns;
    u64 what;       /* the queue's address, or its doorbell */
    u32 from_state;
};

/* What the driver has begun to do with a queue, by tid: one thing at a time. */
BPF_TABLE("lru_hash", u32, struct userq_begun, userq_lives, 1024);
BPF_TABLE("lru_hash", u32, struct userq_begun, userq_states, 1024);
/* Doorbells of targets' queues. */
BPF_TABLE("lru_hash", u64, u8, userq_doorbells, 4096);

static __always_inline void userq_learn(u64 doorbell) {
    u8 one = 1;

    userq_doorbells.update(&doorbell, &one);
}

static __always_inline int userq_begin(u64 queue) {
    u32 tid = bpf_get_current_pid_tgid();
    struct userq_begun begun = {};

    begun.begin_ns = fp_now();
    begun.what = queue;
    userq_lives.update(&tid, &begun);
    return 0;
}

int on_userq_create_start(void *ctx) {
    return fp_is_target() ? userq_begin(FP_FIELD_amdgpu_userq_create_start_queue(ctx)) : 0;
}

/* A queue can be ended by whoever closes the file last. */
int on_userq_destroy_start(void *ctx) {
    return userq_begin(FP_FIELD_amdgpu_userq_destroy_start_queue(ctx));
}

#define USERQ_FILL(r, event, ctx)                                                                                      \
    do {                                                                                                               \
        (r)->queue = FP_FIELD_##event##_queue(ctx);                                                                    \
        (r)->doorbell = FP_FIELD_##event##_doorbell(ctx);                                                              \
        (r)->queue_type = FP_FIELD_##event##_queue_type(ctx);                                                          \
        (r)->state = FP_FIELD_##event##_state(ctx);                                                                    \
        (r)->partition = FP_FIELD_##event##_partition(ctx);                                                            \
        (r)->result = FP_FIELD_##event##_result(ctx);                                                                  \
    } while (0)

int on_userq_create_end(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct fp_amdgpu_userq_create *r;
    struct userq_begun *begun;
    u64 begin_ns;

    if (!fp_is_target())
        return 0;
    userq_learn(FP_FIELD_amdgpu_userq_create_end_doorbell(ctx));
    begun = userq_lives.lookup(&tid);
    if (!begun || begun->what != FP_FIELD_amdgpu_userq_create_end_queue(ctx)) {
        fp_lost(FP_KIND_AMDGPU_USERQ_CREATE, FP_STAGE_NO_ENTRY);
        return 0;
    }
    begin_ns = begun->begin_ns;
    userq_lives.delete(&tid);
    r = FP_RESERVE(struct fp_amdgpu_userq_create, FP_KIND_AMDGPU_USERQ_CREATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_USERQ_CREATE, FP_TASK);
    r->begin_ns = begin_ns;
    USERQ_FILL(r, amdgpu_userq_create_end, ctx);
    fp_submit(r);
    return 0;
}

int on_userq_destroy_end(void *ctx) {
    u64 doorbell = FP_FIELD_amdgpu_userq_destroy_end_doorbell(ctx);
    u32 tid = bpf_get_current_pid_tgid();
    struct fp_amdgpu_userq_destroy *r;
    bool by_target = fp_is_target();
    struct userq_begun *begun = userq_lives.lookup(&tid);
    u64 begin_ns;

    if (!begun || begun->what != FP_FIELD_amdgpu_userq_destroy_end_queue(ctx)) {
        if (by_target)
            fp_lost(FP_KIND_AMDGPU_USERQ_DESTROY, FP_STAGE_NO_ENTRY);
        return 0;
    }
    begin_ns = begun->begin_ns;
    userq_lives.delete(&tid);
    if (!by_target && !userq_doorbells.lookup(&doorbell))
        return 0;
    userq_doorbells.delete(&doorbell);
    r = FP_RESERVE(struct fp_amdgpu_userq_destroy, FP_KIND_AMDGPU_USERQ_DESTROY);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_USERQ_DESTROY, by_target ? FP_TASK : 0);
    r->begin_ns = begin_ns;
    USERQ_FILL(r, amdgpu_userq_destroy_end, ctx);
    fp_submit(r);
    return 0;
}

int on_userq_state_start(void *ctx) {
    u64 doorbell = FP_FIELD_amdgpu_userq_state_start_doorbell(ctx);
    u32 tid = bpf_get_current_pid_tgid();
    struct userq_begun begun = {};

    if (!fp_is_target() && !userq_doorbells.lookup(&doorbell))
        return 0;
    begun.begin_ns = fp_now();
    begun.what = doorbell;
    begun.from_state = FP_FIELD_amdgpu_userq_state_start_from_state(ctx);
    userq_states.update(&tid, &begun);
    return 0;
}

int on_userq_state_changed(void *ctx) {
    u64 doorbell = FP_FIELD_amdgpu_userq_state_changed_doorbell(ctx);
    u32 tid = bpf_get_current_pid_tgid();
    struct fp_amdgpu_userq_state *r;
    struct userq_begun *begun = userq_states.lookup(&tid);
    struct userq_begun copy;

    if (!begun || begun->what != doorbell)
        return 0;
    copy = *begun;
    userq_states.delete(&tid);
    r = FP_RESERVE(struct fp_amdgpu_userq_state, FP_KIND_AMDGPU_USERQ_STATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_USERQ_STATE, fp_is_target() ? FP_TASK : 0);
    r->begin_ns = copy.begin_ns;
    r->doorbell = doorbell;
    r->client_id = FP_FIELD_amdgpu_userq_state_changed_client_id(ctx);
    r->queue_type = FP_FIELD_amdgpu_userq_state_changed_queue_type(ctx);
    r->from_state = copy.from_state;
    r->to_state = FP_FIELD_amdgpu_userq_state_changed_to_state(ctx);
    fp_submit(r);
    return 0;
}

int on_userq_signal(void *ctx) {
    struct fp_amdgpu_userq_signal *r;

    if (!fp_is_target())
        return 0;
    userq_learn(FP_FIELD_amdgpu_userq_emit_fence_doorbell(ctx));
    r = FP_RESERVE(struct fp_amdgpu_userq_signal, FP_KIND_AMDGPU_USERQ_SIGNAL);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_USERQ_SIGNAL, FP_TASK);
    r->fence_context = FP_FIELD_amdgpu_userq_emit_fence_fence_context(ctx);
    r->fence_seqno = FP_FIELD_amdgpu_userq_emit_fence_fence_seqno(ctx);
    r->doorbell = FP_FIELD_amdgpu_userq_emit_fence_doorbell(ctx);
    r->client_id = FP_FIELD_amdgpu_userq_emit_fence_client_id(ctx);
    r->queue_type = FP_FIELD_amdgpu_userq_emit_fence_queue_type(ctx);
    r->h.flags |= FP_FIELD_amdgpu_userq_emit_fence_device(ctx, r->device);
    fp_submit(r);
    return 0;
}

int on_userq_wait(void *ctx) {
    struct fp_amdgpu_userq_wait *r;

    if (!fp_is_target())
        return 0;
    r = FP_RESERVE(struct fp_amdgpu_userq_wait, FP_KIND_AMDGPU_USERQ_WAIT);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_USERQ_WAIT, FP_TASK);
    r->queue_context = FP_FIELD_amdgpu_userq_wait_deps_queue_context(ctx);
    r->dependency_context = FP_FIELD_amdgpu_userq_wait_deps_dependency_context(ctx);
    r->dependency_seqno = FP_FIELD_amdgpu_userq_wait_deps_dependency_seqno(ctx);
    r->doorbell = FP_FIELD_amdgpu_userq_wait_deps_doorbell(ctx);
    r->client_id = FP_FIELD_amdgpu_userq_wait_deps_client_id(ctx);
    r->queue_type = FP_FIELD_amdgpu_userq_wait_deps_queue_type(ctx);
    r->h.flags |= FP_FIELD_amdgpu_userq_wait_deps_device(ctx, r->device);
    fp_submit(r);
    return 0;
}
