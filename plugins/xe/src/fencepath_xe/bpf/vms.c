// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Address spaces of targets and the ranges in them. Workers, faults and other processes have a hand in them: an address space
 * is a target's if a target made it. kinds.ACTIONS has the numbers of the actions.
 *
 * Ranges of older kernels name their address space by its number for the GPU only, which has one meaning on each device.
 *
 * Macros given by -D:
 *   XE_HAS_<PROGRAM>    the kernel has the event of this program, for those that it may lack
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/* Addresses in the kernel are above this, numbers for the GPU below. */
#define XE_ASID_KEY(asid) ((u64)(asid))

/* Address spaces of targets, by address and by number for the GPU. */
BPF_TABLE("lru_hash", u64, u8, xe_vms, 16384);
/* Work on an address space that has begun, by tid of the worker. */
BPF_TABLE("lru_hash", u32, u64, xe_rebinds, 4096);

static __always_inline void xe_note(u64 key) {
    u8 one = 1;

    if (key && xe_vms.update(&key, &one))
        fp_lost(FP_KIND_XE_VMA_BIND, FP_STAGE_MAP_FULL);
}

static __always_inline void xe_forget(u64 vm, u32 asid) {
    u64 key = XE_ASID_KEY(asid);

    xe_vms.delete(&vm);
    if (key)
        xe_vms.delete(&key);
}

/* Whether an address space is a target's; where its address is known, the number does not count. */
static __always_inline bool xe_is_known(u64 vm, u32 asid) {
    u64 key = vm ? vm : XE_ASID_KEY(asid);

    return key && xe_vms.lookup(&key) != 0;
}

#define XE_VM(r, event, ctx)                                                                                           \
    do {                                                                                                               \
        (r)->vm = FP_FIELD_##event##_vm(ctx);                                                                          \
        (r)->asid = FP_FIELD_##event##_asid(ctx);                                                                      \
        (r)->vm_flags = FP_FIELD_##event##_vm_flags(ctx);                                                              \
        (r)->h.flags |= FP_FIELD_##event##_device(ctx, (r)->device);                                                   \
    } while (0)

/* The number for the GPU is given later: it is learnt from what a target does with ranges. */
int on_vm_create(void *ctx) {
    u64 vm = FP_FIELD_xe_vm_create_vm(ctx);
    struct fp_xe_vm_create *r;

    if (!fp_is_target()) {
        xe_forget(vm, 0);
        return 0;
    }
    xe_note(vm);
    r = FP_RESERVE(struct fp_xe_vm_create, FP_KIND_XE_VM_CREATE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_VM_CREATE, FP_TASK);
    XE_VM(r, xe_vm_create, ctx);
    fp_submit(r);
    return 0;
}

int on_vm_free(void *ctx) {
    u64 vm = FP_FIELD_xe_vm_free_vm(ctx);
    u32 asid = FP_FIELD_xe_vm_free_asid(ctx);
    bool by_target = fp_is_target();
    struct fp_xe_vm_free *r;

    if (!by_target && !xe_is_known(vm, asid))
        return 0;
    xe_forget(vm, asid);
    r = FP_RESERVE(struct fp_xe_vm_free, FP_KIND_XE_VM_FREE);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_VM_FREE, by_target ? FP_TASK : 0);
    XE_VM(r, xe_vm_free, ctx);
    fp_submit(r);
    return 0;
}

int on_vm_rebind_worker_enter(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    u64 now_ns = fp_now();

    if (xe_is_known(FP_FIELD_xe_vm_rebind_worker_enter_vm(ctx), FP_FIELD_xe_vm_rebind_worker_enter_asid(ctx)))
        xe_rebinds.update(&tid, &now_ns);
    return 0;
}

int on_vm_rebind_worker_exit(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    u64 *found = xe_rebinds.lookup(&tid);
    struct fp_xe_vm_rebind *r;
    u64 begin_ns;

    if (!found)
        return 0;
    begin_ns = *found;
    xe_rebinds.delete(&tid);
    r = FP_RESERVE(struct fp_xe_vm_rebind, FP_KIND_XE_VM_REBIND);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_XE_VM_REBIND, 0);
    r->begin_ns = begin_ns;
    XE_VM(r, xe_vm_rebind_worker_exit, ctx);
    fp_submit(r);
    return 0;
}

#define XE_VM_STEP(record, kind, number, name)                                                                         \
    int on_##name(void *ctx) {                                                                                         \
        bool by_target = fp_is_target();                                                                               \
        struct record *r;                                                                                              \
                                                                                                                       \
        if (!by_target && !xe_is_known(FP_FIELD_xe_##name##_vm(ctx), FP_FIELD_xe_##name##_asid(ctx)))                  \
            return 0;                                                                                                  \
        r = FP_RESERVE(struct record, kind);                                                                           \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, kind, by_target ? FP_TASK : 0);                                                                 \
        r->action = number;                                                                                            \
        XE_VM(r, xe_##name, ctx);                                                                                      \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

#define XE_UPDATE(number, name) XE_VM_STEP(fp_xe_vm_update, FP_KIND_XE_VM_UPDATE, number, name)
#define XE_ERROR(number, name) XE_VM_STEP(fp_xe_vm_error, FP_KIND_XE_VM_ERROR, number, name)

XE_UPDATE(0, vm_cpu_bind)
#ifdef XE_HAS_VM_RESTART
XE_UPDATE(1, vm_restart)
#endif
#ifdef XE_HAS_VM_REBIND_WORKER_RETRY
XE_UPDATE(2, vm_rebind_worker_retry)
#endif
XE_ERROR(0, vm_kill)
#ifdef XE_HAS_VM_OPS_FAIL
XE_ERROR(1, vm_ops_fail)
#endif

#define XE_VMA(r, event, ctx)                                                                                          \
    do {                                                                                                               \
        u64 start = FP_FIELD_##event##_start(ctx);                                                                     \
        (r)->vma = FP_FIELD_##event##_vma(ctx);                                                                        \
        (r)->vm = FP_FIELD_##event##_vm(ctx);                                                                          \
        (r)->address = start;                                                                                          \
        (r)->size_bytes = FP_FIELD_##event##_end(ctx) - start + 1;                                                     \
        (r)->user_address = FP_FIELD_##event##_user_address(ctx);                                                      \
        (r)->asid = FP_FIELD_##event##_asid(ctx);                                                                      \
        (r)->h.flags |= FP_FIELD_##event##_device(ctx, (r)->device);                                                   \
    } while (0)

#define XE_RANGE(record, kind, name, what)                                                                             \
    int on_##name(void *ctx) {                                                                                         \
        bool by_target = fp_is_target();                                                                               \
        struct record *r;                                                                                              \
                                                                                                                       \
        if (!by_target && !xe_is_known(FP_FIELD_xe_##name##_vm(ctx), FP_FIELD_xe_##name##_asid(ctx)))                  \
            return 0;                                                                                                  \
        r = FP_RESERVE(struct record, kind);                                                                           \
        if (!r)                                                                                                        \
            return 0;                                                                                                  \
        fp_fill(&r->h, kind, by_target ? FP_TASK : 0);                                                                 \
        what;                                                                                                          \
        XE_VMA(r, xe_##name, ctx);                                                                                     \
        if (by_target && !r->vm)                                                                                       \
            xe_note(XE_ASID_KEY(FP_FIELD_xe_##name##_asid(ctx)));                                                      \
        fp_submit(r);                                                                                                  \
        return 0;                                                                                                      \
    }

#define XE_BIND(number, name) XE_RANGE(fp_xe_vma_bind, FP_KIND_XE_VMA_BIND, name, r->action = number)
#define XE_FAULT(number, name) XE_RANGE(fp_xe_vma_fault, FP_KIND_XE_VMA_FAULT, name, r->action = number)
#define XE_EVICT(number, name) XE_RANGE(fp_xe_vma_evict, FP_KIND_XE_VMA_EVICT, name, r->action = number)

XE_RANGE(fp_xe_vma_unbind, FP_KIND_XE_VMA_UNBIND, vma_unbind, )
XE_BIND(0, vma_bind)
#ifdef XE_HAS_VMA_PF_BIND
XE_BIND(1, vma_pf_bind)
#endif
#ifdef XE_HAS_VMA_REBIND_EXEC
XE_BIND(2, vma_rebind_exec)
#endif
#ifdef XE_HAS_VMA_REBIND_WORKER
XE_BIND(3, vma_rebind_worker)
#endif
#ifdef XE_HAS_VMA_USERPTR_REBIND_EXEC
XE_BIND(4, vma_userptr_rebind_exec)
#endif
#ifdef XE_HAS_VMA_USERPTR_REBIND_WORKER
XE_BIND(5, vma_userptr_rebind_worker)
#endif
XE_FAULT(0, vma_pagefault)
#ifdef XE_HAS_VMA_ACC
XE_FAULT(1, vma_acc)
#endif
XE_EVICT(0, vma_evict)
#ifdef XE_HAS_VMA_INVALIDATE
XE_EVICT(1, vma_invalidate)
#endif
#ifdef XE_HAS_VMA_USERPTR_INVALIDATE
XE_EVICT(2, vma_userptr_invalidate)
#endif
#ifdef XE_HAS_VMA_USERPTR_INVALIDATE_COMPLETE
XE_EVICT(3, vma_userptr_invalidate_complete)
#endif
#ifdef XE_HAS_VMA_FLUSH
XE_EVICT(4, vma_flush)
#endif
#ifdef XE_HAS_VMA_FAIL
XE_EVICT(5, vma_fail)
#endif
