// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The life of target processes and threads, and the sets of targets that all programs filter by.
 *
 * A thread leaves its set when it exits. A process leaves its own when its last thread exits, where the kernel says which
 * one that is (group_dead, 6.16+); elsewhere it stays in until its number is handed out again. Either way a number cannot
 * come back without a new task, so that no stranger is ever taken for a target.
 */
#include "fp_records.h"
#include "fp_tracepoints.h"
#include "targets.h"

/* include/uapi/linux/sched.h */
#define CLONE_THREAD 0x00010000

/* task:task_newtask runs in the creator, when the child has its number and before it runs. */
int on_fork(void *ctx) {
    u32 child = FP_FIELD_task_newtask_child_tid(ctx);
    u32 clone_flags = FP_FIELD_task_newtask_clone_flags(ctx);
    bool thread = clone_flags & CLONE_THREAD;
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    struct fp_process_fork *r;

    if (!fp_target_join(FP_KIND_PROCESS_FORK)) {
        fp_target_drop_thread(child);
        if (!thread)
            fp_target_drop_process(child);
        return 0;
    }
    if (!fp_target_add(thread ? tgid : child, child))
        fp_lost(FP_KIND_PROCESS_FORK, FP_STAGE_MAP_FULL);
    r = FP_RESERVE(struct fp_process_fork, FP_KIND_PROCESS_FORK);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_PROCESS_FORK, FP_TASK);
    r->child_tid = child;
    r->clone_flags = clone_flags;
    fp_submit(r);
    return 0;
}

/*
 * A thread other than the leader that calls execve takes the leader's number. The leader has exited by then, which took
 * this number out, and the thread's former one is free.
 */
int on_exec(void *ctx) {
    u64 id = bpf_get_current_pid_tgid();
    u32 old_tid = FP_FIELD_sched_process_exec_old_tid(ctx);
    struct fp_process_exec *r;

    if (!fp_target_join(FP_KIND_PROCESS_EXEC))
        return 0;
    if (old_tid != (u32)id) {
        fp_target_drop_thread(old_tid);
        if (!fp_target_add(id >> 32, (u32)id))
            fp_lost(FP_KIND_PROCESS_EXEC, FP_STAGE_MAP_FULL);
    }
    r = FP_RESERVE(struct fp_process_exec, FP_KIND_PROCESS_EXEC);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_PROCESS_EXEC, FP_TASK);
    r->old_tid = old_tid;
    r->reserved = 0;
    fp_submit_urgent(r);
    return 0;
}

int on_exit(void *ctx) {
    u64 id = bpf_get_current_pid_tgid();
    struct fp_process_exit *r;

    if (!fp_target_tgid(id >> 32))
        return 0;
    fp_target_drop_thread((u32)id);
    if (FP_FIELD_sched_process_exit_group_dead(ctx))
        fp_target_drop_process(id >> 32);
    r = FP_RESERVE(struct fp_process_exit, FP_KIND_PROCESS_EXIT);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_PROCESS_EXIT, FP_TASK);
    fp_submit(r);
    return 0;
}

/* include/uapi/asm-generic/mman-common.h */
#define PROT_EXEC 0x4
#define MAP_ANONYMOUS 0x20

/* By tid: when a thread asked for a mapping that is to be announced. One whose thread died meanwhile is pushed out. */
BPF_TABLE("lru_hash", u32, u64, process_mapping, 4096);

int on_map(void *ctx) {
    u64 begin_ns;
    u32 tid;

    if (!(FP_FIELD_sys_enter_mmap_prot(ctx) & PROT_EXEC) || (FP_FIELD_sys_enter_mmap_map_flags(ctx) & MAP_ANONYMOUS))
        return 0;
    if (!fp_target_join(FP_KIND_PROCESS_MAP))
        return 0;
    tid = (u32)bpf_get_current_pid_tgid();
    begin_ns = fp_now();
    if (process_mapping.update(&tid, &begin_ns))
        fp_lost(FP_KIND_PROCESS_MAP, FP_STAGE_MAP_FULL);
    return 0;
}

/* When the mapping is there, so that one look at the process's maps finds it. */
int on_mapped(void *ctx) {
    struct fp_process_map *r;
    u64 *begin_ns;
    u32 tid;

    if (!fp_is_target())
        return 0;
    tid = (u32)bpf_get_current_pid_tgid();
    begin_ns = process_mapping.lookup(&tid);
    if (!begin_ns)
        return 0;
    r = FP_RESERVE(struct fp_process_map, FP_KIND_PROCESS_MAP);
    if (r) {
        fp_fill(&r->h, FP_KIND_PROCESS_MAP, FP_TASK);
        r->begin_ns = *begin_ns;
        fp_submit_urgent(r);
    }
    process_mapping.delete(&tid);
    return 0;
}
