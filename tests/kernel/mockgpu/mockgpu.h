/* SPDX-License-Identifier: GPL-2.0 */
/*
 * mockgpu: DRM devices without hardware, for tests of tracing tools.
 *
 * Each of them has a render node, N rings (each one drm_gpu_scheduler), an
 * entity for each open file and ring, and one CRTC with an hrtimer vblank. A
 * "hardware" job takes the asked time on its ring (the jobs of a ring run one
 * after another) and then signals its hardware fence in hard interrupt
 * context. So the kernel's own gpu_scheduler, dma_fence and drm tracepoints
 * fire, and debugfs mockgpu/truth tells what should have been seen
 * (CLOCK_MONOTONIC ns, which is bpf_ktime_get_ns()).
 */
#ifndef MOCKGPU_H
#define MOCKGPU_H

#include <linux/dma-fence.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/types.h>
#include <drm/drm_crtc.h>
#include <drm/drm_device.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_plane.h>
#include <drm/gpu_scheduler.h>

#define MAX_GPUS 4
#define MAX_RINGS 8
#define MAX_DEPS 2

/* ---- what user space says; tests/kernel/mockgpu_client.py has the same ---- */
#define MOCKGPU_HANG 1		/* the job never ends by itself: the scheduler's timeout ends it */

struct mockgpu_submit {
	__u32 ring, flags;
	__u32 in_syncobj[MAX_DEPS];	/* 0: none */
	__u64 in_point[MAX_DEPS];	/* of a timeline; 0: no timeline */
	__u32 out_syncobj, pad;		/* 0: none */
	__u64 out_point;		/* of a timeline; 0: no timeline */
	__u64 duration_ns;
	__u64 job;			/* out: number in the truth file */
	__u64 ctx, seqno;		/* out: finished fence */
};

struct mockgpu_wait {
	__u32 syncobj, pad;
	__u64 timeout_ns;
};

#define DRM_IOCTL_MOCKGPU_SUBMIT DRM_IOWR(DRM_COMMAND_BASE + 0, struct mockgpu_submit)
#define DRM_IOCTL_MOCKGPU_WAIT DRM_IOW(DRM_COMMAND_BASE + 1, struct mockgpu_wait)

/* ---- truth.c: what was done, one line a job ---- */
struct truth {
	bool submitted;
	u32 gpu, ring, pid;
	u64 id, client;
	void *entity, *fin;
	u64 fctx, fseq, hctx, hseq, dur;
	u64 depctx[MAX_DEPS], depseq[MAX_DEPS];
	u64 push, run, start, done;	/* 0: did not happen */
	u64 timedout;			/* when the scheduler's timeout came, else 0 */
	u64 cancelled;			/* when it was given back without having run, else 0 */
};

int truth_init(void);
void truth_exit(void);
struct truth *truth_new(u64 *number);

/* ---- device.c: an open file ---- */
struct mfile {
	struct kref ref;
	struct mutex lock;
	struct drm_sched_entity ent[MAX_RINGS];
	atomic64_t busy[MAX_RINGS];
};

void mfile_put(struct mfile *mf);

/* ---- ring.c ---- */
struct mring {
	struct drm_gpu_scheduler sched;
	char name[16];
	spinlock_t lock;		/* list, busy */
	spinlock_t flock;		/* fences */
	struct list_head list;		/* what the hardware has, the running one first */
	bool busy;
	struct hrtimer timer;
	u64 ctx, seq, start;
};

struct mjob {
	struct drm_sched_job base;
	struct mfile *mf;
	struct mring *ring;
	struct dma_fence *hwf;
	bool hangs;
	u64 dur;
	struct truth *t;
};

int ring_init(struct mring *r, unsigned int number, struct device *dev, unsigned int hw_limit, unsigned int timeout_ms);
void ring_fini(struct mring *r);
int ring_job_init(struct mjob *j, struct drm_sched_entity *entity, struct drm_file *file);

/* ---- vblank.c ---- */
struct mvblank {
	struct drm_plane plane;
	struct drm_crtc crtc;
	struct hrtimer timer;
	u64 period_ns;
	bool on;
};

int vblank_init(struct drm_device *drm, struct mvblank *v, u64 period_ns);
void vblank_fini(struct mvblank *v);

static inline void mock_timer_init(struct hrtimer *t, enum hrtimer_restart (*fn)(struct hrtimer *))
{
#ifdef HAVE_HRTIMER_SETUP
	hrtimer_setup(t, fn, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
#else
	hrtimer_init(t, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	t->function = fn;
#endif
}

#endif
