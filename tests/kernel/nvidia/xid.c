// SPDX-License-Identifier: GPL-2.0
/*
 * The stand-in's errors, a module of its own since what records a tracepoint holds its module. "DEVICE CODE LINE\nMESSAGE" written to
 * debugfs nvidia_xid/raise is what NVIDIA's driver does for one error: the line into the log, then the tracepoint.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define CREATE_TRACE_POINTS
#include "xid_trace.h"

#define MAX_TEXT 1024

static struct dentry *folder;

static int raise_xid(char *text)
{
	char *device = strsep(&text, " "), *code = strsep(&text, " "), *line = strsep(&text, "\n");
	u32 number;

	if (!text || kstrtou32(code, 10, &number))
		return -EINVAL;
	printk("NVRM: %s\n", line);
	trace_nvidia_dev_xid(device, number, text);
	return 0;
}

static ssize_t raise_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	char *text;
	int ret;

	if (count > MAX_TEXT)
		return -EINVAL;
	text = memdup_user_nul(from, count);
	if (IS_ERR(text))
		return PTR_ERR(text);
	ret = raise_xid(text);
	kfree(text);
	return ret ?: count;
}

static const struct file_operations raise_fops = { .owner = THIS_MODULE, .write = raise_write };

static int __init xid_init(void)
{
	folder = debugfs_create_dir("nvidia_xid", NULL);
	debugfs_create_file("raise", 0200, folder, NULL, &raise_fops);
	return 0;
}

static void __exit xid_exit(void) { debugfs_remove_recursive(folder); }

module_init(xid_init);
module_exit(xid_exit);
MODULE_DESCRIPTION("errors of the stand-in for NVIDIA's driver, for tracing tests");
MODULE_LICENSE("GPL");
