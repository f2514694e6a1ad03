#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# probe.sh INCLUDE: -D flags for the DRM interfaces of these headers. Stable kernels backport them: versions do not tell.
scheduler=$1/drm/gpu_scheduler.h
part() { sed -n "/$1/,/$2/p" "$scheduler"; }
has() { grep -q -e "$1" && printf ' -D%s' "$2"; }
has 'struct drm_sched_init_args {' HAVE_INIT_ARGS < "$scheduler"
part '^struct drm_sched_init_args {' '^};' | has 'num_rqs;' HAVE_INIT_ARGS_NUM_RQS
part '^int drm_sched_job_init(' ';' | has 'u32 credits' HAVE_JOB_CREDITS
part '^int drm_sched_job_init(' ';' | has 'drm_client_id' HAVE_JOB_CLIENT
part '^struct drm_sched_job {' '^};' | has '[[:space:]]id;' HAVE_JOB_ID
part '^void drm_sched_start(' ';' | has 'bool full_recovery' HAVE_START_FULL
part '^void drm_sched_start(' ';' | has 'int errno' HAVE_START_ERRNO
has 'DRM_GPU_SCHED_STAT_RESET' HAVE_STAT_RESET < "$scheduler"
has 'char \*date;' HAVE_DRIVER_DATE < "$1/drm/drm_drv.h"
has '(\*show_fdinfo)' HAVE_SHOW_FDINFO < "$1/drm/drm_drv.h"
has 'hrtimer_setup(struct' HAVE_HRTIMER_SETUP < "$1/linux/hrtimer.h"
echo
