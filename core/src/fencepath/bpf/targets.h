// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Changing the sets of target processes and threads. Only the layer `process` does: what a target creates becomes a target
 * before it runs, and a number that is handed out again no longer means its former owner.
 *
 * Macro: FP_JOINING_FD  array with one struct fp_joining: who is in that cgroup becomes a target too. Without it nobody does.
 */
#ifndef FENCEPATH_TARGETS_H
#define FENCEPATH_TARGETS_H

#include "fencepath.h"

/* Deepest cgroup, counted from the root, that is found. */
#define FP_CGROUP_LEVELS 32

struct fp_joining {
    u64 cgroup;
    u64 self;
};

/* Whether the current task, not the recorder's, is in the cgroup that is recorded, or below it. Its level is not asked. */
static __always_inline bool fp_in_cgroup(u32 tgid) {
#ifdef FP_JOINING_FD
    u32 first = 0;
    struct fp_joining *joining = bpf_map_lookup_elem(FP_MAP(FP_JOINING_FD), &first);

    if (!joining || tgid == joining->self)
        return false;
    for (int level = 0; level < FP_CGROUP_LEVELS; level++) {
        u64 id = bpf_get_current_ancestor_cgroup_id(level);

        if (id == joining->cgroup)
            return true;
        if (!id)
            return false;
    }
#endif
    return false;
}

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

/*
 * Whether the current task is a target's. One that is in the cgroup that is recorded becomes it, with this thread alone:
 * user space finds its others.
 */
static __always_inline bool fp_target_join(u32 kind) {
    u64 id = bpf_get_current_pid_tgid();

    if (fp_target_tgid(id >> 32))
        return true;
    if (!fp_in_cgroup(id >> 32))
        return false;
    if (!fp_target_add(id >> 32, (u32)id))
        fp_lost(kind, FP_STAGE_MAP_FULL);
    return true;
}

#endif
