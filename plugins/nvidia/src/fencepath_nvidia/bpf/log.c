// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Lines of the kernel's log that NVIDIA's driver writes: with "NVRM" or "SXid" near their begin. Where the event is raised on
 * the way to the console, a time and a level stand before that.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

#define NEAR 48

static __always_inline bool is_mark(const char *text) {
    return (text[0] == 'N' && text[1] == 'V' && text[2] == 'R' && text[3] == 'M') ||
           (text[0] == 'S' && text[1] == 'X' && text[2] == 'i' && text[3] == 'd');
}

/* Runs in whatever context the line was written from. */
int on_console(void *ctx) {
    struct fp_nvidia_log *r = FP_RESERVE(struct fp_nvidia_log, FP_KIND_NVIDIA_LOG);
    bool found = false;
    u32 flags;

    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_NVIDIA_LOG, 0);
    flags = FP_FIELD_console_text(ctx, r->text);
    for (u32 i = 0; i < NEAR; i++)
        found = found || is_mark(&r->text[i]);
    if (!found) {
        fp_discard(r);
        return 0;
    }
    r->h.flags = flags;
    fp_submit(r);
    return 0;
}
