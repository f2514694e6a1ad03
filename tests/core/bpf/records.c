// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Programs that record a number, where it came from and a checksum. */
#include "fencepath.h"

#define TEST_OPTION 0x46505453
#define LARGE_PAYLOAD 4096
#define SLOW_ROUNDS 20000

/* The beginning of syscalls:sys_enter_prctl, the same on every 64-bit kernel. */
struct enter {
    u64 common;
    s64 number;
    u64 option;
    u64 argument;
};

struct small {
    struct fp_header h;
    u64 argument;
};

struct middle {
    struct fp_header h;
    u64 cookie;
    u64 argument;
    u64 checksum;
};

struct large {
    struct fp_header h;
    u64 argument;
    u8 payload[LARGE_PAYLOAD];
};

static __always_inline u64 checksum_of(const struct fp_header *h, u64 cookie, u64 argument) {
    return (h->time_ns ^ ((u64)h->tgid << 32 | h->tid)) * 31 + cookie * 7 + argument;
}

static __always_inline int record(u64 cookie, u64 argument, u32 flags) {
    struct middle *room;

    if (!fp_is_target())
        return 0;
    room = FP_RESERVE(struct middle, FP_KIND_TEST_MIDDLE);
    if (!room)
        return 0;
    fp_fill(&room->h, FP_KIND_TEST_MIDDLE, flags);
    room->cookie = cookie;
    room->argument = argument;
    room->checksum = checksum_of(&room->h, cookie, argument);
    fp_submit(room);
    return 0;
}

int on_entry(struct pt_regs *ctx) {
    return record(bpf_get_attach_cookie(ctx), PT_REGS_PARM1(ctx), FP_TASK);
}

int on_return(struct pt_regs *ctx) {
    return record(bpf_get_attach_cookie(ctx), PT_REGS_RC(ctx), FP_TASK);
}

int on_prctl(struct enter *ctx) {
    if (ctx->option != TEST_OPTION)
        return 0;
    return record(0, ctx->argument, FP_TASK);
}

/* Gives up every third record. */
int on_prctl_discard(struct enter *ctx) {
    struct small *room;

    if (ctx->option != TEST_OPTION || !fp_is_target())
        return 0;
    room = FP_RESERVE(struct small, FP_KIND_TEST_SMALL);
    if (!room)
        return 0;
    fp_fill(&room->h, FP_KIND_TEST_SMALL, FP_TASK);
    room->argument = ctx->argument;
    if (ctx->argument % 3 == 0) {
        fp_discard(room);
        return 0;
    }
    fp_submit(room);
    return 0;
}

#ifdef FP_RING_8320_FD
/* Leaves the payload to fp_clear. */
int on_prctl_large(struct enter *ctx) {
    struct large *room;

    if (ctx->option != TEST_OPTION || !fp_is_target())
        return 0;
    room = FP_RESERVE(struct large, FP_KIND_TEST_LARGE);
    if (!room)
        return 0;
    fp_fill(&room->h, FP_KIND_TEST_LARGE, FP_TASK);
    room->argument = ctx->argument;
    fp_clear(room->payload, sizeof(room->payload));
    fp_submit(room);
    return 0;
}
#endif

/* Fills a whole class-64 slot with ones, so that what a smaller record does not clear shows. */
int on_prctl_ones(struct enter *ctx) {
    struct middle *room;

    if (ctx->option != TEST_OPTION || !fp_is_target())
        return 0;
    room = FP_RESERVE(struct middle, FP_KIND_TEST_MIDDLE);
    if (!room)
        return 0;
    __builtin_memset(room, 0xff, 64);
    fp_discard(room);
    return 0;
}

/* Takes milliseconds between reserve and submit: each read of address 0 is a page fault. */
int on_entry_slow(struct pt_regs *ctx) {
    struct middle *room;
    u64 scratch;
    int round;

    if (!fp_is_target())
        return 0;
    room = FP_RESERVE(struct middle, FP_KIND_TEST_MIDDLE);
    if (!room)
        return 0;
    for (round = 0; round < SLOW_ROUNDS; round++)
        bpf_probe_read_user(&scratch, sizeof(scratch), (void *)0);
    fp_fill(&room->h, FP_KIND_TEST_MIDDLE, FP_TASK);
    room->cookie = SLOW_ROUNDS;
    room->argument = PT_REGS_PARM1(ctx);
    room->checksum = checksum_of(&room->h, SLOW_ROUNDS, room->argument);
    fp_submit(room);
    return 0;
}

/* Records which filters the argument passes: its process 1, its thread 2, the current process 4. */
int on_prctl_targets(struct enter *ctx) {
    struct middle *room;

    if (ctx->option != TEST_OPTION)
        return 0;
    room = FP_RESERVE(struct middle, FP_KIND_TEST_MIDDLE);
    if (!room)
        return 0;
    fp_fill(&room->h, FP_KIND_TEST_MIDDLE, FP_TASK);
    room->argument = ctx->argument;
    room->cookie = fp_target_tgid(ctx->argument) | fp_target_tid(ctx->argument) << 1 | fp_is_target() << 2;
    room->checksum = 0;
    fp_submit(room);
    return 0;
}

/* Counts one loss of every stage that a program may count. */
int on_prctl_lost(struct enter *ctx) {
    if (ctx->option != TEST_OPTION || !fp_is_target())
        return 0;
    fp_lost(FP_KIND_TEST_MIDDLE, FP_STAGE_MAP_FULL);
    fp_lost(FP_KIND_TEST_MIDDLE, FP_STAGE_READ_FAULT);
    fp_lost(FP_KIND_TEST_SMALL, FP_STAGE_NO_ENTRY);
    fp_lost(ctx->argument, FP_STAGE_OTHER);
    return 0;
}
