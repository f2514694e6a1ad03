// SPDX-License-Identifier: GPL-2.0
/* What the driver did, for tests to compare with what was recorded: debugfs mockgpu/truth. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "mockgpu.h"

#define MAX_TRUTH 8192

static struct truth *truths;
static atomic_t count;
static struct dentry *folder;

/* The next line of the file, or NULL if it is full. */
struct truth *truth_new(u64 *number)
{
	int n = atomic_inc_return(&count) - 1;

	if (n >= MAX_TRUTH)
		return NULL;
	*number = n;
	return &truths[n];
}

static int truth_show(struct seq_file *m, void *v)
{
	int i, n = min(atomic_read(&count), MAX_TRUTH);

	for (i = 0; i < n; i++) {
		struct truth *t = &truths[i];

		if (!t->submitted)
			continue;
		seq_printf(m, "job=%d gpu=%u ring=ring%u pid=%u id=%llu client=%llu entity=0x%lx finished=0x%lx ",
			   i, t->gpu, t->ring, t->pid, t->id, t->client, (unsigned long)t->entity, (unsigned long)t->fin);
		seq_printf(m, "fence=%llu:%llu hw=%llu:%llu dep=%llu:%llu,%llu:%llu ", t->fctx, t->fseq, t->hctx, t->hseq,
			   t->depctx[0], t->depseq[0], t->depctx[1], t->depseq[1]);
		seq_printf(m, "dur=%llu push=%llu run=%llu start=%llu done=%llu timedout=%llu cancelled=%llu\n", t->dur,
			   t->push, t->run, t->start, t->done, t->timedout, t->cancelled);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(truth);

int truth_init(void)
{
	truths = kvcalloc(MAX_TRUTH, sizeof(*truths), GFP_KERNEL);
	if (!truths)
		return -ENOMEM;
	folder = debugfs_create_dir("mockgpu", NULL);
	debugfs_create_file("truth", 0400, folder, NULL, &truth_fops);
	return 0;
}

void truth_exit(void)
{
	debugfs_remove_recursive(folder);
	kvfree(truths);
}
