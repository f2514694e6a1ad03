// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: copies and sets, which are real.
 *
 * As CUDA's "API synchronization behavior" has it: a copy to pageable memory returns when it is done, also where it is
 * called asynchronous; one from pageable memory goes through a staging copy and waits only if it is larger than 64 KiB;
 * with pinned memory (cuMemHostAlloc, cuMemAllocHost) asynchronous is asynchronous.
 */
#include <stdlib.h>
#include <string.h>

#include "device.h"

#define STAGED_BYTES (64 << 10)
#define POINTER(device) ((void *)(uintptr_t)(device))
#define ON_DEVICE (DEVICE_MEMORY | MANAGED_MEMORY)
#define PINNED (HOST_MEMORY | MANAGED_MEMORY)

uint64_t copy_ns(size_t bytes)
{
	static _Atomic uint64_t bytes_per_us;

	if (!bytes_per_us) {
		const char *wish = getenv("SIMCUDA_COPY_GBPS");
		unsigned long gigabytes_per_s = wish ? strtoul(wish, NULL, 10) : 0;

		bytes_per_us = (gigabytes_per_s ? gigabytes_per_s : 16) * 1000;
	}
	return 2000 + bytes * 1000 / bytes_per_us;
}

/* With the lock held: what the copy touches, if its ends lie where they should. */
static CUresult find_ends(struct work *work)
{
	bool from_host = work->kind == HTOD, to_host = work->kind == DTOH;

	work->touches[0] = find_allocation(work->to, work->bytes, to_host ? PINNED : ON_DEVICE);
	work->touches[1] = find_allocation(work->from, work->bytes, from_host ? PINNED : ON_DEVICE);
	return (work->touches[0] || to_host) && (work->touches[1] || from_host) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether an asynchronous copy waits all the same; what is staged is copied here. */
static bool must_wait(struct work *work)
{
	if (work->kind == DTOH)
		return !work->touches[0];
	if (work->kind != HTOD || work->touches[1])
		return false;
	if (work->bytes > STAGED_BYTES)
		return true;
	work->staged = must(malloc(work->bytes + 1));
	memcpy(work->staged, work->from, work->bytes);
	return false;
}

/* With the lock held. */
static CUresult submit_copy(struct call *call, struct stream *stream, struct work *work, bool *wait, struct op **op)
{
	CUresult error = find_ends(work);

	if (error != CUDA_SUCCESS)
		return error;
	if (!stream->capture)
		*wait |= must_wait(work);
	error = submit(call, stream, work, NULL, op);
	if (error != CUDA_SUCCESS)
		free(work->staged);
	return error;
}

static CUresult copy(struct call *call, enum op_kind kind, void *to, const void *from, size_t bytes, CUstream handle,
		     bool wait)
{
	struct work work = {.kind = kind, .to = to, .from = from, .bytes = bytes, .duration_ns = copy_ns(bytes)};
	struct ops ops = {0};
	struct stream *stream;
	struct op *op = NULL;
	CUresult error;

	say_u64(call, "bytes", bytes);
	say_handle(call, "to", to);
	say_handle(call, "from", from);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	if (stream)
		error = submit_copy(call, stream, &work, &wait, &op);
	pthread_mutex_unlock(&device_lock);
	if (op && wait) {
		ops_add(&ops, op);
		wait_and_clear(call, &ops, choose_wait(stream->context, false));
	}
	op_put(op);
	return error;
}

/* Within the device, the host is not kept waiting. */
static CUresult copy_now(struct call *call, enum op_kind kind, void *to, const void *from, size_t bytes)
{
	return copy(call, kind, to, from, bytes, NULL, kind == HTOD || kind == DTOH);
}

EXPORT_BOTH(cuMemcpyHtoD_v2, _ptds, copy_now, (CUdeviceptr to, const void *from, size_t bytes), HTOD, POINTER(to), from, bytes)
EXPORT_BOTH(cuMemcpyDtoH_v2, _ptds, copy_now, (void *to, CUdeviceptr from, size_t bytes), DTOH, to, POINTER(from), bytes)
EXPORT_BOTH(cuMemcpyDtoD_v2, _ptds, copy_now, (CUdeviceptr to, CUdeviceptr from, size_t bytes), DTOD, POINTER(to),
	    POINTER(from), bytes)
EXPORT_BOTH(cuMemcpyHtoDAsync_v2, _ptsz, copy, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), HTOD,
	    POINTER(to), from, bytes, stream, false)
EXPORT_BOTH(cuMemcpyDtoHAsync_v2, _ptsz, copy, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), DTOH, to,
	    POINTER(from), bytes, stream, false)
EXPORT_BOTH(cuMemcpyDtoDAsync_v2, _ptsz, copy, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), DTOD,
	    POINTER(to), POINTER(from), bytes, stream, false)

/* Unified addresses: the direction is seen from the pointers. */
static enum op_kind direction(const void *to, const void *from, size_t bytes)
{
	enum op_kind kind = HTOD;

	pthread_mutex_lock(&device_lock);
	if (find_allocation(from, bytes, ON_DEVICE))
		kind = find_allocation(to, bytes, ON_DEVICE) ? DTOD : DTOH;
	pthread_mutex_unlock(&device_lock);
	return kind;
}

static CUresult copy_any(struct call *call, void *to, const void *from, size_t bytes)
{
	return copy_now(call, direction(to, from, bytes), to, from, bytes);
}

static CUresult copy_any_async(struct call *call, void *to, const void *from, size_t bytes, CUstream stream)
{
	return copy(call, direction(to, from, bytes), to, from, bytes, stream, false);
}

EXPORT_BOTH(cuMemcpy, _ptds, copy_any, (CUdeviceptr to, CUdeviceptr from, size_t bytes), POINTER(to), POINTER(from), bytes)
EXPORT_BOTH(cuMemcpyAsync, _ptsz, copy_any_async, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
	    POINTER(to), POINTER(from), bytes, stream)

static CUresult copy_peer(struct call *call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			  size_t bytes, CUstream stream)
{
	say_handle(call, "to_context_handle", to_context);
	say_handle(call, "from_context_handle", from_context);
	if (!find_context(to_context) || !find_context(from_context))
		return CUDA_ERROR_INVALID_CONTEXT;
	return copy(call, PEER, POINTER(to), POINTER(from), bytes, stream, false);
}

EXPORT_BOTH(cuMemcpyPeer, _ptds, copy_peer,
	    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes), to, to_context,
	    from, from_context, bytes, NULL)
EXPORT_BOTH(cuMemcpyPeerAsync, _ptsz, copy_peer,
	    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream), to,
	    to_context, from, from_context, bytes, stream)

/* Sets. */

static CUresult set(struct call *call, CUdeviceptr to, uint32_t value, unsigned unit, size_t count, CUstream handle)
{
	struct work work = {.kind = MEMSET, .to = POINTER(to), .value = value, .unit = unit, .bytes = unit * count,
			    .duration_ns = copy_ns(unit * count)};
	struct stream *stream;
	CUresult error;

	say_hex(call, "to", to);
	say_u64(call, "value", value);
	say_u64(call, "bytes", work.bytes);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	work.touches[0] = find_allocation(work.to, work.bytes, ON_DEVICE | HOST_MEMORY);
	if (stream && !work.touches[0])
		error = CUDA_ERROR_INVALID_VALUE;
	if (error == CUDA_SUCCESS)
		error = submit(call, stream, &work, NULL, NULL);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT_BOTH(cuMemsetD8_v2, _ptds, set, (CUdeviceptr to, unsigned char value, size_t count), to, value, 1, count, NULL)
EXPORT_BOTH(cuMemsetD32_v2, _ptds, set, (CUdeviceptr to, unsigned int value, size_t count), to, value, 4, count, NULL)
EXPORT_BOTH(cuMemsetD8Async, _ptsz, set, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), to, value, 1,
	    count, stream)
EXPORT_BOTH(cuMemsetD32Async, _ptsz, set, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream), to, value, 4,
	    count, stream)
