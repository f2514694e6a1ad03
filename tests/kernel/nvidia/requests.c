// SPDX-License-Identifier: GPL-2.0
/* Requests: what the stand-in answers, and where NVIDIA's driver would write that. */
#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include "standin.h"

#define XFER_CMD 211
#define UVM_MIGRATE 51
#define MIGRATE_TO 1
#define MIGRATED_PAGES 512
#define RM_FREE 0x29
#define RM_CONTROL 0x2a
#define RM_ALLOC 0x2b
#define CLASS_UNKNOWN 0xbad
#define MEMORY_LIMIT (1ull << 30)
#define NOT_KNOWN (-1)
#define NO_STATUS (~0u)
#define ANY_SIZE (~0u)

/* Where the status is, as in plugins/nvidia/src/fencepath_nvidia/data. */
static const struct layout {
	u32 number, size, status;
} rm_layouts[] = {
	{ 0x27, 56, 40 }, { RM_FREE, 16, 12 },  { RM_CONTROL, 32, 28 }, { RM_ALLOC, 32, 28 }, { RM_ALLOC, 48, 40 },
	{ 0x34, 28, 24 }, { 0x4e, 56, 40 },     { 0x4f, 32, 24 },       { 0x57, 64, 56 },     { 0x58, 48, 40 },
	{ 0xce, 16, 12 }, { 0xcf, 16, 12 },     { 0xd2, 72, NO_STATUS },
};

/* Bare numbers; the size is what is written up to. */
static const struct layout uvm_layouts[] = {
	{ 0x30000001, 12, 8 }, { 34, 20, 16 }, { 37, 40, 36 }, { 42, 40, 36 }, { 51, 76, 72 }, { 73, 20, 16 },
};

static u32 get32(const u8 *at, size_t offset)
{
	u32 value;

	memcpy(&value, at + offset, sizeof(value));
	return value;
}

static u64 get64(const u8 *at, size_t offset)
{
	u64 value;

	memcpy(&value, at + offset, sizeof(value));
	return value;
}

/* Status of NV_ESC_RM_ALLOC: class at 12, parameters of memory behind the pointer at 16, their size at 64. */
static int alloc_status(const u8 *a)
{
	u32 class = get32(a, 12);
	u64 bytes;

	if (class == CLASS_UNKNOWN)
		return NV_ERR_INVALID_CLASS;
	if (class != 0x3e && class != 0x40)
		return NV_OK;
	if (!get64(a, 16) || get_user(bytes, (u64 __user *)(get64(a, 16) + 64)))
		return NV_OK;
	return bytes > MEMORY_LIMIT ? NV_ERR_NO_MEMORY : NV_OK;
}

/* NV_ESC_RM_CONTROL: command at 8, parameters behind the pointer at 16. A negative errno or a status. */
static int control_status(struct standin_file *f, const u8 *a)
{
	struct standin_pages pages;
	struct standin_work work;

	switch (get32(a, 8)) {
	case STANDIN_UNKNOWN:
		return NV_ERR_NOT_SUPPORTED;
	case STANDIN_BLOCK:
		return standin_block();
	case STANDIN_WORK:
		if (copy_from_user(&work, (void __user *)get64(a, 16), sizeof(work)))
			return -EFAULT;
		return standin_work(f, &work);
	case STANDIN_PAGES:
		if (copy_from_user(&pages, (void __user *)get64(a, 16), sizeof(pages)))
			return -EFAULT;
		return standin_pages(&pages);
	}
	return NV_OK;
}

static const struct layout *find(const struct layout *layouts, size_t count, u32 number, u32 size)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (layouts[i].number == number && (size == ANY_SIZE || layouts[i].size == size))
			return &layouts[i];
	return NULL;
}

static int rm_status(struct standin_file *f, u32 number, const u8 *a)
{
	if (number == RM_ALLOC)
		return alloc_status(a);
	return number == RM_CONTROL ? control_status(f, a) : NV_OK;
}

static long answer_rm(struct standin_file *f, u32 number, u32 size, u8 __user *at, u32 *control, s64 *said)
{
	const struct layout *layout = find(rm_layouts, ARRAY_SIZE(rm_layouts), number, size);
	u8 a[72];
	int status;

	if (!layout)
		return -EINVAL;
	if (copy_from_user(a, at, size))
		return -EFAULT;
	if (number == RM_CONTROL)
		*control = get32(a, 8);
	status = rm_status(f, number, a);
	if (status < 0)
		return status;
	if (layout->status == NO_STATUS)
		return 0;
	if (put_user((u32)status, (u32 __user *)(at + layout->status)))
		return -EFAULT;
	*said = status;
	return 0;
}

static long answer_uvm(u32 command, u8 __user *at, s64 *said)
{
	const struct layout *layout = find(uvm_layouts, ARRAY_SIZE(uvm_layouts), command, ANY_SIZE);

	if (!layout)
		return -EINVAL;
	if (put_user((u32)NV_OK, (u32 __user *)(at + layout->status)))
		return -EFAULT;
	if (command == UVM_MIGRATE)
		standin_migrate(MIGRATE_TO, MIGRATED_PAGES);
	*said = NV_OK;
	return 0;
}

/* NV_ESC_IOCTL_XFER_CMD: number at 0, size at 4, pointer at 8 of another request. */
static long unwrap(u32 *number, u32 *size, u8 __user **at)
{
	u8 a[16];

	if (*size != sizeof(a))
		return -EINVAL;
	if (copy_from_user(a, *at, sizeof(a)))
		return -EFAULT;
	if (get32(a, 0) > 0xff)
		return -EINVAL;
	*number = get32(a, 0);
	*size = get32(a, 4);
	*at = (u8 __user *)get64(a, 8);
	return 0;
}

long standin_request(struct standin_file *f, unsigned int command, unsigned long argument)
{
	u32 number = _IOC_NR(command), size = _IOC_SIZE(command), control = 0;
	u8 __user *at = (u8 __user *)argument;
	s64 said = NOT_KNOWN;
	long ret = 0;

	if (f->place == UVM) {
		ret = answer_uvm(command, at, &said);
	} else if (_IOC_TYPE(command) != 'F') {
		ret = -ENOTTY;
	} else {
		if (number == XFER_CMD) {
			ret = unwrap(&number, &size, &at);
			command = _IOC(_IOC_READ | _IOC_WRITE, 'F', number, size);
		}
		ret = ret ?: answer_rm(f, number, size, at, &control, &said);
	}
	truth_count("ioctl", f->place, command, control, ret, said);
	return ret;
}
