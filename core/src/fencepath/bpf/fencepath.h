// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What every BPF program of fencepath starts from: the record header, reserve and submit, loss counters, targets.
 *
 * Programs return 0: a kernel before 6.12 takes a uprobe off that returns 1 from a uprobe_multi link, and with a perf
 * event anything but 0 makes the kernel write a sample as well.
 *
 * Macros given by -D:
 *   FP_RING_<class>_FD       rings, by size class
 *   FP_LOSSES_FD, FP_ROWS    loss counters and their rows: a power of two above the highest kind number
 *   FP_KIND_<NAME>           kind numbers
 *   FP_TGIDS_FD, FP_TIDS_FD  target processes and threads: hash maps with u32 keys
 *   FP_SECRET_FD             what makes numbers of addresses, another one in each recording
 *   FP_ALL_PROCESSES         1: every process is a target
 *   FP_SELF_TGID             with that, the recorder, which never is; else nobody puts it into the sets
 */
#ifndef FENCEPATH_H
#define FENCEPATH_H

#include <linux/types.h>
#include <uapi/linux/ptrace.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* A map or ring made by user space. The descriptor has to be a constant. */
#define FP_MAP(fd) ((void *)bpf_pseudo_fd(1, fd))

/* records.HEADER */
struct fp_header {
    u64 time_ns;
    u32 tgid;
    u32 tid;
    u16 kind;
    u16 cpu;
    u32 flags;
};

/* records.Flags */
#define FP_OPEN 1
#define FP_TRUNCATED 2
#define FP_READ_FAULT 4
#define FP_ENTRY_ONLY 8
#define FP_TASK 16
#define FP_COMPAT 32

/* losses.Stage */
#define FP_STAGE_RECORDED 0
#define FP_STAGE_RING_FULL 1
#define FP_STAGE_MAP_FULL 2
#define FP_STAGE_READ_FAULT 3
#define FP_STAGE_NO_ENTRY 4
#define FP_STAGE_OVERWRITTEN 5
#define FP_STAGE_RECURSION 6
#define FP_STAGE_OTHER 7
#define FP_STAGES 8

/* CLOCK_MONOTONIC, in nanoseconds. */
static __always_inline u64 fp_now(void) {
    return bpf_ktime_get_ns();
}

/* Count one event of a kind as having come to a stage. */
static __always_inline void fp_lost(u32 kind, u32 stage) {
    u32 cpu = bpf_get_smp_processor_id();
    u64 *counts = bpf_map_lookup_elem(FP_MAP(FP_LOSSES_FD), &cpu);

    /*
     * Masked, since clang turns a comparison into bit tests that the verifier does not follow. Atomic, since an
     * interrupt, or another task on this CPU, may run a program in the middle of this one.
     */
    if (counts)
        __sync_fetch_and_add(&counts[(kind & (FP_ROWS - 1)) * FP_STAGES + stage], 1);
}

/*
 * Argument of a raw tracepoint, by number. In assembly because the verifier refuses a context pointer that was moved, and
 * a compiler is free to move it when it merges two loads.
 */
#define FP_RAW_ARGUMENT(ctx, number)                                                                                   \
    ({                                                                                                                 \
        u64 fp_raw_v;                                                                                                  \
        asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(fp_raw_v) : "r"(ctx), "i"(8 * (number)));                         \
        fp_raw_v;                                                                                                      \
    })

/* Fill in a header for the current task, at this time. flags has FP_TASK if this runs in task context. */
static __always_inline void fp_fill(struct fp_header *h, u16 kind, u32 flags) {
    u64 id = bpf_get_current_pid_tgid();

    h->time_ns = fp_now();
    h->tgid = id >> 32;
    h->tid = (u32)id;
    h->kind = kind;
    h->cpu = bpf_get_smp_processor_id();
    h->flags = flags;
}

/* Set memory of a record to 0. The kernel's reader does so when it refuses an address, and 0 is refused at once. */
static __always_inline void fp_clear(void *memory, u32 size) {
    bpf_probe_read_kernel(memory, size, (void *)0);
}

#ifdef FP_SECRET_FD

struct fp_secret {
    u64 mask;
    u64 odd;
};

/*
 * A number that stands for an address: the same one each time, and never the same for two, as each step can be undone with the
 * secret. Multiplying carries what differs upwards, shifting downwards.
 */
static __always_inline u64 fp_identity(u64 address) {
    u32 first = 0;
    struct fp_secret *secret = bpf_map_lookup_elem(FP_MAP(FP_SECRET_FD), &first);

    if (!address || !secret)
        return 0;
    address = (address ^ secret->mask) * secret->odd;
    address = (address ^ address >> 32) * secret->odd;
    return address ^ address >> 29;
}

#endif

/* The size class of a record of `size` bytes; constant after inlining. 0: there is none. */
static __always_inline u32 fp_class(u32 size) {
#ifdef FP_RING_32_FD
    if (size <= 32)
        return 32;
#endif
#ifdef FP_RING_64_FD
    if (size <= 64)
        return 64;
#endif
#ifdef FP_RING_128_FD
    if (size <= 128)
        return 128;
#endif
#ifdef FP_RING_256_FD
    if (size <= 256)
        return 256;
#endif
#ifdef FP_RING_512_FD
    if (size <= 512)
        return 512;
#endif
#ifdef FP_RING_1024_FD
    if (size <= 1024)
        return 1024;
#endif
#ifdef FP_RING_8320_FD
    if (size <= 8320)
        return 8320;
#endif
    return 0;
}

#if defined(FP_RING_8320_FD)
#define FP_LARGEST 8320
#elif defined(FP_RING_1024_FD)
#define FP_LARGEST 1024
#elif defined(FP_RING_512_FD)
#define FP_LARGEST 512
#elif defined(FP_RING_256_FD)
#define FP_LARGEST 256
#elif defined(FP_RING_128_FD)
#define FP_LARGEST 128
#elif defined(FP_RING_64_FD)
#define FP_LARGEST 64
#else
#define FP_LARGEST 32
#endif

static __always_inline void *fp_reserve_class(u32 class) {
#ifdef FP_RING_32_FD
    if (class == 32)
        return bpf_ringbuf_reserve(FP_MAP(FP_RING_32_FD), 32, 0);
#endif
#ifdef FP_RING_64_FD
    if (class == 64)
        return bpf_ringbuf_reserve(FP_MAP(FP_RING_64_FD), 64, 0);
#endif
#ifdef FP_RING_128_FD
    if (class == 128)
        return bpf_ringbuf_reserve(FP_MAP(FP_RING_128_FD), 128, 0);
#endif
#ifdef FP_RING_256_FD
    if (class == 256)
        return bpf_ringbuf_reserve(FP_MAP(FP_RING_256_FD), 256, 0);
#endif
#ifdef FP_RING_512_FD
    if (class == 512)
        return bpf_ringbuf_reserve(FP_MAP(FP_RING_512_FD), 512, 0);
#endif
#ifdef FP_RING_1024_FD
    if (class == 1024)
        return bpf_ringbuf_reserve(FP_MAP(FP_RING_1024_FD), 1024, 0);
#endif
#ifdef FP_RING_8320_FD
    if (class == 8320)
        return bpf_ringbuf_reserve(FP_MAP(FP_RING_8320_FD), 8320, 0);
#endif
    return 0;
}

/*
 * Room for one record, at its class's full size, or 0, counted as lost. Its content is what was there before: fill in
 * every field, and clear with fp_clear what an array does not use. Each record ends in fp_submit or fp_discard.
 */
#define FP_RESERVE(type, kind)                                                                                         \
    ({                                                                                                                 \
        _Static_assert(sizeof(type) <= FP_LARGEST, "no ring takes a record of this size");                             \
        type *fp_room = fp_reserve_class(fp_class(sizeof(type)));                                                      \
        if (!fp_room)                                                                                                  \
            fp_lost(kind, FP_STAGE_RING_FULL);                                                                         \
        fp_room;                                                                                                       \
    })

static __always_inline void fp_clear_tail(void *record, u32 size) {
    const u32 tail = fp_class(size) - size;

    if (tail > 64)
        fp_clear((char *)record + size, tail);
    else if (tail)
        __builtin_memset((char *)record + size, 0, tail);
}

#define FP_SUBMIT(record, wakeup)                                                                                      \
    do {                                                                                                               \
        fp_clear_tail(record, sizeof(*(record)));                                                                      \
        fp_lost((record)->h.kind, FP_STAGE_RECORDED);                                                                  \
        bpf_ringbuf_submit(record, wakeup);                                                                            \
    } while (0)

/* Hand a record over, count it, and leave nothing of older records behind its struct. No wake-up: see _bpf/rings.py. */
#define fp_submit(record) FP_SUBMIT(record, BPF_RB_NO_WAKEUP)

/* The same for a rare record that the recorder must see at once: it wakes it. Only in a ring's smallest class. */
#define fp_submit_urgent(record) FP_SUBMIT(record, BPF_RB_FORCE_WAKEUP)

/* Give a record up. */
static __always_inline void fp_discard(void *record) {
    bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
}

/* Whether a process, by its tgid in the initial pid namespace, is a target. */
static __always_inline bool fp_target_tgid(u32 tgid) {
#if FP_ALL_PROCESSES
    return tgid != FP_SELF_TGID;
#else
    return bpf_map_lookup_elem(FP_MAP(FP_TGIDS_FD), &tgid) != 0;
#endif
}

/* Whether a thread, by its tid in the initial pid namespace, is a target's. */
static __always_inline bool fp_target_tid(u32 tid) {
#if FP_ALL_PROCESSES
    return true;
#else
    return bpf_map_lookup_elem(FP_MAP(FP_TIDS_FD), &tid) != 0;
#endif
}

/* Whether the current task is a target's. In interrupt context that is whoever was interrupted. */
static __always_inline bool fp_is_target(void) {
    return fp_target_tgid(bpf_get_current_pid_tgid() >> 32);
}

#endif
