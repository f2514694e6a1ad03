// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Jobs of targets, from submission to the ring, and what the scheduler's thread does for them on the way.
 *
 * The scheduler's thread is nobody's: a job is a target's if a target has queued one on its fence context. A context is of
 * one entity for the entity's life, and the kernel never gives one out twice.
 *
 * Macros given by -D:
 *   AMDGPU_STEPS    1: record flushes and pipeline waits too
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

struct amdgpu_job {
    u64 context;
    u64 seqno;
};

BPF_TABLE("lru_hash", u64, u8, amdgpu_contexts, 8192);
/* The job that a thread of the scheduler is handing over, by tid. */
BPF_TABLE("lru_hash", u32, struct amdgpu_job, amdgpu_handed, 1024);

/* Runs in the ioctl, before the job is queued. */
int on_cs(void *ctx) {
    u64 context = FP_FIELD_amdgpu_cs_ioctl_fence_context(ctx);
    struct fp_amdgpu_cs *r;
    u8 one = 1;

    if (!fp_is_target())
        return 0;
    if (amdgpu_contexts.update(&context, &one))
        fp_lost(FP_KIND_AMDGPU_RUN, FP_STAGE_MAP_FULL);
    r = FP_RESERVE(struct fp_amdgpu_cs, FP_KIND_AMDGPU_CS);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_CS, FP_TASK);
    r->fence_context = context;
    r->fence_seqno = FP_FIELD_amdgpu_cs_ioctl_fence_seqno(ctx);
    r->ibs = FP_FIELD_amdgpu_cs_ioctl_ibs(ctx);
    r->h.flags |= FP_FIELD_amdgpu_cs_ioctl_ring(ctx, r->ring);
    fp_submit(r);
    return 0;
}

int on_run(void *ctx) {
    struct amdgpu_job job = {};
    struct fp_amdgpu_run *r;
    u32 tid = bpf_get_current_pid_tgid();

    job.context = FP_FIELD_amdgpu_sched_run_job_fence_context(ctx);
    job.seqno = FP_FIELD_amdgpu_sched_run_job_fence_seqno(ctx);
    if (!amdgpu_contexts.lookup(&job.context)) {
        amdgpu_handed.delete(&tid);
        return 0;
    }
    amdgpu_handed.update(&tid, &job);
    r = FP_RESERVE(struct fp_amdgpu_run, FP_KIND_AMDGPU_RUN);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_RUN, 0);
    r->fence_context = job.context;
    r->fence_seqno = job.seqno;
    r->ibs = FP_FIELD_amdgpu_sched_run_job_ibs(ctx);
    r->h.flags |= FP_FIELD_amdgpu_sched_run_job_ring(ctx, r->ring);
    fp_submit(r);
    return 0;
}

#if AMDGPU_STEPS

/* Between one run and the next of its thread, so it is for the job of the former. */
int on_flush(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct amdgpu_job *job = amdgpu_handed.lookup(&tid);
    struct fp_amdgpu_vm_flush *r;

    if (!job)
        return 0;
    r = FP_RESERVE(struct fp_amdgpu_vm_flush, FP_KIND_AMDGPU_VM_FLUSH);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_VM_FLUSH, 0);
    r->fence_context = job->context;
    r->fence_seqno = job->seqno;
    r->page_directory = FP_FIELD_amdgpu_vm_flush_page_directory(ctx);
    r->vmid = FP_FIELD_amdgpu_vm_flush_vmid(ctx);
    r->hub = FP_FIELD_amdgpu_vm_flush_hub(ctx);
    fp_submit(r);
    return 0;
}

int on_pipe_sync(void *ctx) {
    u32 tid = bpf_get_current_pid_tgid();
    struct amdgpu_job *job = amdgpu_handed.lookup(&tid);
    struct fp_amdgpu_pipe_sync *r;

    if (!job)
        return 0;
    r = FP_RESERVE(struct fp_amdgpu_pipe_sync, FP_KIND_AMDGPU_PIPE_SYNC);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_AMDGPU_PIPE_SYNC, 0);
    r->fence_context = job->context;
    r->fence_seqno = job->seqno;
    r->dependency_context = FP_FIELD_amdgpu_ib_pipe_sync_dependency_context(ctx);
    r->dependency_seqno = FP_FIELD_amdgpu_ib_pipe_sync_dependency_seqno(ctx);
    fp_submit(r);
    return 0;
}

#endif
