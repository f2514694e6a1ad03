// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: memory and copies. Device memory is host memory; copies are real.
 *
 * As CUDA's "API synchronization behavior" has it: a copy to pageable memory returns when it is done, also where it is
 * called asynchronous; one from pageable memory goes through a staging copy and waits only if it is larger than 64 KiB;
 * with pinned memory (cuMemHostAlloc, cuMemAllocHost) asynchronous is asynchronous.
 */
#include <stdlib.h>
#include <string.h>

#include "device.h"

#define STAGED_BYTES (64 << 10)

struct allocation {
	struct allocation *next;
	char *memory;
	size_t bytes;
	bool pinned;
};

static struct allocation *allocations;

static struct allocation *allocate(size_t bytes, bool pinned)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation));

	if (!allocation)
		return NULL;
	*allocation = (struct allocation){.bytes = bytes, .pinned = pinned};
	allocation->memory = aligned_alloc(512, (bytes + 511) / 512 * 512);
	if (!allocation->memory) {
		free(allocation);
		return NULL;
	}
	pthread_mutex_lock(&device_lock);
	allocation->next = allocations;
	allocations = allocation;
	pthread_mutex_unlock(&device_lock);
	return allocation;
}

static bool release(const void *memory, bool pinned)
{
	struct allocation **at, *found;

	pthread_mutex_lock(&device_lock);
	for (at = &allocations; *at && ((*at)->memory != memory || (*at)->pinned != pinned); at = &(*at)->next)
		;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&device_lock);
	if (found)
		free(found->memory);
	free(found);
	return found;
}

/* Whether all of a range lies in one allocation of the kind. */
static bool is_allocated(const void *memory, size_t bytes, bool pinned)
{
	bool found = false;

	pthread_mutex_lock(&device_lock);
	for (const struct allocation *at = allocations; at && !found; at = at->next)
		found = at->pinned == pinned && (const char *)memory >= at->memory &&
			(const char *)memory + bytes <= at->memory + at->bytes;
	pthread_mutex_unlock(&device_lock);
	return found;
}

SIMCUDA_API CUresult cuMemAlloc_v2(CUdeviceptr *device, size_t bytes)
{
	struct allocation *allocation;
	CUresult error;

	ENTER(cuMemAlloc_v2);
	ARG_U64("bytes", bytes);
	if (!current_context(&error))
		LEAVE(error);
	if (!bytes)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	allocation = allocate(bytes, false);
	if (!allocation)
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	*device = (CUdeviceptr)(uintptr_t)allocation->memory;
	ARG_HEX("device", *device);
	LEAVE(CUDA_SUCCESS);
}

/* Waits for everything that runs, as a driver does. */
SIMCUDA_API CUresult cuMemFree_v2(CUdeviceptr device)
{
	struct context *context;
	struct op **ops;
	size_t count;
	CUresult error;

	ENTER(cuMemFree_v2);
	ARG_HEX("device", device);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	if (!device)
		LEAVE(CUDA_SUCCESS);
	if (!is_allocated((void *)(uintptr_t)device, 1, false))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	pthread_mutex_lock(&device_lock);
	count = last_ops(context, NULL, &ops);
	pthread_mutex_unlock(&device_lock);
	wait_and_put(&call, ops, count, choose_wait(context, false));
	LEAVE(release((void *)(uintptr_t)device, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult allocate_host(void **host, size_t bytes)
{
	struct allocation *allocation;
	CUresult error;

	if (!current_context(&error))
		return error;
	allocation = bytes ? allocate(bytes, true) : NULL;
	if (!allocation)
		return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	*host = allocation->memory;
	return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemAllocHost_v2(void **host, size_t bytes)
{
	ENTER(cuMemAllocHost_v2);
	ARG_U64("bytes", bytes);
	LEAVE(allocate_host(host, bytes));
}

SIMCUDA_API CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned int flags)
{
	ENTER(cuMemHostAlloc);
	ARG_U64("bytes", bytes);
	ARG_U64("flags", flags);
	LEAVE(allocate_host(host, bytes));
}

SIMCUDA_API CUresult cuMemFreeHost(void *host)
{
	ENTER(cuMemFreeHost);
	ARG_HEX("host", host);
	LEAVE(release(host, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* Copies. */

static bool must_wait(struct work *work, bool capturing)
{
	if (capturing)
		return false;
	if (work->kind == DTOH)
		return !is_allocated(work->to, work->bytes, true);
	if (work->kind != HTOD || is_allocated(work->from, work->bytes, true))
		return false;
	if (work->bytes <= STAGED_BYTES)
		work->staged = malloc(work->bytes);
	if (work->staged)
		memcpy(work->staged, work->from, work->bytes);
	return !work->staged;
}

static CUresult copy(struct call *outer, enum op_kind kind, void *to, const void *from, size_t bytes, CUstream handle,
		     bool wait)
{
	struct work work = {.kind = kind, .to = to, .from = from, .bytes = bytes, .duration_ns = copy_ns(bytes)};
	struct context *context;
	struct stream *stream;
	struct op *op = NULL, **ops;
	CUresult error;

	context = current_context(&error);
	if (!context)
		return error;
	if ((kind != HTOD && !is_allocated(from, bytes, false)) || (kind != DTOH && !is_allocated(to, bytes, false)))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, handle);
	pthread_mutex_unlock(&device_lock);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	wait |= must_wait(&work, stream->capture);
	ops = malloc(sizeof(*ops));
	pthread_mutex_lock(&device_lock);
	error = ops ? submit(stream, &work, NULL, outer->number, &op) : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&device_lock);
	if (outer->written) {
		line_u64(&outer->line, "bytes", bytes);
		line_hex(&outer->line, "to", (uintptr_t)to);
		line_hex(&outer->line, "from", (uintptr_t)from);
		line_hex(&outer->line, "handle", (uintptr_t)handle);
		line_u64(&outer->line, "stream", stream->index);
		if (op)
			line_u64(&outer->line, "op", op->id);
	}
	if (op && wait) {
		ops[0] = op;
		wait_and_put(outer, ops, 1, choose_wait(context, false));
	} else {
		op_put(op);
		free(ops);
	}
	return error;
}

#define POINTER(device) ((void *)(uintptr_t)(device))

SIMCUDA_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	ENTER(cuMemcpyHtoD_v2);
	LEAVE(copy(&call, HTOD, POINTER(to), from, bytes, NULL, true));
}

SIMCUDA_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	ENTER(cuMemcpyDtoH_v2);
	LEAVE(copy(&call, DTOH, to, POINTER(from), bytes, NULL, true));
}

/* Within the device, the host is not kept waiting. */
SIMCUDA_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	ENTER(cuMemcpyDtoD_v2);
	LEAVE(copy(&call, DTOD, POINTER(to), POINTER(from), bytes, NULL, false));
}

SIMCUDA_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	ENTER(cuMemcpyHtoDAsync_v2);
	LEAVE(copy(&call, HTOD, POINTER(to), from, bytes, stream, false));
}

SIMCUDA_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER(cuMemcpyDtoHAsync_v2);
	LEAVE(copy(&call, DTOH, to, POINTER(from), bytes, stream, false));
}

SIMCUDA_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER(cuMemcpyDtoDAsync_v2);
	LEAVE(copy(&call, DTOD, POINTER(to), POINTER(from), bytes, stream, false));
}

/* Unified addresses: the direction is seen from the pointers. */
SIMCUDA_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	enum op_kind kind;

	ENTER(cuMemcpyAsync);
	if (is_allocated(POINTER(from), bytes, false))
		kind = is_allocated(POINTER(to), bytes, false) ? DTOD : DTOH;
	else
		kind = HTOD;
	LEAVE(copy(&call, kind, POINTER(to), POINTER(from), bytes, stream, false));
}

SIMCUDA_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle)
{
	const struct work work = {.kind = MEMSET, .to = POINTER(to), .value = value, .bytes = count,
				  .duration_ns = copy_ns(count)};
	struct context *context;
	struct stream *stream;
	struct op *op = NULL;
	CUresult error;

	ENTER(cuMemsetD8Async);
	ARG_HEX("to", to);
	ARG_U64("value", value);
	ARG_U64("bytes", count);
	ARG_HEX("handle", handle);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	if (!is_allocated(POINTER(to), count, false))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, handle);
	error = stream ? submit(stream, &work, NULL, call.number, &op) : CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&device_lock);
	if (stream)
		ARG_U64("stream", stream->index);
	if (op)
		ARG_U64("op", op->id);
	op_put(op);
	LEAVE(error);
}
