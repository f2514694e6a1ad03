// SPDX-License-Identifier: GPL-2.0
/*
 * Devices, open files, mappings, polls and the interrupt of the stand-in. What the kernel calls has the names and parameters
 * that NVIDIA's modules give it, so that it is probed as they are.
 */
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "standin.h"

#define VERSION "580.159.04"
#define MAX_PAGES 64

/* Registers of qemu's edu device: docs/specs/edu in qemu's source. */
#define EDU_STATUS 0x24
#define EDU_RAISE 0x60
#define EDU_ACKNOWLEDGE 0x64

static bool threaded;
module_param(threaded, bool, 0644);
MODULE_PARM_DESC(threaded, "end waits in the interrupt's thread");
static int uvm_major;
module_param(uvm_major, int, 0444);
MODULE_PARM_DESC(uvm_major, "major number of nvidia-uvm (0: the kernel chooses)");

static struct pci_dev *pci;
static u8 __iomem *registers;
static struct page *page;
static int uvm_got;
static LIST_HEAD(files);
static DEFINE_SPINLOCK(lock);
static DECLARE_WAIT_QUEUE_HEAD(pollers);	/* of all files, as one vector is of all: each looks for itself */
static DECLARE_WAIT_QUEUE_HEAD(never);

/* The work of one file is done: the device is told to raise its interrupt. */
static enum hrtimer_restart work_done(struct hrtimer *timer)
{
	struct standin_file *f = container_of(timer, struct standin_file, timer);
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	f->running = false;
	f->raised = true;
	if (f->truth)
		f->truth->raised_ns = ktime_get_ns();
	writel(1, registers + EDU_RAISE);
	spin_unlock_irqrestore(&lock, flags);
	return HRTIMER_NORESTART;
}

static unsigned int end_work(u64 now_ns)
{
	struct standin_file *f;
	unsigned int ended = 0;
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	list_for_each_entry(f, &files, list) {
		if (!f->raised)
			continue;
		f->raised = false;
		f->ready = true;
		if (f->truth)
			f->truth->irq_ns = now_ns;
		ended++;
	}
	spin_unlock_irqrestore(&lock, flags);
	wake_up_interruptible_poll(&pollers, EPOLLIN | EPOLLPRI);
	return ended;
}

noinline irqreturn_t nvidia_isr(int irq, void *arg)
{
	u64 begin_ns = ktime_get_ns();

	/* An MSI is nobody else's; one that comes while this runs may have been acknowledged here. */
	writel(readl(registers + EDU_STATUS), registers + EDU_ACKNOWLEDGE);
	truth_interrupt(irq, begin_ns, ktime_get_ns(), threaded ? 0 : end_work(begin_ns));
	return threaded ? IRQ_WAKE_THREAD : IRQ_HANDLED;
}

noinline irqreturn_t nvidia_isr_msix(int irq, void *arg)
{
	return nvidia_isr(irq, arg);
}

noinline irqreturn_t nvidia_isr_msix_kthread_bh(int irq, void *data)
{
	u64 begin_ns = ktime_get_ns();

	end_work(begin_ns);
	truth_half(irq, begin_ns, ktime_get_ns());
	return IRQ_HANDLED;
}

int standin_work(struct standin_file *f, const struct standin_work *work)
{
	int ret = 0;

	if (work->delay_ns > 10ull * NSEC_PER_SEC)
		return -EINVAL;
	spin_lock_irq(&lock);
	if (f->asked || f->running || f->raised) {
		ret = -EBUSY;
	} else {
		f->delay_ns = work->delay_ns;
		f->asked = work->at_poll;
		f->running = !work->at_poll;
		f->truth = truth_wait();
	}
	spin_unlock_irq(&lock);
	if (!ret && !work->at_poll)
		hrtimer_start(&f->timer, ns_to_ktime(work->delay_ns), HRTIMER_MODE_REL);
	return ret;
}

int standin_block(void)
{
	return wait_event_killable(never, false) ? -EINTR : 0;
}

static int open_file(struct inode *inode, struct file *file)
{
	struct standin_file *f;

	if (!pci)
		return -ENODEV;
	f = kzalloc(sizeof(*f), GFP_KERNEL);
	if (!f)
		return -ENOMEM;
	f->place = imajor(inode) == RM_MAJOR ? iminor(inode) : UVM;
#ifdef HAVE_HRTIMER_SETUP
	hrtimer_setup(&f->timer, work_done, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
#else
	hrtimer_init(&f->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	f->timer.function = work_done;
#endif
	spin_lock_irq(&lock);
	list_add(&f->list, &files);
	spin_unlock_irq(&lock);
	file->private_data = f;
	truth_count("open", f->place, 0, 0, 0, 0);
	return 0;
}

static int close_file(struct inode *inode, struct file *file)
{
	struct standin_file *f = file->private_data;

	hrtimer_cancel(&f->timer);
	spin_lock_irq(&lock);
	list_del(&f->list);
	spin_unlock_irq(&lock);
	truth_count("release", f->place, 0, 0, 0, 0);
	kfree(f);
	return 0;
}

noinline long nvidia_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long i_arg)
{
	return standin_request(file->private_data, cmd, i_arg);
}

noinline long uvm_unlocked_ioctl_entry(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return standin_request(filp->private_data, cmd, arg);
}

/* Ready once for each work that ended. */
static __poll_t poll_file(struct file *file, poll_table *table)
{
	struct standin_file *f = file->private_data;
	bool begin, ready;

	poll_wait(file, &pollers, table);
	spin_lock_irq(&lock);
	begin = f->asked;
	f->asked = false;
	f->running |= begin;
	ready = f->ready;
	f->ready = false;
	if (ready && f->truth)
		f->truth->told_ns = ktime_get_ns();
	spin_unlock_irq(&lock);
	if (begin)
		hrtimer_start(&f->timer, ns_to_ktime(f->delay_ns), HRTIMER_MODE_REL);
	return ready ? EPOLLIN | EPOLLPRI : 0;
}

/* Every page of every mapping is the same one. */
static vm_fault_t bring(unsigned int place, struct vm_fault *vmf)
{
	truth_count("fault", place, vmf->address, 0, 0, 0);
	get_page(page);
	vmf->page = page;
	return 0;
}

noinline vm_fault_t nvidia_fault(struct vm_fault *vmf)
{
	return bring(0, vmf);
}

noinline vm_fault_t uvm_vm_fault_entry(struct vm_fault *vmf)
{
	return bring(UVM, vmf);
}

static const struct vm_operations_struct rm_mapping = { .fault = nvidia_fault };
static const struct vm_operations_struct uvm_mapping = { .fault = uvm_vm_fault_entry };

static int map(struct file *file, struct vm_area_struct *area, const struct vm_operations_struct *operations)
{
	struct standin_file *f = file->private_data;
	unsigned long bytes = area->vm_end - area->vm_start;
	int ret = bytes > MAX_PAGES * PAGE_SIZE ? -EINVAL : 0;

	area->vm_ops = operations;
	truth_count("mmap", f->place, bytes, 0, ret, 0);
	return ret;
}

noinline int nvidia_mmap(struct file *file, struct vm_area_struct *vma)
{
	return map(file, vma, &rm_mapping);
}

noinline int uvm_mmap_entry(struct file *filp, struct vm_area_struct *vma)
{
	return map(filp, vma, &uvm_mapping);
}

static const struct file_operations rm_operations = {
	.owner = THIS_MODULE,
	.open = open_file,
	.release = close_file,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
	.poll = poll_file,
	.mmap = nvidia_mmap,
};

static const struct file_operations uvm_operations = {
	.owner = THIS_MODULE,
	.open = open_file,
	.release = close_file,
	.unlocked_ioctl = uvm_unlocked_ioctl_entry,
	.mmap = uvm_mmap_entry,
};

static int version_show(struct seq_file *m, void *v)
{
	seq_puts(m, "NVRM version: stand-in for tests, x86_64  " VERSION "  no driver of NVIDIA\n");
	return 0;
}

static int information_show(struct seq_file *m, void *v)
{
	seq_printf(m, "Model: \t\t stand-in for tests\nIRQ:   \t\t %d\n", pci_irq_vector(pci, 0));
	seq_puts(m, "GPU UUID: \t GPU-57a4d140-0000-4000-8000-000000000001\nBus Type: \t PCI\n");
	seq_printf(m, "Bus Location: \t %s\nDevice Minor: \t 0\n", pci_name(pci));
	return 0;
}

/* /proc/driver/nvidia; what is missing there shows in the tests. */
static void make_proc(void)
{
	struct proc_dir_entry *gpus, *gpu;

	proc_mkdir("driver/nvidia", NULL);
	proc_create_single("driver/nvidia/version", 0444, NULL, version_show);
	gpus = proc_mkdir("driver/nvidia/gpus", NULL);
	gpu = proc_mkdir(pci_name(pci), gpus);
	proc_create_single("information", 0444, gpu, information_show);
}

static int probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	int ret;

	if (pci)
		return -EBUSY;
	ret = pcim_enable_device(dev);
	if (ret)
		return ret;
	pci_set_master(dev);
	registers = pcim_iomap(dev, 0, 0);
	if (!registers)
		return -ENOMEM;
	ret = pci_alloc_irq_vectors(dev, 1, 1, PCI_IRQ_MSI);
	if (ret < 0)
		return ret;
	ret = request_threaded_irq(pci_irq_vector(dev, 0), nvidia_isr_msix, nvidia_isr_msix_kthread_bh, 0,
				   "nvidia", dev);
	if (ret) {
		pci_free_irq_vectors(dev);
		return ret;
	}
	pci = dev;
	make_proc();
	return 0;
}

static void remove(struct pci_dev *dev)
{
	remove_proc_subtree("driver/nvidia", NULL);
	pci = NULL;
	free_irq(pci_irq_vector(dev, 0), dev);
	pci_free_irq_vectors(dev);
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(0x1234, 0x11e8) }, { } };

static struct pci_driver driver = { .name = "nvidia", .id_table = ids, .probe = probe, .remove = remove };

static int register_devices(void)
{
	int ret = __register_chrdev(RM_MAJOR, 0, 256, "nvidia", &rm_operations);

	if (ret < 0)
		return ret;
	ret = __register_chrdev(uvm_major, 0, 2, "nvidia-uvm", &uvm_operations);
	if (ret < 0) {
		__unregister_chrdev(RM_MAJOR, 0, 256, "nvidia");
		return ret;
	}
	uvm_got = uvm_major ?: ret;
	return 0;
}

static void unregister_devices(void)
{
	__unregister_chrdev(uvm_got, 0, 2, "nvidia-uvm");
	__unregister_chrdev(RM_MAJOR, 0, 256, "nvidia");
}

static int __init standin_init(void)
{
	int ret = truth_init();

	if (ret)
		return ret;
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	ret = page ? register_devices() : -ENOMEM;
	if (ret)
		goto err_page;
	ret = pci_register_driver(&driver);
	if (!ret)
		return 0;
	unregister_devices();
err_page:
	if (page)
		__free_page(page);
	truth_exit();
	return ret;
}

static void __exit standin_exit(void)
{
	pci_unregister_driver(&driver);
	unregister_devices();
	__free_page(page);
	truth_exit();
}

module_init(standin_init);
module_exit(standin_exit);
MODULE_DESCRIPTION("stand-in for NVIDIA's driver on qemu's edu device, for tracing tests");
MODULE_VERSION(VERSION);
MODULE_LICENSE("GPL");
