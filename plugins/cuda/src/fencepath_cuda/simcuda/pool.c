// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: memory that is allocated and freed in a stream's order, and where managed memory lies. */
#include <stdlib.h>

#include "device.h"

#define MAX_DEVICES 8
#define POINTER(device) ((void *)(uintptr_t)(device))

struct pool {
	unsigned index;
	CUdevice device;
};

TABLE(pools, 256);

static CUresult add_pool(struct call *call, CUmemoryPool *out, CUdevice device)
{
	static unsigned last_index;
	struct pool *pool = must(calloc(1, sizeof(*pool)));

	*pool = (struct pool){++last_index, device};
	*out = table_put(&pools, pool);
	say_handle(call, "pool_handle", *out);
	say_u64(call, "pool", pool->index);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(struct call *call, CUmemoryPool *out, const CUmemPoolProps *props)
{
	CUresult error;

	if (!driver_ready(&error))
		return error;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id >= device_count())
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	error = capture_permits();
	if (error == CUDA_SUCCESS)
		error = add_pool(call, out, props->location.id);
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult get_default(struct call *call, CUmemoryPool *out, CUdevice device)
{
	static CUmemoryPool defaults[MAX_DEVICES];
	CUresult error;

	if (!driver_ready(&error))
		return error;
	if (device < 0 || device >= device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&device_lock);
	if (!defaults[device])
		error = add_pool(call, &defaults[device], device);
	else
		error = CUDA_SUCCESS;
	*out = defaults[device];
	pthread_mutex_unlock(&device_lock);
	return error;
}

/* What was allocated from it stays. */
static CUresult destroy(struct call *call, CUmemoryPool handle)
{
	struct pool *pool = NULL;
	CUresult error;

	say_handle(call, "pool_handle", handle);
	pthread_mutex_lock(&device_lock);
	error = capture_permits();
	if (error == CUDA_SUCCESS)
		pool = table_take(&pools, handle);
	pthread_mutex_unlock(&device_lock);
	free(pool);
	return pool || error != CUDA_SUCCESS ? error : CUDA_ERROR_INVALID_VALUE;
}

/* A simulated pool keeps nothing back. */
static CUresult trim(struct call *call, CUmemoryPool handle, size_t keep_bytes)
{
	CUresult error;

	say_handle(call, "pool_handle", handle);
	say_u64(call, "bytes", keep_bytes);
	pthread_mutex_lock(&device_lock);
	error = table_get(&pools, handle) ? capture_permits() : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuMemPoolCreate, create, (CUmemoryPool *out, const CUmemPoolProps *props), out, props)
EXPORT(cuDeviceGetDefaultMemPool, get_default, (CUmemoryPool *out, CUdevice device), out, device)
EXPORT(cuMemPoolDestroy, destroy, (CUmemoryPool pool), pool)
EXPORT(cuMemPoolTrimTo, trim, (CUmemoryPool pool, size_t keep_bytes), pool, keep_bytes)

/* With the lock held. */
static CUresult submit_alloc(struct call *call, struct stream *stream, CUdeviceptr *out, size_t bytes)
{
	struct allocation *allocation = allocate(bytes, DEVICE_MEMORY, stream->context);
	struct work work = {.kind = ALLOC, .bytes = bytes, .touches = {allocation}};
	CUresult error;

	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	allocation_set_graph(allocation, capture_graph(stream));
	error = submit(call, stream, &work, NULL, NULL);
	if (error == CUDA_SUCCESS) {
		*out = (CUdeviceptr)(uintptr_t)allocation_memory(allocation);
		say_hex(call, "device", *out);
	} else {
		allocation_put(forget_allocation(allocation_memory(allocation), DEVICE_MEMORY));
	}
	return error;
}

static CUresult obtain(struct call *call, CUdeviceptr *out, size_t bytes, CUstream handle)
{
	struct stream *stream;
	CUresult error;

	say_u64(call, "bytes", bytes);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	if (stream && !stream->capture)
		error = capture_permits();
	if (error == CUDA_SUCCESS && bytes)
		error = submit_alloc(call, stream, out, bytes);
	else
		*out = 0;
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult obtain_from(struct call *call, CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	bool found;

	say_handle(call, "pool_handle", pool);
	pthread_mutex_lock(&device_lock);
	found = table_get(&pools, pool);
	pthread_mutex_unlock(&device_lock);
	return found ? obtain(call, out, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

/* With the lock held. In a capture only what was allocated in it can be freed. */
static CUresult check_free(struct stream *stream, struct allocation *allocation, CUdeviceptr device)
{
	if (!allocation && find_allocation(POINTER(device), 1, MANAGED_MEMORY))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!allocation || allocation_memory(allocation) != POINTER(device))
		return CUDA_ERROR_INVALID_VALUE;
	if (!stream->capture)
		return capture_permits();
	return allocation_graph(allocation) == capture_graph(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Within the stream's order; to use it afterwards is already an error of the program's. */
static CUresult give_back(struct call *call, CUdeviceptr device, CUstream handle)
{
	struct work work = {.kind = FREE};
	struct stream *stream;
	CUresult error;

	say_hex(call, "device", device);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	if (stream) {
		work.touches[0] = find_allocation(POINTER(device), 1, DEVICE_MEMORY);
		error = check_free(stream, work.touches[0], device);
	}
	if (error == CUDA_SUCCESS)
		error = submit(call, stream, &work, NULL, NULL);
	if (error == CUDA_SUCCESS)
		allocation_put(forget_allocation(POINTER(device), DEVICE_MEMORY));
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT_BOTH(cuMemAllocAsync, _ptsz, obtain, (CUdeviceptr *out, size_t bytes, CUstream stream), out, bytes, stream)
EXPORT_BOTH(cuMemAllocFromPoolAsync, _ptsz, obtain_from,
	    (CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream), out, bytes, pool, stream)
EXPORT_BOTH(cuMemFreeAsync, _ptsz, give_back, (CUdeviceptr device, CUstream stream), device, stream)

static CUresult prefetch(struct call *call, CUdeviceptr device, size_t bytes, CUstream handle)
{
	struct work work = {.kind = PREFETCH, .bytes = bytes, .duration_ns = copy_ns(bytes)};
	struct stream *stream;
	CUresult error;

	say_hex(call, "to", device);
	say_u64(call, "bytes", bytes);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	work.touches[0] = find_allocation(POINTER(device), bytes, MANAGED_MEMORY);
	if (stream && !work.touches[0])
		error = CUDA_ERROR_INVALID_VALUE;
	if (error == CUDA_SUCCESS)
		error = capture_refuses(stream);
	if (error == CUDA_SUCCESS)
		error = submit(call, stream, &work, NULL, NULL);
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult prefetch_to_device(struct call *call, CUdeviceptr device, size_t bytes, CUdevice to, CUstream stream)
{
	say_u64(call, "device_to", (uint64_t)(int64_t)to);
	if (to != CU_DEVICE_CPU && (to < 0 || to >= device_count()))
		return CUDA_ERROR_INVALID_DEVICE;
	return prefetch(call, device, bytes, stream);
}

static CUresult prefetch_to(struct call *call, CUdeviceptr device, size_t bytes, CUmemLocation to, unsigned int flags,
			    CUstream stream)
{
	if (flags || to.type == CU_MEM_LOCATION_TYPE_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	return prefetch_to_device(call, device, bytes, to.type == CU_MEM_LOCATION_TYPE_DEVICE ? to.id : CU_DEVICE_CPU, stream);
}

EXPORT_BOTH(cuMemPrefetchAsync, _ptsz, prefetch_to_device,
	    (CUdeviceptr device, size_t bytes, CUdevice to, CUstream stream), device, bytes, to, stream)
EXPORT_BOTH(cuMemPrefetchAsync_v2, _ptsz, prefetch_to,
	    (CUdeviceptr device, size_t bytes, CUmemLocation to, unsigned int flags, CUstream stream), device, bytes, to,
	    flags, stream)
