// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Programs of benchmarks/rings.py, both on syscalls:sys_enter_prctl. */
#include "fencepath.h"

#define BENCH_OPTION 0x46504252
#define FILL_RECORDS 500

/* The beginning of syscalls:sys_enter_prctl, the same on every 64-bit kernel. */
struct enter {
    u64 common;
    s64 number;
    u64 option;
    u64 argument;
};

struct bench {
    struct fp_header h;
    u64 argument;
    u64 checksum;
};

static __always_inline void fill_in(struct bench *room, u64 argument) {
    fp_fill(&room->h, FP_KIND_BENCH_RECORD, FP_TASK);
    room->argument = argument;
    room->checksum = (room->h.time_ns ^ ((u64)room->h.tgid << 32 | room->h.tid)) * 31 + argument;
}

int one(struct enter *ctx) {
    struct bench *room;

    if (ctx->option != BENCH_OPTION)
        return 0;
    room = FP_RESERVE(struct bench, FP_KIND_BENCH_RECORD);
    if (!room)
        return 0;
    fill_in(room, ctx->argument);
    fp_submit(room);
    return 0;
}

/* Many records a call, so that a ring is full before the caches have forgotten its beginning. */
int many(struct enter *ctx) {
    struct bench *room;
    int count;

    if (ctx->option != BENCH_OPTION)
        return 0;
    for (count = 0; count < FILL_RECORDS; count++) {
        room = FP_RESERVE(struct bench, FP_KIND_BENCH_RECORD);
        if (!room)
            return 0;
        fill_in(room, count);
        fp_submit(room);
    }
    return 0;
}
