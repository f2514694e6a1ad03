/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stand-in for NVIDIA's driver, for tests: the same device numbers, requests and names, on qemu's edu PCI device. It is no
 * driver of a GPU, knows none, and nothing in it is NVIDIA's.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/list.h>
#include <linux/mm.h>
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
#define STANDIN_PAGES 0xf00d0003	/* struct standin_pages as parameters */
#define STANDIN_UNKNOWN 0xf00dffff	/* NV_ERR_NOT_SUPPORTED */

struct standin_work {
	__u64 delay_ns;			/* from its begin to the interrupt */
	__u64 at_poll;			/* it begins when the file is polled, else at once */
};

struct standin_pages {
	__u32 services;			/* how often a thread of the kernel serves page faults of the GPU, with a migration each */
	__u32 pages;			/* of each migration */
	__u32 destination;		/* 0 the CPU */
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
int standin_pages(const struct standin_pages *asked);
void standin_migrate(u32 destination, u32 pages);

/* Functions with names and parameters of NVIDIA's modules: kernel-open/nvidia and kernel-open/nvidia-uvm of its source. */
typedef struct {
	u32 val;
} uvm_processor_id_t;
typedef struct {
	u16 first, outer;
} uvm_va_block_region_t;

irqreturn_t nvidia_isr(int irq, void *arg);
irqreturn_t nvidia_isr_msix(int irq, void *arg);
irqreturn_t nvidia_isr_msix_kthread_bh(int irq, void *data);
long nvidia_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long i_arg);
int nvidia_mmap(struct file *file, struct vm_area_struct *vma);
vm_fault_t nvidia_fault(struct vm_fault *vmf);
long uvm_unlocked_ioctl_entry(struct file *filp, unsigned int cmd, unsigned long arg);
int uvm_mmap_entry(struct file *filp, struct vm_area_struct *vma);
vm_fault_t uvm_vm_fault_entry(struct vm_fault *vmf);
void uvm_parent_gpu_service_replayable_faults(void *parent_gpu);
u32 uvm_va_block_make_resident_copy(void *va_block, void *va_block_retry, void *va_block_context,
				    uvm_processor_id_t dest_id, uvm_va_block_region_t region, const void *page_mask,
				    const void *prefetch_page_mask, int cause);

/* What was done, for tests to compare with: debugfs nvidia_standin/truth. */
int truth_init(void);
void truth_exit(void);
void truth_count(const char *what, unsigned int place, u64 number, u32 control, s64 status, s64 rm_status);
struct wait_truth *truth_wait(void);
void truth_interrupt(int irq, u64 begin_ns, u64 end_ns, unsigned int ended);
void truth_half(int irq, u64 begin_ns, u64 end_ns);

#endif
