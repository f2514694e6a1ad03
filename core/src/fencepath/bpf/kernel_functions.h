// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Kernel functions, begin and return. fencepath.kernel_functions makes the source: this header, the records' structs, and
 * FP_FUNCTION for each function that is probed.
 *
 * Macros given by -D, besides those of fencepath.h:
 *   FP_CALLS_OF_<KIND>_FD      calls that have begun, as records, by thread
 *   FP_OFFSET_<STRUCT>_<MEMBER>
 */
#ifndef FENCEPATH_KERNEL_FUNCTIONS_H
#define FENCEPATH_KERNEL_FUNCTIONS_H

#include "fencepath.h"

/*
 * Who is in which function of a record: a thread is in it once, and what interrupts it is in functions of other records. The
 * idle threads of all CPUs have the number 0.
 */
static __always_inline u64 fp_function_key(u32 index) {
    u32 tid = bpf_get_current_pid_tgid();

    return (u64)index << 48 | (tid ? tid : 1ULL << 32 | bpf_get_smp_processor_id());
}

/* Read kernel memory; returns record flags, and what could not be read is 0. */
static __always_inline u32 fp_kernel_read(void *into, u32 size, u64 at) {
    return bpf_probe_read_kernel(into, size, (void *)at) ? FP_READ_FAULT : 0;
}

/*
 * Whether a function is called by the one that `outer` is a call of. Of kprobes a frame is known, by its place on the stack: that of
 * who is called lies below, or at the same place if it is jumped to. If it lies above, the return of the outer one was missed.
 */
#define FP_IS_INSIDE(outer, frame) ((outer) && !((frame) && (outer)->reserved && (u32)(frame) > (outer)->reserved))

/* The begin of a function: what it is called with is kept until it returns. `within`: index of one that calls it, or -1. */
#define FP_FUNCTION_BEGIN(type, take, frame, index, within, number, calls)                                             \
    ({                                                                                                                 \
        u64 key = fp_function_key(index), around = fp_function_key(within);                                            \
        struct type fresh, *outer = (within) >= 0 ? bpf_map_lookup_elem(FP_MAP(calls), &around) : 0;                   \
                                                                                                                       \
        if (!FP_IS_INSIDE(outer, frame)) {                                                                             \
            if (bpf_map_lookup_elem(FP_MAP(calls), &key))                                                              \
                fp_lost(number, FP_STAGE_OVERWRITTEN);                                                                 \
            __builtin_memset(&fresh, 0, sizeof(fresh));                                                                \
            fp_fill(&fresh.h, number, 0);                                                                              \
            fresh.begin_ns = fresh.h.time_ns;                                                                          \
            fresh.function = index;                                                                                    \
            fresh.h.flags = take(arguments, &fresh);                                                                   \
            fresh.reserved = (u32)(frame);                                                                             \
            if (bpf_map_update_elem(FP_MAP(calls), &key, &fresh, BPF_ANY))                                             \
                fp_lost(number, FP_STAGE_MAP_FULL);                                                                    \
        }                                                                                                              \
        0;                                                                                                             \
    })

/* The return of a function. */
#define FP_FUNCTION_END(type, value, index, within, number, calls)                                                     \
    ({                                                                                                                 \
        u64 key = fp_function_key(index), around = fp_function_key(within);                                            \
        struct type *open = bpf_map_lookup_elem(FP_MAP(calls), &key), *r;                                              \
        u32 flags;                                                                                                     \
                                                                                                                       \
        if (open) {                                                                                                    \
            r = FP_RESERVE(struct type, number);                                                                       \
            if (r) {                                                                                                   \
                bpf_probe_read_kernel(r, sizeof(*r), open);                                                            \
                flags = r->h.flags;                                                                                    \
                fp_fill(&r->h, number, flags);                                                                         \
                r->reserved = 0;                                                                                       \
                r->result = value;                                                                                     \
                if (flags & FP_READ_FAULT)                                                                             \
                    fp_lost(number, FP_STAGE_READ_FAULT);                                                              \
                fp_submit(r);                                                                                          \
            }                                                                                                          \
            bpf_map_delete_elem(FP_MAP(calls), &key);                                                                  \
        } else if ((within) < 0 || !bpf_map_lookup_elem(FP_MAP(calls), &around)) {                                     \
            fp_lost(number, FP_STAGE_NO_ENTRY);                                                                        \
        }                                                                                                              \
        0;                                                                                                             \
    })

/*
 * The programs of one function, for either way to attach. A kprobe is given the registers; fentry and fexit are given the
 * arguments, 8 bytes each, which are read from memory: the verifier would hold them to types that a driver's parameters do
 * not have everywhere.
 */
#define FP_FUNCTION(kind, type, index, within, count, result_type, targets, number, calls)                             \
    int fp_kprobe_##kind##_##index(struct pt_regs *ctx)                                                                \
    {                                                                                                                  \
        u64 arguments[5] = {PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),            \
                            PT_REGS_PARM5(ctx)};                                                                       \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        return FP_FUNCTION_BEGIN(type, fp_take_##kind, PT_REGS_SP(ctx), index, within, number, calls);                 \
    }                                                                                                                  \
    int fp_kretprobe_##kind##_##index(struct pt_regs *ctx)                                                             \
    {                                                                                                                  \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        return FP_FUNCTION_END(type, (result_type)PT_REGS_RC(ctx), index, within, number, calls);                      \
    }                                                                                                                  \
    int fp_fentry_##kind##_##index(void *ctx)                                                                          \
    {                                                                                                                  \
        u64 arguments[5] = {};                                                                                         \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        if (count)                                                                                                     \
            bpf_probe_read_kernel(arguments, 8 * (count), ctx);                                                        \
        return FP_FUNCTION_BEGIN(type, fp_take_##kind, 0, index, within, number, calls);                               \
    }                                                                                                                  \
    int fp_fexit_##kind##_##index(void *ctx)                                                                           \
    {                                                                                                                  \
        u64 returned = 0;                                                                                              \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        bpf_get_func_ret(ctx, &returned);                                                                              \
        return FP_FUNCTION_END(type, (result_type)returned, index, within, number, calls);                             \
    }

#endif
