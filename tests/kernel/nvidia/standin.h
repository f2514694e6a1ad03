/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stand-in for NVIDIA's driver, for tests: the same device numbers, requests and names, on qemu's edu PCI device. It is no
 * driver of a GPU, knows none, and nothing in it is NVIDIA's.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/types.h>

#define RM_MAJOR 195
#define CTL_MINOR 255
#define UVM 1000			/* stands for nvidia-uvm where others have a minor */

/* NV_STATUS of NVIDIA/open-gpu-kernel-modules, src/common/sdk/nvidia/inc/nvstatuscodes.h */
#define NV_OK 0x00
#define NV_ERR_INVALID_CLASS 0x22
#define NV_ERR_NO_MEMORY 0x51
#define NV_ERR_NOT_SUPPORTED 0x56

/* Commands of NV_ESC_RM_CONTROL that only the stand-in has. */
#define STANDIN_WORK 0xf00d0001		/* struct standin_work as parameters */
#define STANDIN_BLOCK 0xf00d0002	/* does not return until its thread is killed */
#define STANDIN_UNKNOWN 0xf00dffff	/* NV_ERR_NOT_SUPPORTED */

struct standin_work {
	__u64 delay_ns;			/* from its begin to the interrupt */
	__u64 at_poll;			/* it begins when the file is polled, else at once */
};

/* One open file. Its work: asked for, then running, then ended with an interrupt, then told to a poll. */
struct standin_file {
	struct list_head list;
	struct hrtimer timer;
	unsigned int place;		/* minor, or UVM */
	u64 delay_ns;
	bool asked, running, raised, ready;
	struct wait_truth *truth;
};

struct wait_truth {
	u32 tgid;
	u64 raised_ns, irq_ns, told_ns;	/* CLOCK_MONOTONIC, 0: not yet */
};

long standin_request(struct standin_file *f, unsigned int command, unsigned long argument);
int standin_work(struct standin_file *f, const struct standin_work *work);
int standin_block(void);

/* What was done, for tests to compare with: debugfs nvidia_standin/truth. */
int truth_init(void);
void truth_exit(void);
void truth_count(const char *what, unsigned int place, u64 number, u32 control, s64 status, s64 rm_status);
struct wait_truth *truth_wait(void);
void truth_interrupt(int irq, u64 begin_ns, u64 end_ns, unsigned int ended);

#endif
