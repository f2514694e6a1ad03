// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Threads of targets on their CPUs, who wakes them, and interrupts that touch them.
 *
 * Macros given by -D:
 *   HOST_INTERRUPTS    1: record interrupts too
 *   HOST_TASK_PID, HOST_TASK_CPU, HOST_ACTION_NAME    offsets, where wake-ups and interrupts are taken from the tracepoints
 *                      themselves: they come in the middle of other programs, and a program on a record is then skipped
 *   HOST_TASK_CFS_RQ, HOST_CFS_RQ_RQ, HOST_RQ_TO_CURRENT, HOST_RQ_TO_COUNT    see preempt_count.py; absent if not known
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/*
 * Bits of the preempt count that mean interrupt context: a soft interrupt is being served (bit 8; the rest of its byte counts
 * how often they were disabled), and everything above, hard interrupts and NMIs wherever they are. Bit 31 is no count.
 */
#define IN_INTERRUPT 0x7fff0100

#ifdef HOST_TASK_PID

static __always_inline u32 read_number(u64 address) {
    u32 number = 0;

    bpf_probe_read_kernel(&number, sizeof(number), (const void *)address);
    return number;
}

/* sched_waking: struct task_struct *p */
#define WAKEE_TID(ctx) read_number(FP_RAW_ARGUMENT(ctx, 0) + HOST_TASK_PID)
#define TARGET_CPU(ctx) read_number(FP_RAW_ARGUMENT(ctx, 0) + HOST_TASK_CPU)
/* irq_handler_entry: int irq, struct irqaction *action; irq_handler_exit: int irq, ... */
#define ENTRY_IRQ(ctx) ((s32)FP_RAW_ARGUMENT(ctx, 0))
#define ENTRY_NAME(ctx, into) read_name(FP_RAW_ARGUMENT(ctx, 1), into, sizeof(into))
#define EXIT_IRQ(ctx) ((s32)FP_RAW_ARGUMENT(ctx, 0))

/* The name of an interrupt's handler, padded with NULs; returns record flags. */
static __always_inline u32 read_name(u64 action, char *into, u32 size) {
    u64 at = 0;
    int length;

    fp_clear(into, size);
    bpf_probe_read_kernel(&at, sizeof(at), (const void *)(action + HOST_ACTION_NAME));
    length = bpf_probe_read_kernel_str(into, size, (const void *)at);
    return length < 0 ? FP_READ_FAULT : length == size ? FP_TRUNCATED : 0;
}

#else

#define WAKEE_TID(ctx) FP_FIELD_sched_waking_wakee_tid(ctx)
#define TARGET_CPU(ctx) FP_FIELD_sched_waking_target_cpu(ctx)
#define ENTRY_IRQ(ctx) FP_FIELD_irq_handler_entry_irq(ctx)
#define ENTRY_NAME(ctx, into) FP_FIELD_irq_handler_entry_name(ctx, into)
#define EXIT_IRQ(ctx) FP_FIELD_irq_handler_exit_irq(ctx)

#endif

/* What is known of one CPU. Its interrupt handlers do not nest, so there is one interrupt at a time. */
struct host_cpu {
    u64 run_queue;    /* address of its struct rq, 0 if not known yet */
    u64 begin_ns;     /* of the interrupt handler that runs, 0 if none */
    s32 irq;
    u32 woke;         /* the handler has woken a target */
    u32 name_flags;
    char name[28];
};

BPF_PERCPU_ARRAY(host_cpus, struct host_cpu, 1);

static __always_inline struct host_cpu *this_cpu(void) {
    u32 zero = 0;

    return host_cpus.lookup(&zero);
}

/* The idle task, which is every CPU's thread 0, is nobody's. */
static __always_inline bool is_target(u32 tid) {
    return tid && fp_target_tid(tid);
}

#ifdef HOST_RQ_TO_COUNT

static __always_inline u64 read_word(u64 address) {
    u64 word = 0;

    bpf_probe_read_kernel(&word, sizeof(word), (const void *)address);
    return word;
}

/* The run queue of this CPU, from the task that is current on it; 0 if the way does not lead there. */
static __always_inline u64 find_run_queue(void) {
    u64 task = bpf_get_current_task();
    u64 run_queue = read_word(read_word(task + HOST_TASK_CFS_RQ) + HOST_CFS_RQ_RQ);

    return read_word(run_queue + HOST_RQ_TO_CURRENT) == task ? run_queue : 0;
}

/* Whether the current task itself does this, rather than an interrupt that came while it ran. */
static __always_inline bool in_task(struct host_cpu *cpu) {
    u32 count = IN_INTERRUPT;

    if (!cpu->run_queue)
        cpu->run_queue = find_run_queue();
    if (!cpu->run_queue)
        return false;
    bpf_probe_read_kernel(&count, sizeof(count), (const void *)(cpu->run_queue + HOST_RQ_TO_COUNT));
    /* The idle task runs callbacks of other CPUs that would else have been an interrupt. */
    return !(count & IN_INTERRUPT) && (u32)bpf_get_current_pid_tgid();
}

#else

static __always_inline bool in_task(struct host_cpu *cpu) {
    return false;
}

#endif

/* Runs with the thread that leaves the CPU as the current task. */
int on_switch(void *ctx) {
    u32 next_tid = FP_FIELD_sched_switch_next_tid(ctx);
    u32 tid = bpf_get_current_pid_tgid();
    struct fp_host_switch *r;

    if (!is_target(tid) && !is_target(next_tid))
        return 0;
    r = FP_RESERVE(struct fp_host_switch, FP_KIND_HOST_SWITCH);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_HOST_SWITCH, tid ? FP_TASK : 0);
    r->next_tid = next_tid;
    r->prev_state = FP_FIELD_sched_switch_prev_state(ctx);
    r->prev_prio = FP_FIELD_sched_switch_prev_prio(ctx);
    r->next_prio = FP_FIELD_sched_switch_next_prio(ctx);
    fp_submit(r);
    return 0;
}

/* Runs on the CPU of the waker. */
int on_waking(void *ctx) {
    u32 wakee_tid = WAKEE_TID(ctx);
    struct fp_host_waking *r;
    struct host_cpu *cpu;

    if (!is_target(wakee_tid))
        return 0;
    cpu = this_cpu();
    if (!cpu)
        return 0;
    cpu->woke = 1;
    r = FP_RESERVE(struct fp_host_waking, FP_KIND_HOST_WAKING);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_HOST_WAKING, in_task(cpu) ? FP_TASK : 0);
    r->wakee_tid = wakee_tid;
    r->target_cpu = TARGET_CPU(ctx);
    r->reserved = 0;
    fp_submit(r);
    return 0;
}

#if HOST_INTERRUPTS

int on_irq_entry(void *ctx) {
    struct host_cpu *cpu = this_cpu();

    if (!cpu)
        return 0;
    cpu->irq = ENTRY_IRQ(ctx);
    cpu->name_flags = ENTRY_NAME(ctx, cpu->name);
    cpu->woke = 0;
    cpu->begin_ns = fp_now();
    return 0;
}

/* Recorded if it took time from a target's thread or woke one: both are known on this CPU, without looking at the device. */
int on_irq_exit(void *ctx) {
    struct host_cpu *cpu = this_cpu();
    struct fp_host_irq *r;
    u64 begin_ns;

    if (!cpu)
        return 0;
    begin_ns = cpu->begin_ns;
    cpu->begin_ns = 0;
    if (!begin_ns || cpu->irq != EXIT_IRQ(ctx))
        return 0;
    if (!cpu->woke && !is_target(bpf_get_current_pid_tgid()))
        return 0;
    r = FP_RESERVE(struct fp_host_irq, FP_KIND_HOST_IRQ);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_HOST_IRQ, cpu->name_flags);
    r->begin_ns = begin_ns;
    r->irq = cpu->irq;
    __builtin_memcpy(r->name, cpu->name, sizeof(r->name));
    fp_submit(r);
    return 0;
}

#endif
