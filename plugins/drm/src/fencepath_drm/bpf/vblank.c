// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Vertical blanks that targets ask to be told of.
 *
 * An event is delivered in an interrupt, to the file that asked. So files are followed by which a target's thread asked,
 * and a pipe's blanks are recorded up to the last frame that was asked for. Events of page flips are delivered to such files too.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/* By address: open files of targets. One that was closed is pushed out in time, or its address is another target's. */
BPF_TABLE("lru_hash", u64, u8, drm_files, 1024);

/* By pipe: the last frame asked for. */
BPF_TABLE("lru_hash", u32, u32, drm_wanted, 64);

/* Frame numbers wrap. */
static __always_inline bool not_after(u32 one, u32 other) {
    return (s32)(other - one) >= 0;
}

int on_queued(void *ctx) {
    u64 file = FP_FIELD_drm_vblank_event_queued_file(ctx);
    u32 crtc = FP_FIELD_drm_vblank_event_queued_crtc(ctx), seq = FP_FIELD_drm_vblank_event_queued_seq(ctx);
    struct fp_drm_vblank_queued *r;
    u32 *wanted;
    u8 one = 1;

    if (!fp_is_target())
        return 0;
    drm_files.update(&file, &one);
    wanted = drm_wanted.lookup(&crtc);
    if (!wanted || not_after(*wanted, seq))
        drm_wanted.update(&crtc, &seq);
    r = FP_RESERVE(struct fp_drm_vblank_queued, FP_KIND_DRM_VBLANK_QUEUED);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_DRM_VBLANK_QUEUED, FP_TASK);
    r->file = file;
    r->crtc = crtc;
    r->seq = seq;
    fp_submit(r);
    return 0;
}

int on_vblank(void *ctx) {
    u32 crtc = FP_FIELD_drm_vblank_event_crtc(ctx), seq = FP_FIELD_drm_vblank_event_seq(ctx);
    struct fp_drm_vblank_event *r;
#if !FP_ALL_PROCESSES
    u32 *wanted = drm_wanted.lookup(&crtc);

    if (!wanted || !not_after(seq, *wanted))
        return 0;
#endif
    r = FP_RESERVE(struct fp_drm_vblank_event, FP_KIND_DRM_VBLANK_EVENT);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_DRM_VBLANK_EVENT, 0);
    r->vblank_ns = FP_FIELD_drm_vblank_event_vblank_ns(ctx);
    r->crtc = crtc;
    r->seq = seq;
    r->high_precision = FP_FIELD_drm_vblank_event_high_precision(ctx);
    r->reserved = 0;
    fp_submit(r);
    return 0;
}

int on_delivered(void *ctx) {
    u64 file = FP_FIELD_drm_vblank_event_delivered_file(ctx);
    struct fp_drm_vblank_delivered *r;

#if !FP_ALL_PROCESSES
    if (!drm_files.lookup(&file))
        return 0;
#endif
    r = FP_RESERVE(struct fp_drm_vblank_delivered, FP_KIND_DRM_VBLANK_DELIVERED);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_DRM_VBLANK_DELIVERED, 0);
    r->file = file;
    r->crtc = FP_FIELD_drm_vblank_event_delivered_crtc(ctx);
    r->seq = FP_FIELD_drm_vblank_event_delivered_seq(ctx);
    fp_submit(r);
    return 0;
}
