// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Reading a tracepoint's raw record by offset. The macros define one accessor each; fencepath.tracepoints writes the
 * invocations from the `format` file of the running kernel.
 */
#ifndef FENCEPATH_TRACEPOINTS_H
#define FENCEPATH_TRACEPOINTS_H

#include "fencepath.h"

/*
 * One load at a constant offset from the unmodified context. In assembly because the verifier refuses a context pointer
 * that was moved, and a compiler is free to move it when it merges two loads.
 */
#define FP_TP_LOAD(width, ctx, offset)                                                                                 \
    ({                                                                                                                 \
        u64 fp_tp_v;                                                                                                   \
        asm volatile("%0 = *(" #width " *)(%1 + %2)" : "=r"(fp_tp_v) : "r"(ctx), "i"(offset));                         \
        fp_tp_v;                                                                                                       \
    })

/* A number: loaded with its own width (zero extended), given its own sign, then widened to the record's type. */
#define FP_TP_SCALAR(name, to, from, width, offset)                                                                    \
    static __always_inline to name(const void *ctx)                                                                    \
    {                                                                                                                  \
        return (to)(from)FP_TP_LOAD(width, ctx, offset);                                                               \
    }

/* A number at an offset its width does not divide: the verifier refuses the direct load. */
#define FP_TP_SCALAR_UNALIGNED(name, to, from, offset)                                                                 \
    static __always_inline to name(const void *ctx)                                                                    \
    {                                                                                                                  \
        from fp_tp_v = 0;                                                                                              \
        bpf_probe_read_kernel(&fp_tp_v, sizeof(fp_tp_v), (const char *)ctx + (offset));                                \
        return (to)fp_tp_v;                                                                                            \
    }

/* What stands for an address of the kernel. */
#define FP_TP_IDENTITY(name, address)                                                                                  \
    static __always_inline u64 name(const void *ctx)                                                                   \
    {                                                                                                                  \
        return fp_identity(address(ctx));                                                                              \
    }

#define FP_TP_ABSENT_SCALAR(name, to)                                                                                  \
    static __always_inline to name(const void *ctx)                                                                    \
    {                                                                                                                  \
        return 0;                                                                                                      \
    }

/* Text is read up to its NUL only, and the memory of a record holds what was there before. */
static __always_inline void fp_tp_clear(void *dst, const u32 size)
{
    if (size > 64) {
        fp_clear(dst, size);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 64; i += 8)
        if (i + 8 <= size)
            *(volatile u64 *)((char *)dst + i) = 0;
#pragma unroll
    for (u32 i = 0; i < 7; i++)
        if (i < (size & 7))
            *(volatile u8 *)((char *)dst + (size & ~7u) + i) = 0;
}

#define FP_TP_ABSENT_BYTES(name, size)                                                                                 \
    static __always_inline u32 name(const void *ctx, void *dst)                                                        \
    {                                                                                                                  \
        fp_tp_clear(dst, size);                                                                                        \
        return 0;                                                                                                      \
    }

/* Text in a char array of the record: to its NUL. Byte size-1 is not 0 only where the text goes on. */
#define FP_TP_TEXT_ARRAY(name, size, offset, last)                                                                     \
    static __always_inline u32 name(const void *ctx, void *dst)                                                        \
    {                                                                                                                  \
        long fp_tp_n;                                                                                                  \
        fp_tp_clear(dst, size);                                                                                        \
        fp_tp_n = bpf_probe_read_kernel_str(dst, last, (const char *)ctx + (offset));                                  \
        if (fp_tp_n < 0)                                                                                               \
            return FP_READ_FAULT;                                                                                      \
        return fp_tp_n == (last) && FP_TP_LOAD(u8, ctx, (offset) + (last) - 1) ? FP_TRUNCATED : 0;                     \
    }

/* Text behind __data_loc (base 0) or __rel_loc (base: end of the slot): length << 16 | offset; the length counts the NUL. */
#define FP_TP_TEXT_LOC(name, size, offset, base)                                                                       \
    static __always_inline u32 name(const void *ctx, void *dst)                                                        \
    {                                                                                                                  \
        u32 fp_tp_loc = FP_TP_LOAD(u32, ctx, offset);                                                                  \
        long fp_tp_n;                                                                                                  \
        fp_tp_clear(dst, size);                                                                                        \
        fp_tp_n = bpf_probe_read_kernel_str(dst, size, (const char *)ctx + ((fp_tp_loc & 0xffff) + (base)));           \
        if (fp_tp_n < 0)                                                                                               \
            return FP_READ_FAULT;                                                                                      \
        return fp_tp_n == (size) && (fp_tp_loc >> 16) > (size) ? FP_TRUNCATED : 0;                                     \
    }

/* Text that a pointer in the record leads to; `space` is kernel or user. One more byte tells whether it was cut. */
#define FP_TP_TEXT_POINTER(name, size, offset, space)                                                                  \
    static __always_inline u32 name(const void *ctx, void *dst)                                                        \
    {                                                                                                                  \
        const char *fp_tp_p = (const char *)FP_TP_LOAD(u64, ctx, offset);                                              \
        long fp_tp_n;                                                                                                  \
        char fp_tp_next = 0;                                                                                           \
        fp_tp_clear(dst, size);                                                                                        \
        fp_tp_n = bpf_probe_read_##space##_str(dst, size, fp_tp_p);                                                    \
        if (fp_tp_n < 0)                                                                                               \
            return FP_READ_FAULT;                                                                                      \
        if (fp_tp_n < (size))                                                                                          \
            return 0;                                                                                                  \
        bpf_probe_read_##space(&fp_tp_next, 1, fp_tp_p + (size) - 1);                                                  \
        return fp_tp_next ? FP_TRUNCATED : 0;                                                                          \
    }

/* Numbers in an array of the record: `size` bytes for the destination, of which `given` are there. */
#define FP_TP_NUMBERS_ARRAY(name, size, given, flags, offset)                                                          \
    static __always_inline u32 name(const void *ctx, void *dst)                                                        \
    {                                                                                                                  \
        if ((given) < (size))                                                                                          \
            fp_tp_clear(dst, size);                                                                                    \
        if (bpf_probe_read_kernel(dst, given, (const char *)ctx + (offset)))                                           \
            return FP_READ_FAULT;                                                                                      \
        return flags;                                                                                                  \
    }

/* Numbers behind __data_loc or __rel_loc. The barrier keeps the bound that the verifier has to see. */
#define FP_TP_NUMBERS_LOC(name, size, offset, base)                                                                    \
    static __always_inline u32 name(const void *ctx, void *dst)                                                        \
    {                                                                                                                  \
        u32 fp_tp_loc = FP_TP_LOAD(u32, ctx, offset);                                                                  \
        u64 fp_tp_n = fp_tp_loc >> 16;                                                                                 \
        u32 fp_tp_flags = 0;                                                                                           \
        fp_tp_clear(dst, size);                                                                                        \
        asm volatile("" : "+r"(fp_tp_n));                                                                              \
        if (fp_tp_n > (size)) {                                                                                        \
            fp_tp_n = (size);                                                                                          \
            fp_tp_flags = FP_TRUNCATED;                                                                                \
        }                                                                                                              \
        if (fp_tp_n && bpf_probe_read_kernel(dst, fp_tp_n, (const char *)ctx + ((fp_tp_loc & 0xffff) + (base))))       \
            return FP_READ_FAULT;                                                                                      \
        return fp_tp_flags;                                                                                            \
    }

#endif
