// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * All programs of this layer come from its call table (functions.py): an entry and a return program for each distinct
 * way to copy a call. CUDA needs nothing of its own in the kernel; what calls mean is worked out from the recording.
 */
#include "fp_calls.h"
