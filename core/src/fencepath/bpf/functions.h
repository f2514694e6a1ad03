// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Kernel functions, begin and return. fencepath.kernel_functions makes the source: this header, the records' structs, and
 * FP_FUNCTION for each function that is probed.
 *
 * Macros given by -D, besides those of fencepath.h:
 *   FP_CALLS_OF_<KIND>_FD      calls that have begun, as records, by thread
 *   FP_FUNCTION_SECRET_FD      what makes numbers of addresses
 *   FP_OFFSET_<STRUCT>_<MEMBER>
 */
#ifndef FENCEPATH_FUNCTIONS_H
#define FENCEPATH_FUNCTIONS_H

#include "fencepath.h"

struct fp_secret {
    u64 mask;
    u64 odd;
};

/*
 * Who is in a function: a thread is in one place at a time, and what interrupts it is in functions of other records. The
 * idle threads of all CPUs have the number 0.
 */
static __always_inline u64 fp_function_key(void) {
    u32 tid = bpf_get_current_pid_tgid();

    return tid ? tid : 1ULL << 32 | bpf_get_smp_processor_id();
}

/*
 * A number that stands for an address: the same one each time, and never the same for two, as each step can be undone with the
 * secret. Multiplying carries what differs upwards, shifting downwards.
 */
static __always_inline u64 fp_identity(u64 address) {
    u32 first = 0;
    struct fp_secret *secret = bpf_map_lookup_elem(FP_MAP(FP_FUNCTION_SECRET_FD), &first);

    if (!address || !secret)
        return 0;
    address = (address ^ secret->mask) * secret->odd;
    address = (address ^ address >> 32) * secret->odd;
    return address ^ address >> 29;
}

/* Read kernel memory; returns record flags, and what could not be read is 0. */
static __always_inline u32 fp_kernel_read(void *into, u32 size, u64 at) {
    return bpf_probe_read_kernel(into, size, (void *)at) ? FP_READ_FAULT : 0;
}

/*
 * The begin of a function: what it is called with is kept until it returns. `frame` is a place in its frame: a function that is called
 * by an open one lies below that on the stack. One that does not follows it: the return of the open one was missed.
 */
#define FP_FUNCTION_BEGIN(type, take, frame, index, targets, number, calls)                                            \
    ({                                                                                                                 \
        u64 key = fp_function_key();                                                                                   \
        struct type fresh, *open = bpf_map_lookup_elem(FP_MAP(calls), &key);                                           \
                                                                                                                       \
        if (!open || open->function == index || (u32)(frame) >= open->reserved) {                                      \
            if (open)                                                                                                  \
                fp_lost(number, FP_STAGE_OVERWRITTEN);                                                                 \
            __builtin_memset(&fresh, 0, sizeof(fresh));                                                                \
            fp_fill(&fresh.h, number, 0);                                                                              \
            fresh.begin_ns = fresh.h.time_ns;                                                                          \
            fresh.function = index;                                                                                    \
            fresh.reserved = (u32)(frame);                                                                             \
            fresh.h.flags = take(arguments, &fresh);                                                                   \
            if (bpf_map_update_elem(FP_MAP(calls), &key, &fresh, BPF_ANY))                                             \
                fp_lost(number, FP_STAGE_MAP_FULL);                                                                    \
        }                                                                                                              \
        0;                                                                                                             \
    })

/* The return of a function. */
#define FP_FUNCTION_END(type, value, index, targets, number, calls)                                                    \
    ({                                                                                                                 \
        u64 key = fp_function_key();                                                                                   \
        struct type *open = bpf_map_lookup_elem(FP_MAP(calls), &key), *r;                                              \
        u32 flags;                                                                                                     \
                                                                                                                       \
        if (!open) {                                                                                                   \
            fp_lost(number, FP_STAGE_NO_ENTRY);                                                                        \
        } else if (open->function == index) {                                                                          \
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
        }                                                                                                              \
        0;                                                                                                             \
    })

/*
 * The programs of one function, for either way to attach. A kprobe is given the registers; fentry and fexit are given the
 * arguments, 8 bytes each, which are read from memory: the verifier would hold them to types that a driver's parameters do
 * not have everywhere.
 */
#define FP_FUNCTION(kind, type, index, count, result_type, targets, number, calls)                                     \
    int fp_kprobe_##kind##_##index(struct pt_regs *ctx)                                                                \
    {                                                                                                                  \
        u64 arguments[5] = {PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),            \
                            PT_REGS_PARM5(ctx)};                                                                       \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        return FP_FUNCTION_BEGIN(type, fp_take_##kind, PT_REGS_SP(ctx), index, targets, number, calls);                \
    }                                                                                                                  \
    int fp_kretprobe_##kind##_##index(struct pt_regs *ctx)                                                             \
    {                                                                                                                  \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        return FP_FUNCTION_END(type, (result_type)PT_REGS_RC(ctx), index, targets, number, calls);                     \
    }                                                                                                                  \
    int fp_fentry_##kind##_##index(void *ctx)                                                                          \
    {                                                                                                                  \
        u64 arguments[5] = {};                                                                                         \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        if (count)                                                                                                     \
            bpf_probe_read_kernel(arguments, 8 * (count), ctx);                                                        \
        return FP_FUNCTION_BEGIN(type, fp_take_##kind, (u64)ctx, index, targets, number, calls);                       \
    }                                                                                                                  \
    int fp_fexit_##kind##_##index(void *ctx)                                                                           \
    {                                                                                                                  \
        u64 returned = 0;                                                                                              \
        if (targets && !fp_is_target())                                                                                \
            return 0;                                                                                                  \
        bpf_get_func_ret(ctx, &returned);                                                                              \
        return FP_FUNCTION_END(type, (result_type)returned, index, targets, number, calls);                            \
    }

#endif
