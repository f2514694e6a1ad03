// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Changing the sets of target processes and threads. Only the layer `process` does: what a target creates becomes a target
 * before it runs, and a number that is handed out again no longer means its former owner.
 */
#ifndef FENCEPATH_TARGETS_H
#define FENCEPATH_TARGETS_H

#include "fencepath.h"

#if FP_ALL_PROCESSES

static __always_inline bool fp_target_add(u32 tgid, u32 tid) {
    return true;
}

static __always_inline void fp_target_drop_thread(u32 tid) {}

static __always_inline void fp_target_drop_process(u32 tgid) {}

#else

/* Make a thread, and its process, targets. false: there is no room for one of them. */
static __always_inline bool fp_target_add(u32 tgid, u32 tid) {
    u32 value = tgid;

    if (bpf_map_update_elem(FP_MAP(FP_TGIDS_FD), &tgid, &value, BPF_ANY))
        return false;
    return bpf_map_update_elem(FP_MAP(FP_TIDS_FD), &tid, &value, BPF_ANY) == 0;
}

/* Take a thread out; nothing happens if it is not in. */
static __always_inline void fp_target_drop_thread(u32 tid) {
    bpf_map_delete_elem(FP_MAP(FP_TIDS_FD), &tid);
}

/* Take a process out, not its threads; nothing happens if it is not in. */
static __always_inline void fp_target_drop_process(u32 tgid) {
    bpf_map_delete_elem(FP_MAP(FP_TGIDS_FD), &tgid);
}

#endif

#endif
