// SPDX-License-Identifier: GPL-2.0
/* What the stand-in did, for tests to compare with what was recorded: debugfs nvidia_standin/truth. */
#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include "standin.h"

#define MAX_COUNTS 2048
#define MAX_WAITS 4096
#define MAX_INTERRUPTS 8192

struct count {
	const char *what;
	u32 tgid, place, control;
	u64 number, count;
	s64 status, rm_status;
};

struct interrupt {
	const char *what;
	int irq;
	unsigned int cpu, ended;
	u64 begin_ns, end_ns;
};

static struct count *counts;
static struct wait_truth *waits;
static struct interrupt *interrupts;
static unsigned int used, waited;
static u64 dropped;
static atomic_t interrupted;
static DEFINE_SPINLOCK(lock);
static struct dentry *folder;

static bool same(const struct count *a, const struct count *b)
{
	return a->what == b->what && a->tgid == b->tgid && a->place == b->place && a->control == b->control &&
	       a->number == b->number && a->status == b->status && a->rm_status == b->rm_status;
}

/* One more of a thing that the current process did; equal things are one line. `what` is a literal of one place. */
void truth_count(const char *what, unsigned int place, u64 number, u32 control, s64 status, s64 rm_status)
{
	struct count one = { what, current->tgid, place, control, number, 1, status, rm_status };
	unsigned int i;

	spin_lock(&lock);
	for (i = 0; i < used && !same(&counts[i], &one); i++)
		;
	if (i < used)
		counts[i].count++;
	else if (i < MAX_COUNTS)
		counts[used++] = one;
	else
		dropped++;
	spin_unlock(&lock);
}

/* A line for a wait of the current process, NULL if the file is full. */
struct wait_truth *truth_wait(void)
{
	struct wait_truth *found = NULL;

	spin_lock(&lock);
	if (waited < MAX_WAITS) {
		found = &waits[waited++];
		found->tgid = current->tgid;
	}
	spin_unlock(&lock);
	return found;
}

static void note(const char *what, int irq, u64 begin_ns, u64 end_ns, unsigned int ended)
{
	int n = atomic_inc_return(&interrupted) - 1;

	if (n < MAX_INTERRUPTS)
		interrupts[n] = (struct interrupt){ what, irq, raw_smp_processor_id(), ended, begin_ns, end_ns };
}

void truth_interrupt(int irq, u64 begin_ns, u64 end_ns, unsigned int ended)
{
	note("interrupt", irq, begin_ns, end_ns, ended);
}

/* The second half of an interrupt, in its thread. */
void truth_half(int irq, u64 begin_ns, u64 end_ns)
{
	note("half", irq, begin_ns, end_ns, 0);
}

static int truth_show(struct seq_file *m, void *v)
{
	unsigned int i, n = min_t(unsigned int, atomic_read(&interrupted), MAX_INTERRUPTS);

	for (i = 0; i < used; i++) {
		struct count *c = &counts[i];

		seq_printf(m, "%s tgid=%u place=%u number=%llu control=%u status=%lld rm_status=%lld count=%llu\n", c->what,
			   c->tgid, c->place, c->number, c->control, c->status, c->rm_status, c->count);
	}
	for (i = 0; i < waited; i++)
		seq_printf(m, "wait tgid=%u raised_ns=%llu irq_ns=%llu told_ns=%llu\n", waits[i].tgid, waits[i].raised_ns,
			   waits[i].irq_ns, waits[i].told_ns);
	for (i = 0; i < n; i++)
		seq_printf(m, "%s irq=%d cpu=%u begin_ns=%llu end_ns=%llu ended=%u\n", interrupts[i].what,
			   interrupts[i].irq, interrupts[i].cpu, interrupts[i].begin_ns, interrupts[i].end_ns,
			   interrupts[i].ended);
	seq_printf(m, "dropped count=%llu\n", dropped);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(truth);

int truth_init(void)
{
	counts = kvcalloc(MAX_COUNTS, sizeof(*counts), GFP_KERNEL);
	waits = kvcalloc(MAX_WAITS, sizeof(*waits), GFP_KERNEL);
	interrupts = kvcalloc(MAX_INTERRUPTS, sizeof(*interrupts), GFP_KERNEL);
	if (!counts || !waits || !interrupts) {
		truth_exit();
		return -ENOMEM;
	}
	folder = debugfs_create_dir("nvidia_standin", NULL);
	debugfs_create_file("truth", 0400, folder, NULL, &truth_fops);
	return 0;
}

void truth_exit(void)
{
	debugfs_remove_recursive(folder);
	kvfree(counts);
	kvfree(waits);
	kvfree(interrupts);
}
