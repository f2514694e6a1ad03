#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# probe.sh INCLUDE: -D flags for the interfaces of these headers. Stable kernels backport them: versions do not tell.
has() { grep -q -e "$1" "$3" && printf ' -D%s' "$2"; }
has 'hrtimer_setup(struct' HAVE_HRTIMER_SETUP "$1/linux/hrtimer.h"
has '__assign_str(dst)' HAVE_ASSIGN_STR_ALONE "$1/trace/stages/stage6_event_callback.h"
echo
