// SPDX-License-Identifier: GPL-2.0
/* Rings: the scheduler's backend, and the "hardware" that runs one job of a ring at a time. */
#include <linux/slab.h>
#include <drm/drm_file.h>
#include <trace/events/dma_fence.h>
#include "mockgpu.h"

/* What the hardware holds of a job. */
struct mfence {
	struct dma_fence base;		/* first: dma_fence_free() frees it */
	struct list_head link;
	struct mfile *mf;
	bool hangs;
	u64 dur;
	struct truth *t;
};

static const char *driver_name(struct dma_fence *f) { return "mockgpu"; }
static const char *timeline_name(struct dma_fence *f)
{
	static const char * const names[MAX_RINGS] = { "hw0", "hw1", "hw2", "hw3", "hw4", "hw5", "hw6", "hw7" };

	return names[container_of(f, struct mfence, base)->t->ring];
}
static bool enable_signaling(struct dma_fence *f) { return true; }	/* so that dma_fence_enable_signal fires */

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = driver_name, .get_timeline_name = timeline_name, .enable_signaling = enable_signaling,
};

/* Let the first job run, if there is one; with the ring's lock held. Returns when it ends, 0 for never. */
static u64 start_first(struct mring *r, u64 now)
{
	struct mfence *f = list_first_entry_or_null(&r->list, struct mfence, link);

	r->busy = f;
	r->start = now;
	if (!f)
		return 0;
	f->t->start = now;
	return f->hangs ? 0 : now + f->dur;
}

static void end_fence(struct mfence *f, u64 now, int error)
{
	if (!error) {
		f->t->done = now;
		atomic64_add(now - f->t->start, &f->mf->busy[f->t->ring]);
	} else {
		dma_fence_set_error(&f->base, error);
	}
	mfile_put(f->mf);
	dma_fence_signal(&f->base);
	dma_fence_put(&f->base);
}

static enum hrtimer_restart end_of_job(struct hrtimer *t)
{
	struct mring *r = container_of(t, struct mring, timer);
	u64 now = ktime_get_ns(), next = 0;
	struct mfence *f;
	unsigned long flags;

	spin_lock_irqsave(&r->lock, flags);
	f = list_first_entry_or_null(&r->list, struct mfence, link);
	if (f) {
		list_del(&f->link);
		next = start_first(r, now);
		if (next)
			hrtimer_set_expires(t, ns_to_ktime(next));
	}
	spin_unlock_irqrestore(&r->lock, flags);
	if (f)
		end_fence(f, now, 0);
	return next ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

static struct dma_fence *run_job(struct drm_sched_job *sj)
{
	struct mjob *j = container_of(sj, struct mjob, base);
	struct mfence *f = kzalloc(sizeof(*f), GFP_KERNEL);
	struct mring *r = j->ring;
	unsigned long flags;
	u64 end;

	if (!f)
		return ERR_PTR(-ENOMEM);
	f->t = j->t;
	f->dur = j->dur;
	f->hangs = j->hangs;
	f->mf = j->mf;
	kref_get(&f->mf->ref);
	dma_fence_init(&f->base, &fence_ops, &r->flock, r->ctx, ++r->seq);
	f->t->hctx = r->ctx;
	f->t->hseq = r->seq;
	j->hwf = dma_fence_get(&f->base);	/* the job's */
	dma_fence_get(&f->base);		/* the hardware's */

	trace_dma_fence_emit(&f->base);		/* as drivers with rings do */
	spin_lock_irqsave(&r->lock, flags);
	f->t->run = ktime_get_ns();
	list_add_tail(&f->link, &r->list);
	if (!r->busy) {
		end = start_first(r, f->t->run);
		if (end)
			hrtimer_start(&r->timer, ns_to_ktime(end), HRTIMER_MODE_ABS);
	}
	spin_unlock_irqrestore(&r->lock, flags);
	return &f->base;			/* the scheduler's */
}

/* Take away everything that the hardware has, as a reset of a GPU does. */
static void reset(struct mring *r)
{
	struct mfence *f, *next;
	LIST_HEAD(taken);
	unsigned long flags;
	int error = -ETIME;

	hrtimer_cancel(&r->timer);
	spin_lock_irqsave(&r->lock, flags);
	list_splice_init(&r->list, &taken);
	r->busy = false;
	spin_unlock_irqrestore(&r->lock, flags);
	list_for_each_entry_safe(f, next, &taken, link) {
		end_fence(f, ktime_get_ns(), error);
		error = -ECANCELED;		/* those behind the one that hung */
	}
}

static enum drm_gpu_sched_stat timedout(struct drm_sched_job *sj)
{
	struct mjob *j = container_of(sj, struct mjob, base);

	j->t->timedout = ktime_get_ns();
	drm_sched_stop(&j->ring->sched, sj);
	reset(j->ring);
	if (!dma_fence_is_signaled(&sj->s_fence->finished))
		dma_fence_set_error(&sj->s_fence->finished, -ETIME);
#if defined(HAVE_START_FULL)
	drm_sched_start(&j->ring->sched, true);
#elif defined(HAVE_START_ERRNO)
	drm_sched_start(&j->ring->sched, -ETIME);
#else
	drm_sched_start(&j->ring->sched);
#endif
#ifdef HAVE_STAT_RESET
	return DRM_GPU_SCHED_STAT_RESET;
#else
	return DRM_GPU_SCHED_STAT_NOMINAL;
#endif
}

static void free_job(struct drm_sched_job *sj)
{
	struct mjob *j = container_of(sj, struct mjob, base);

	if (!j->hwf)				/* its process died before it ran */
		j->t->cancelled = ktime_get_ns();
	drm_sched_job_cleanup(sj);
	dma_fence_put(j->hwf);
	mfile_put(j->mf);
	kfree(j);
}

static const struct drm_sched_backend_ops backend = {
	.run_job = run_job, .timedout_job = timedout, .free_job = free_job,
};

int ring_job_init(struct mjob *j, struct drm_sched_entity *entity, struct drm_file *file)
{
#if defined(HAVE_JOB_CLIENT)
	return drm_sched_job_init(&j->base, entity, 1, file, file->client_id);
#elif defined(HAVE_JOB_CREDITS)
	return drm_sched_job_init(&j->base, entity, 1, file);
#else
	return drm_sched_job_init(&j->base, entity, file);
#endif
}

int ring_init(struct mring *r, unsigned int number, struct device *dev, unsigned int hw_limit, unsigned int timeout_ms)
{
	const long timeout = timeout_ms ? msecs_to_jiffies(timeout_ms) : MAX_SCHEDULE_TIMEOUT;

	snprintf(r->name, sizeof(r->name), "ring%u", number);
	spin_lock_init(&r->lock);
	spin_lock_init(&r->flock);
	INIT_LIST_HEAD(&r->list);
	r->ctx = dma_fence_context_alloc(1);
	mock_timer_init(&r->timer, end_of_job);
#ifdef HAVE_INIT_ARGS
	{
		struct drm_sched_init_args args = {
			.ops = &backend, .credit_limit = hw_limit, .timeout = timeout, .name = r->name, .dev = dev,
#ifdef HAVE_INIT_ARGS_NUM_RQS
			.num_rqs = DRM_SCHED_PRIORITY_COUNT,
#endif
		};
		return drm_sched_init(&r->sched, &args);
	}
#elif defined(HAVE_JOB_CREDITS)
	return drm_sched_init(&r->sched, &backend, NULL, DRM_SCHED_PRIORITY_COUNT, hw_limit, 0, timeout, NULL, NULL,
			      r->name, dev);
#else
	return drm_sched_init(&r->sched, &backend, hw_limit, 0, timeout, NULL, NULL, r->name, dev);
#endif
}

void ring_fini(struct mring *r)
{
	drm_sched_fini(&r->sched);
	hrtimer_cancel(&r->timer);
}
