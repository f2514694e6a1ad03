// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Memory objects of targets and their addresses for the GPU. Workers and other processes have a hand in them: an object is a
 * target's if a target made it. Only a target's own thread is named as who did something.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

struct i915_object {
    u64 size_bytes;
    u32 tgid;
    u32 reserved;
};

/* Objects that targets made, by address. */
BPF_TABLE("lru_hash", u64, struct i915_object, i915_objects, 131072);

static __always_inline u32 i915_owner(u64 object) {
    struct i915_object *found = i915_objects.lookup(&object);

    return found ? found->tgid : 0;
}

int on_object_create(void *ctx) {
    u64 object = FP_FIELD_i915_gem_object_create_object(ctx);
    struct fp_i915_object_create *r;
    struct i915_object made = {};

    if (!fp_is_target()) {
        /* The address may have been a target's, whose end was not seen. */
        i915_objects.delete(&object);
        return 0;
    }
    made.size_bytes = FP_FIELD_i915_gem_object_create_size_bytes(ctx);
    made.tgid = bpf_get_current_pid_tgid() >> 32;
    i915_objects.update(&object, &made);
    r = FP_RESERVE(struct fp_i915_object_create, FP_KIND_I915_OBJECT_CREATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_OBJECT_CREATE, FP_TASK);
    r->object = object;
    r->size_bytes = made.size_bytes;
    fp_submit(r);
    return 0;
}

int on_object_destroy(void *ctx) {
    u64 object = FP_FIELD_i915_gem_object_destroy_object(ctx);
    struct i915_object *found = i915_objects.lookup(&object);
    struct fp_i915_object_destroy *r;
    bool by_target = fp_is_target();
    struct i915_object known = {};

    if (found)
        known = *found;
    else if (!by_target)
        return 0;
    i915_objects.delete(&object);
    r = FP_RESERVE(struct fp_i915_object_destroy, FP_KIND_I915_OBJECT_DESTROY);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_OBJECT_DESTROY, by_target ? FP_TASK : 0);
    r->object = object;
    r->size_bytes = known.size_bytes;
    r->owner_tgid = known.tgid;
    fp_submit(r);
    return 0;
}

#define I915_COPY(program, record, number, event)                                                                      \
    int program(void *ctx) {                                                                                           \
        struct record *r;                                                                                              \
                                                                                                                       \
        if (!fp_is_target())                                                                                           \
            return 0;                                                                                                  \
        r = FP_RESERVE(struct record, number);                                                                         \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, number, FP_TASK);                                                                               \
        r->object = FP_FIELD_##event##_object(ctx);                                                                    \
        r->offset_bytes = FP_FIELD_##event##_offset_bytes(ctx);                                                        \
        r->size_bytes = FP_FIELD_##event##_size_bytes(ctx);                                                            \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

I915_COPY(on_pread, fp_i915_object_pread, FP_KIND_I915_OBJECT_PREAD, i915_gem_object_pread)
I915_COPY(on_pwrite, fp_i915_object_pwrite, FP_KIND_I915_OBJECT_PWRITE, i915_gem_object_pwrite)

int on_clflush(void *ctx) {
    u64 object = FP_FIELD_i915_gem_object_clflush_object(ctx);
    struct fp_i915_object_clflush *r;
    bool by_target = fp_is_target();

    if (!by_target && !i915_owner(object))
        return 0;
    r = FP_RESERVE(struct fp_i915_object_clflush, FP_KIND_I915_OBJECT_CLFLUSH);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_OBJECT_CLFLUSH, by_target ? FP_TASK : 0);
    r->object = object;
    fp_submit(r);
    return 0;
}

int on_fault(void *ctx) {
    struct fp_i915_object_fault *r;

    if (!fp_is_target())
        return 0;
    r = FP_RESERVE(struct fp_i915_object_fault, FP_KIND_I915_OBJECT_FAULT);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_I915_OBJECT_FAULT, FP_TASK);
    r->object = FP_FIELD_i915_gem_object_fault_object(ctx);
    r->page = FP_FIELD_i915_gem_object_fault_page(ctx);
    r->through_gtt = FP_FIELD_i915_gem_object_fault_through_gtt(ctx);
    r->is_write = FP_FIELD_i915_gem_object_fault_is_write(ctx);
    fp_submit(r);
    return 0;
}

#define I915_VMA(program, record, number, event, flags)                                                                \
    int program(void *ctx) {                                                                                           \
        u64 object = FP_FIELD_##event##_object(ctx);                                                                   \
        bool by_target = fp_is_target();                                                                               \
        u32 owner = i915_owner(object);                                                                                \
        struct record *r;                                                                                              \
                                                                                                                       \
        if (!by_target && !owner)                                                                                      \
            return 0;                                                                                                  \
        r = FP_RESERVE(struct record, number);                                                                         \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, number, by_target ? FP_TASK : 0);                                                               \
        r->object = object;                                                                                            \
        r->vm = FP_FIELD_##event##_vm(ctx);                                                                            \
        r->address = FP_FIELD_##event##_address(ctx);                                                                  \
        r->size_bytes = FP_FIELD_##event##_size_bytes(ctx);                                                            \
        r->bind_flags = flags;                                                                                         \
        r->owner_tgid = owner;                                                                                         \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

I915_VMA(on_bind, fp_i915_vma_bind, FP_KIND_I915_VMA_BIND, i915_vma_bind, FP_FIELD_i915_vma_bind_bind_flags(ctx))
I915_VMA(on_unbind, fp_i915_vma_unbind, FP_KIND_I915_VMA_UNBIND, i915_vma_unbind, 0)
