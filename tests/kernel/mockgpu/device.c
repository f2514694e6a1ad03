// SPDX-License-Identifier: GPL-2.0
/* Devices, open files and ioctls. */
#include <linux/dma-fence-chain.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_print.h>
#include <drm/drm_syncobj.h>
#include "mockgpu.h"

static unsigned int gpus = 1;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "number of devices (1..4); their rings have equal names");
static unsigned int rings = 2;
module_param(rings, uint, 0444);
MODULE_PARM_DESC(rings, "number of rings of each device (1..8)");
static unsigned int hw_limit = 2;
module_param(hw_limit, uint, 0444);
MODULE_PARM_DESC(hw_limit, "jobs that a ring's hardware queue holds");
static unsigned int timeout_ms;
module_param(timeout_ms, uint, 0444);
MODULE_PARM_DESC(timeout_ms, "time after which the scheduler resets a ring (0: never, and no job may hang)");
static unsigned int vblank_us = 16667;
module_param(vblank_us, uint, 0444);
MODULE_PARM_DESC(vblank_us, "vblank period in microseconds");

struct mdev {
	struct drm_device drm;
	struct platform_device *pdev;
	unsigned int number;
	struct mring ring[MAX_RINGS];
	struct mvblank vblank;
};

static struct mdev *devices[MAX_GPUS];

static void mfile_free(struct kref *k) { kfree(container_of(k, struct mfile, ref)); }
void mfile_put(struct mfile *mf) { kref_put(&mf->ref, mfile_free); }

static int add_dependencies(struct mjob *j, const struct mockgpu_submit *a, struct drm_file *file)
{
	struct dma_fence *dep;
	int i, ret;

	for (i = 0; i < MAX_DEPS; i++) {
		if (!a->in_syncobj[i])
			continue;
		ret = drm_syncobj_find_fence(file, a->in_syncobj[i], a->in_point[i], 0, &dep);
		if (ret)
			return ret;
		j->t->depctx[i] = dep->context;
		j->t->depseq[i] = dep->seqno;
		ret = drm_sched_job_add_dependency(&j->base, dep);	/* takes the reference */
		if (ret)
			return ret;
	}
	return 0;
}

/* Where the finished fence goes. */
struct out {
	struct drm_syncobj *syncobj;
	struct dma_fence_chain *chain;	/* for a timeline's point, else NULL */
};

static int find_out(struct out *out, const struct mockgpu_submit *a, struct drm_file *file)
{
	if (!a->out_syncobj)
		return 0;
	out->syncobj = drm_syncobj_find(file, a->out_syncobj);
	if (!out->syncobj)
		return -ENOENT;
	if (!a->out_point)
		return 0;
	out->chain = dma_fence_chain_alloc();
	if (out->chain)
		return 0;
	drm_syncobj_put(out->syncobj);
	return -ENOMEM;
}

static void give_out(const struct out *out, struct dma_fence *fence, u64 point)
{
	if (!out->syncobj)
		return;
	if (out->chain)
		drm_syncobj_add_point(out->syncobj, out->chain, dma_fence_get(fence), point);
	else
		drm_syncobj_replace_fence(out->syncobj, fence);
	drm_syncobj_put(out->syncobj);
}

/* Push the job and write down which it is; returns a reference to its finished fence. */
static struct dma_fence *push(struct mjob *j, struct mfile *mf, struct drm_file *file)
{
	struct dma_fence *fin;

	kref_get(&mf->ref);
	mutex_lock(&mf->lock);
	drm_sched_job_arm(&j->base);
	fin = dma_fence_get(&j->base.s_fence->finished);
	j->t->pid = task_pid_nr(current);
	j->t->dur = j->dur;
	j->t->entity = &mf->ent[j->t->ring];
	j->t->fin = fin;
	j->t->fctx = fin->context;
	j->t->fseq = fin->seqno;
#ifdef HAVE_JOB_ID
	j->t->id = j->base.id;
#endif
#ifdef HAVE_JOB_CLIENT
	j->t->client = file->client_id;
#endif
	j->t->submitted = true;
	j->t->push = ktime_get_ns();
	drm_sched_entity_push_job(&j->base);
	mutex_unlock(&mf->lock);
	return fin;
}

static int submit(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct mdev *md = container_of(drm, struct mdev, drm);
	struct mockgpu_submit *a = data;
	struct mfile *mf = file->driver_priv;
	struct out out = { };
	struct dma_fence *fin;
	struct mjob *j;
	int ret;

	if (a->ring >= rings || a->duration_ns > 10ull * NSEC_PER_SEC || a->flags & ~MOCKGPU_HANG)
		return -EINVAL;
	if (a->flags & MOCKGPU_HANG && !timeout_ms)
		return -EINVAL;
	j = kzalloc(sizeof(*j), GFP_KERNEL);
	if (!j)
		return -ENOMEM;
	j->ring = &md->ring[a->ring];
	j->dur = a->duration_ns;
	j->hangs = a->flags & MOCKGPU_HANG;
	j->mf = mf;
	j->t = truth_new(&a->job);
	ret = j->t ? ring_job_init(j, &mf->ent[a->ring], file) : -ENOSPC;
	if (ret)
		goto err_free;
	j->t->gpu = md->number;
	j->t->ring = a->ring;
	ret = add_dependencies(j, a, file) ?: find_out(&out, a, file);
	if (ret)
		goto err_job;
	fin = push(j, mf, file);
	give_out(&out, fin, a->out_point);
	a->ctx = fin->context;
	a->seqno = fin->seqno;
	dma_fence_put(fin);
	return 0;
err_job:
	drm_sched_job_cleanup(&j->base);
err_free:
	kfree(j);
	return ret;
}

/* dma_fence_wait() in the caller, as in drivers' own wait ioctls (the syncobj wait does not use it) */
static int wait(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct mockgpu_wait *a = data;
	struct dma_fence *f;
	long ret = drm_syncobj_find_fence(file, a->syncobj, 0, 0, &f);

	if (ret)
		return ret;
	ret = dma_fence_wait_timeout(f, true, nsecs_to_jiffies(a->timeout_ns) + 1);
	dma_fence_put(f);
	return ret < 0 ? ret : ret ? 0 : -ETIME;
}

static const struct drm_ioctl_desc ioctls[] = {
	{ .cmd = DRM_IOCTL_MOCKGPU_SUBMIT, .func = submit, .flags = DRM_RENDER_ALLOW, .name = "MOCKGPU_SUBMIT" },
	{ .cmd = DRM_IOCTL_MOCKGPU_WAIT, .func = wait, .flags = DRM_RENDER_ALLOW, .name = "MOCKGPU_WAIT" },
};

static int open_file(struct drm_device *drm, struct drm_file *file)
{
	struct mdev *md = container_of(drm, struct mdev, drm);
	struct mfile *mf = kzalloc(sizeof(*mf), GFP_KERNEL);
	int i, ret;

	if (!mf)
		return -ENOMEM;
	kref_init(&mf->ref);
	mutex_init(&mf->lock);
	for (i = 0; i < rings; i++) {
		struct drm_gpu_scheduler *s = &md->ring[i].sched;

		ret = drm_sched_entity_init(&mf->ent[i], DRM_SCHED_PRIORITY_NORMAL, &s, 1, NULL);
		if (ret) {
			while (i--)
				drm_sched_entity_destroy(&mf->ent[i]);
			kfree(mf);
			return ret;
		}
	}
	file->driver_priv = mf;
	return 0;
}

static void close_file(struct drm_device *drm, struct drm_file *file)
{
	struct mfile *mf = file->driver_priv;
	int i;

	for (i = 0; i < rings; i++)
		drm_sched_entity_destroy(&mf->ent[i]);
	mfile_put(mf);
}

#ifdef HAVE_SHOW_FDINFO
static void fdinfo(struct drm_printer *p, struct drm_file *file)
{
	struct mfile *mf = file->driver_priv;
	int i;

	for (i = 0; i < rings; i++)
		drm_printf(p, "drm-engine-ring%d:\t%lld ns\n", i, atomic64_read(&mf->busy[i]));
}
#endif

static const struct file_operations file_ops = {
	.owner = THIS_MODULE,
	DRM_GEM_FOPS,
#ifdef HAVE_SHOW_FDINFO
	.show_fdinfo = drm_show_fdinfo,
#endif
};

static const struct drm_driver driver = {
	.driver_features = DRIVER_GEM | DRIVER_RENDER | DRIVER_SYNCOBJ | DRIVER_SYNCOBJ_TIMELINE | DRIVER_MODESET,
	.open = open_file,
	.postclose = close_file,
	.ioctls = ioctls,
	.num_ioctls = ARRAY_SIZE(ioctls),
	.fops = &file_ops,
#ifdef HAVE_SHOW_FDINFO
	.show_fdinfo = fdinfo,
#endif
	.name = "mockgpu",
	.desc = "mock GPU for tracing tests",
#ifdef HAVE_DRIVER_DATE
	.date = "20260101",
#endif
	.major = 1,
};

static int mock_setup(struct mdev *md, unsigned int number)
{
	int i, ret;

	md->number = number;
	ret = vblank_init(&md->drm, &md->vblank, vblank_us * 1000ull);
	if (ret)
		return ret;
	for (i = 0; i < rings; i++) {
		ret = ring_init(&md->ring[i], i, md->drm.dev, hw_limit, timeout_ms);
		if (ret)
			goto err;
	}
	ret = drm_dev_register(&md->drm, 0);
	if (!ret)
		return 0;
err:
	while (i--)
		ring_fini(&md->ring[i]);
	return ret;
}

static int mock_create(unsigned int number)
{
	struct platform_device *pdev = platform_device_register_simple("mockgpu", number, NULL, 0);
	struct mdev *md;
	int ret;

	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	if (!devres_open_group(&pdev->dev, NULL, GFP_KERNEL)) {
		ret = -ENOMEM;
		goto err;
	}
	md = devm_drm_dev_alloc(&pdev->dev, &driver, struct mdev, drm);
	if (IS_ERR(md)) {
		ret = PTR_ERR(md);
		goto err;
	}
	md->pdev = pdev;
	ret = mock_setup(md, number);
	if (ret)
		goto err;
	devices[number] = md;
	return 0;
err:
	platform_device_unregister(pdev);
	return ret;
}

static void mock_destroy(struct mdev *md)
{
	struct platform_device *pdev = md->pdev;
	int i;

	drm_dev_unregister(&md->drm);
	vblank_fini(&md->vblank);
	for (i = 0; i < rings; i++)
		ring_fini(&md->ring[i]);
	devres_release_group(&pdev->dev, NULL);
	platform_device_unregister(pdev);
}

static void destroy_all(void)
{
	int i;

	for (i = 0; i < MAX_GPUS; i++)
		if (devices[i])
			mock_destroy(devices[i]);
	rcu_barrier();
	truth_exit();
}

static int __init mockgpu_init(void)
{
	int i, ret;

	gpus = clamp(gpus, 1u, (unsigned int)MAX_GPUS);
	rings = clamp(rings, 1u, (unsigned int)MAX_RINGS);
	ret = truth_init();
	if (ret)
		return ret;
	for (i = 0; i < gpus; i++) {
		ret = mock_create(i);
		if (ret) {
			destroy_all();
			return ret;
		}
	}
	return 0;
}

static void __exit mockgpu_exit(void) { destroy_all(); }

module_init(mockgpu_init);
module_exit(mockgpu_exit);
MODULE_DESCRIPTION("mock GPUs for tracing tests");
MODULE_LICENSE("GPL");
