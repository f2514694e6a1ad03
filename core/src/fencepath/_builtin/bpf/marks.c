// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Marks: prctl(0x46504d4b, 1, &mark, sizeof mark, 0), read on its way in. The kernel refuses the call whether or not this
 * program runs. Layout and ops: include/fencepath_mark.h.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

#define MARK_OPTION 0x46504d4b
#define MARK_VERSION 1

#define OP_REQUEST_BEGIN 1
#define OP_STEP_MEMBERS 5
#define OP_ATTRIBUTE 13

#define TEXT_BYTES 255
#define MEMBERS 512
#define MEMBER_BYTES 16

/* struct fencepath_mark_v1: what every mark record holds behind its header. */
struct mark {
    u16 op, flags;
    u32 value;
    u64 request, step;
    u64 trace_id[2], span_id;
    u8 trace_flags, phase;
    u16 len;
    u32 reserved;
    u64 ptr;
};

_Static_assert(sizeof(struct mark) == 64, "a mark has 64 bytes");
_Static_assert(sizeof(struct fp_mark_point) == sizeof(struct fp_header) + sizeof(struct mark), "a point is a mark");

/* Where a record holds the mark. */
#define MARK_OF(record) ((struct mark *)((char *)(record) + sizeof(struct fp_header)))

/* Record the mark alone; what could not be read is 0. */
static __always_inline int point(const struct mark *mark, u32 flags) {
    struct fp_mark_point *r = FP_RESERVE(struct fp_mark_point, FP_KIND_MARK_POINT);

    if (!r)
        return 0;
    if (flags & FP_READ_FAULT)
        fp_lost(FP_KIND_MARK_POINT, FP_STAGE_READ_FAULT);
    fp_fill(&r->h, FP_KIND_MARK_POINT, flags);
    *MARK_OF(r) = *mark;
    fp_submit(r);
    return 0;
}

static __always_inline int text(const struct mark *mark) {
    struct fp_mark_text *r = FP_RESERVE(struct fp_mark_text, FP_KIND_MARK_TEXT);
    u32 flags = FP_TASK;
    u64 size = mark->len;

    if (!r)
        return 0;
    *MARK_OF(r) = *mark;
    if (size > TEXT_BYTES) {
        size = TEXT_BYTES;
        flags |= FP_TRUNCATED;
    }
    r->len = size;
    fp_clear(r->text, sizeof(r->text));
    /* The verifier has to see the bound at the call, whatever the compiler does with the comparison above. */
    asm volatile("" : "+r"(size));
    if (bpf_probe_read_user(r->text, size & 0xff, (const void *)mark->ptr)) {
        flags |= FP_READ_FAULT;
        fp_lost(FP_KIND_MARK_TEXT, FP_STAGE_READ_FAULT);
    }
    fp_fill(&r->h, FP_KIND_MARK_TEXT, flags);
    fp_submit(r);
    return 0;
}

static __always_inline int members(const struct mark *mark) {
    struct fp_mark_members *r = FP_RESERVE(struct fp_mark_members, FP_KIND_MARK_MEMBERS);
    u32 flags = FP_TASK;
    u64 size = mark->value;

    if (!r)
        return 0;
    *MARK_OF(r) = *mark;
    if (size > MEMBERS) {
        size = MEMBERS;
        flags |= FP_TRUNCATED;
    }
    r->value = size;
    size *= MEMBER_BYTES;
    fp_clear(r->members, sizeof(r->members));
    asm volatile("" : "+r"(size));
    if (size > sizeof(r->members))
        size = sizeof(r->members);
    if (bpf_probe_read_user(r->members, size, (const void *)mark->ptr)) {
        flags |= FP_READ_FAULT;
        fp_lost(FP_KIND_MARK_MEMBERS, FP_STAGE_READ_FAULT);
    }
    fp_fill(&r->h, FP_KIND_MARK_MEMBERS, flags);
    fp_submit(r);
    return 0;
}

int on_prctl(void *ctx) {
    struct mark mark;

    if (FP_FIELD_sys_enter_prctl_option(ctx) != MARK_OPTION || FP_FIELD_sys_enter_prctl_arg2(ctx) != MARK_VERSION)
        return 0;
    /* A later version may send more; what this one knows comes first. */
    if (FP_FIELD_sys_enter_prctl_arg4(ctx) < sizeof(mark) || !fp_is_target())
        return 0;
    /* Cleared by the kernel when it cannot be read. */
    if (bpf_probe_read_user(&mark, sizeof(mark), (const void *)FP_FIELD_sys_enter_prctl_arg3(ctx)))
        return point(&mark, FP_TASK | FP_READ_FAULT);
    if (mark.op == OP_REQUEST_BEGIN || mark.op == OP_ATTRIBUTE)
        return text(&mark);
    if (mark.op == OP_STEP_MEMBERS)
        return members(&mark);
    return point(&mark, FP_TASK);
}
