// SPDX-License-Identifier: GPL-2.0
/* One CRTC whose vertical blanks come from an hrtimer. */
#include <drm/drm_fourcc.h>
#include <drm/drm_managed.h>
#include <drm/drm_mode_config.h>
#include <drm/drm_vblank.h>
#include "mockgpu.h"

static struct mvblank *of_crtc(struct drm_crtc *crtc) { return container_of(crtc, struct mvblank, crtc); }

static enum hrtimer_restart blank(struct hrtimer *t)
{
	struct mvblank *v = container_of(t, struct mvblank, timer);

	if (!READ_ONCE(v->on))
		return HRTIMER_NORESTART;
	drm_crtc_handle_vblank(&v->crtc);
	hrtimer_forward_now(t, ns_to_ktime(v->period_ns));
	return HRTIMER_RESTART;
}

static int enable(struct drm_crtc *crtc)
{
	struct mvblank *v = of_crtc(crtc);

	WRITE_ONCE(v->on, true);
	hrtimer_start(&v->timer, ns_to_ktime(v->period_ns), HRTIMER_MODE_REL);
	return 0;
}

static void disable(struct drm_crtc *crtc)
{
	struct mvblank *v = of_crtc(crtc);

	WRITE_ONCE(v->on, false);
	hrtimer_try_to_cancel(&v->timer);
}

static int no_config(struct drm_mode_set *set, struct drm_modeset_acquire_ctx *ctx) { return -EOPNOTSUPP; }
static int no_disable(struct drm_plane *p, struct drm_modeset_acquire_ctx *ctx) { return 0; }

static const struct drm_crtc_funcs crtc_funcs = {
	.destroy = drm_crtc_cleanup, .set_config = no_config, .enable_vblank = enable, .disable_vblank = disable,
};
static const struct drm_plane_funcs plane_funcs = { .destroy = drm_plane_cleanup, .disable_plane = no_disable };
static const struct drm_mode_config_funcs config_funcs = { };
static const u32 formats[] = { DRM_FORMAT_XRGB8888 };

int vblank_init(struct drm_device *drm, struct mvblank *v, u64 period_ns)
{
	int ret = drmm_mode_config_init(drm);

	if (ret)
		return ret;
	drm->mode_config.funcs = &config_funcs;
	v->period_ns = period_ns;
	mock_timer_init(&v->timer, blank);
	ret = drm_universal_plane_init(drm, &v->plane, 1, &plane_funcs, formats, 1, NULL, DRM_PLANE_TYPE_PRIMARY, NULL);
	if (ret)
		return ret;
	ret = drm_crtc_init_with_planes(drm, &v->crtc, &v->plane, NULL, &crtc_funcs, NULL);
	return ret ?: drm_vblank_init(drm, 1);
}

void vblank_fini(struct mvblank *v)
{
	drm_crtc_vblank_off(&v->crtc);
	hrtimer_cancel(&v->timer);
}
