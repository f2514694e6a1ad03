// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Address spaces of targets and what is pushed out of them, by a target or by anybody else. kinds.EVICT_ACTIONS has the
 * numbers of the actions.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/* Address spaces and contexts that targets made, by address. */
BPF_TABLE("lru_hash", u64, u8, i915_made, 16384);

static __always_inline void i915_note(u64 address) {
    u8 one = 1;

    i915_made.update(&address, &one);
}

static __always_inline bool i915_is_made(u64 address) {
    return i915_made.lookup(&address) != 0;
}

static __always_inline void i915_forget(u64 address) {
    i915_made.delete(&address);
}

#define I915_BEGIN(program, record, number, event, key, extra)                                                         \
    int program(void *ctx) {                                                                                           \
        u64 key = FP_FIELD_##event##_##key(ctx);                                                                       \
        struct record *r;                                                                                              \
                                                                                                                       \
        if (!fp_is_target()) {                                                                                         \
            i915_forget(key);                                                                                          \
            return 0;                                                                                                  \
        }                                                                                                              \
        i915_note(key);                                                                                                \
        r = FP_RESERVE(struct record, number);                                                                         \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, number, FP_TASK);                                                                               \
        r->vm = FP_FIELD_##event##_vm(ctx);                                                                            \
        r->device = FP_FIELD_##event##_device(ctx);                                                                    \
        extra;                                                                                                         \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

/* Whoever had it last, or a worker. */
#define I915_END(program, record, number, event, key, extra)                                                           \
    int program(void *ctx) {                                                                                           \
        u64 key = FP_FIELD_##event##_##key(ctx);                                                                       \
        bool by_target = fp_is_target();                                                                               \
        struct record *r;                                                                                              \
                                                                                                                       \
        if (!by_target && !i915_is_made(key))                                                                          \
            return 0;                                                                                                  \
        i915_forget(key);                                                                                              \
        r = FP_RESERVE(struct record, number);                                                                         \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, number, by_target ? FP_TASK : 0);                                                               \
        r->vm = FP_FIELD_##event##_vm(ctx);                                                                            \
        r->device = FP_FIELD_##event##_device(ctx);                                                                    \
        extra;                                                                                                         \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

#define CONTEXT_POINTER r->context_pointer = context_pointer

I915_BEGIN(on_vm_create, fp_i915_vm_create, FP_KIND_I915_VM_CREATE, i915_ppgtt_create, vm, )
I915_END(on_vm_release, fp_i915_vm_release, FP_KIND_I915_VM_RELEASE, i915_ppgtt_release, vm, )
I915_BEGIN(on_context_create, fp_i915_context_create, FP_KIND_I915_CONTEXT_CREATE, i915_context_create, context_pointer,
           CONTEXT_POINTER)
I915_END(on_context_free, fp_i915_context_free, FP_KIND_I915_CONTEXT_FREE, i915_context_free, context_pointer,
         CONTEXT_POINTER)

/* A record of an eviction that concerns a target, or 0. */
static __always_inline struct fp_i915_evict *i915_evict(u64 vm, u32 action) {
    bool by_target = fp_is_target();
    struct fp_i915_evict *r;

    if (!by_target && !i915_is_made(vm))
        return 0;
    r = FP_RESERVE(struct fp_i915_evict, FP_KIND_I915_EVICT);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_EVICT, by_target ? FP_TASK : 0);
    r->vm = vm;
    r->action = action;
    r->address = 0;
    r->size_bytes = 0;
    r->alignment_bytes = 0;
    r->color = 0;
    r->evict_flags = 0;
    return r;
}

int on_evict(void *ctx) {
    struct fp_i915_evict *r = i915_evict(FP_FIELD_i915_gem_evict_vm(ctx), 0);

    if (!r)
        return 0;
    r->device = FP_FIELD_i915_gem_evict_device(ctx);
    r->size_bytes = FP_FIELD_i915_gem_evict_size_bytes(ctx);
    r->alignment_bytes = FP_FIELD_i915_gem_evict_alignment_bytes(ctx);
    r->evict_flags = FP_FIELD_i915_gem_evict_evict_flags(ctx);
    fp_submit(r);
    return 0;
}

int on_evict_node(void *ctx) {
    struct fp_i915_evict *r = i915_evict(FP_FIELD_i915_gem_evict_node_vm(ctx), 1);

    if (!r)
        return 0;
    r->device = FP_FIELD_i915_gem_evict_node_device(ctx);
    r->address = FP_FIELD_i915_gem_evict_node_address(ctx);
    r->size_bytes = FP_FIELD_i915_gem_evict_node_size_bytes(ctx);
    r->color = FP_FIELD_i915_gem_evict_node_color(ctx);
    r->evict_flags = FP_FIELD_i915_gem_evict_node_evict_flags(ctx);
    fp_submit(r);
    return 0;
}

int on_evict_vm(void *ctx) {
    struct fp_i915_evict *r = i915_evict(FP_FIELD_i915_gem_evict_vm_vm(ctx), 2);

    if (!r)
        return 0;
    r->device = FP_FIELD_i915_gem_evict_vm_device(ctx);
    fp_submit(r);
    return 0;
}
