// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: values in memory that streams write and wait for. This is the one dependency on an operation that
 * may be submitted later.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "device.h"

#define LOOK_NS 1000000 /* how often a waiting stream looks whether the host has written the value */

struct written {
	struct written *next;
	const void *address;
	struct op *op; /* the latest that wrote there, a reference */
	uint32_t value;
};

static pthread_mutex_t values_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t values_changed = PTHREAD_COND_INITIALIZER;
static struct written *all_written;

static struct written *find_written(const void *address)
{
	struct written *at = all_written;

	while (at && at->address != address)
		at = at->next;
	return at;
}

void value_written(struct op *op)
{
	struct written *written;

	pthread_mutex_lock(&values_lock);
	written = find_written(op->work.to);
	if (!written) {
		written = must(calloc(1, sizeof(*written)));
		*written = (struct written){.next = all_written, .address = op->work.to};
		all_written = written;
	}
	op_put(written->op);
	written->op = op_get(op);
	written->value = op->work.value;
	__atomic_store_n((uint32_t *)op->work.to, op->work.value, __ATOMIC_SEQ_CST);
	pthread_cond_broadcast(&values_changed);
	pthread_mutex_unlock(&values_lock);
}

/* Memory was given back: what lies there next was not written by anybody. */
void values_forget(const void *memory, size_t bytes)
{
	pthread_mutex_lock(&values_lock);
	for (struct written *at = all_written; at; at = at->next)
		if ((const char *)at->address >= (const char *)memory && (const char *)at->address < (const char *)memory + bytes) {
			op_put(at->op);
			at->op = NULL;
		}
	pthread_mutex_unlock(&values_lock);
}

static bool is_awaited(const struct work *work, uint32_t value)
{
	switch (work->flags & 3) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return value == work->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return value & work->value;
	case CU_STREAM_WAIT_VALUE_NOR:
		return ~(value | work->value);
	default:
		return (int32_t)(value - work->value) >= 0;
	}
}

void value_wait(struct op *op)
{
	const struct work *work = &op->work;
	const struct written *written;
	bool waited = false;

	pthread_mutex_lock(&values_lock);
	while (!is_awaited(work, __atomic_load_n((const uint32_t *)work->from, __ATOMIC_SEQ_CST))) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&values_changed, &values_lock, &until);
		waited = true;
	}
	written = find_written(work->from);
	if (written && written->op && is_awaited(work, written->value)) {
		op->wrote = op_get(written->op);
		if (op->wrote->end_ns > op->end_ns)
			op->end_ns = op->wrote->end_ns;
	} else if (waited) {
		op->end_ns = now_ns();
	}
	pthread_mutex_unlock(&values_lock);
}

static CUresult submit_value(struct call *call, enum op_kind kind, CUstream handle, CUdeviceptr device, uint32_t value,
			     unsigned flags)
{
	void *address = (void *)(uintptr_t)device;
	struct work work = {.kind = kind, .to = address, .from = address, .value = value, .flags = flags};
	struct stream *stream;
	struct op *op = NULL;
	CUresult error;

	say_hex(call, "to", device);
	say_u64(call, "value", value);
	say_u64(call, "flags", flags);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	work.touches[0] = find_allocation(address, sizeof(value), DEVICE_MEMORY | HOST_MEMORY | MANAGED_MEMORY);
	if (stream && (!work.touches[0] || device % sizeof(value)))
		error = CUDA_ERROR_INVALID_VALUE;
	if (error == CUDA_SUCCESS)
		error = submit(call, stream, &work, NULL, &op);
	pthread_mutex_unlock(&device_lock);
	op_put(op);
	return error;
}

static CUresult wait_value(struct call *call, CUstream stream, CUdeviceptr device, cuuint32_t value, unsigned flags)
{
	return submit_value(call, WAIT_VALUE, stream, device, value, flags);
}

static CUresult write_value(struct call *call, CUstream stream, CUdeviceptr device, cuuint32_t value, unsigned flags)
{
	return submit_value(call, WRITE_VALUE, stream, device, value, flags);
}

EXPORT_BOTH(cuStreamWaitValue32_v2, _ptsz, wait_value,
	    (CUstream stream, CUdeviceptr device, cuuint32_t value, unsigned int flags), stream, device, value, flags)
EXPORT_BOTH(cuStreamWriteValue32_v2, _ptsz, write_value,
	    (CUstream stream, CUdeviceptr device, cuuint32_t value, unsigned int flags), stream, device, value, flags)
