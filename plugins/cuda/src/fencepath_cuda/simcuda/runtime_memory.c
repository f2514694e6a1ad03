// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated libcudart: memory and copies. */
#include <string.h>

#include "runtime.h"

/* Device pointers of the two APIs have the same size, and are written where the other's is expected. */
#define OUT(pointer) ((CUdeviceptr *)(pointer))

RUNTIME(cudaMalloc, (void **device, size_t bytes), driver->cuMemAlloc(OUT(device), bytes))
RUNTIME(cudaMallocManaged, (void **device, size_t bytes, unsigned int flags),
	driver->cuMemAllocManaged(OUT(device), bytes, flags))
RUNTIME(cudaMallocHost, (void **host, size_t bytes), driver->cuMemAllocHost(host, bytes))
RUNTIME(cudaHostAlloc, (void **host, size_t bytes, unsigned int flags), driver->cuMemHostAlloc(host, bytes, flags))
/* Freeing nothing is the customary way to start the runtime. */
RUNTIME(cudaFree, (void *device), device ? driver->cuMemFree(DEVICE(device)) : CUDA_SUCCESS)
RUNTIME(cudaFreeHost, (void *host), host ? driver->cuMemFreeHost(host) : CUDA_SUCCESS)

RUNTIME_BOTH(cudaMallocAsync, _ptsz, (void **device, size_t bytes, cudaStream_t stream),
	     driver->cuMemAllocAsync(OUT(device), bytes, stream))
RUNTIME_BOTH(cudaMallocFromPoolAsync, _ptsz, (void **device, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
	     driver->cuMemAllocFromPoolAsync(OUT(device), bytes, pool, stream))
RUNTIME_BOTH(cudaFreeAsync, _ptsz, (void *device, cudaStream_t stream), driver->cuMemFreeAsync(DEVICE(device), stream))

static CUresult create_pool(const struct driver *driver, cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
	CUmemPoolProps driver_props = {
		.allocType = (CUmemAllocationType)props->allocType,
		.location = {.type = (CUmemLocationType)props->location.type, .id = props->location.id},
	};

	return driver->cuMemPoolCreate(pool, &driver_props);
}

RUNTIME(cudaMemPoolCreate, (cudaMemPool_t *pool, const struct cudaMemPoolProps *props), create_pool(driver, pool, props))
RUNTIME(cudaMemPoolDestroy, (cudaMemPool_t pool), driver->cuMemPoolDestroy(pool))
RUNTIME(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep_bytes), driver->cuMemPoolTrimTo(pool, keep_bytes))

static CUresult prefetch(const struct driver *driver, const void *device, size_t bytes, struct cudaMemLocation to,
			 unsigned int flags, cudaStream_t stream)
{
	CUmemLocation location = {.type = (CUmemLocationType)to.type, .id = to.id};

	return driver->cuMemPrefetchAsync(DEVICE(device), bytes, location, flags, stream);
}

RUNTIME_BOTH(cudaMemPrefetchAsync, _ptsz,
	     (const void *device, size_t bytes, struct cudaMemLocation to, unsigned int flags, cudaStream_t stream),
	     prefetch(driver, device, bytes, to, flags, stream))

static cudaError_t copy(const struct driver *driver, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	switch (kind) {
	case cudaMemcpyHostToHost:
		memmove(to, from, bytes);
		return cudaSuccess;
	case cudaMemcpyHostToDevice:
		return (cudaError_t)driver->cuMemcpyHtoD(DEVICE(to), from, bytes);
	case cudaMemcpyDeviceToHost:
		return (cudaError_t)driver->cuMemcpyDtoH(to, DEVICE(from), bytes);
	case cudaMemcpyDeviceToDevice:
		return (cudaError_t)driver->cuMemcpyDtoD(DEVICE(to), DEVICE(from), bytes);
	case cudaMemcpyDefault:
		return (cudaError_t)driver->cuMemcpy(DEVICE(to), DEVICE(from), bytes);
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
}

static cudaError_t copy_async(const struct driver *driver, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			      cudaStream_t stream)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return (cudaError_t)driver->cuMemcpyHtoDAsync(DEVICE(to), from, bytes, stream);
	case cudaMemcpyDeviceToHost:
		return (cudaError_t)driver->cuMemcpyDtoHAsync(to, DEVICE(from), bytes, stream);
	case cudaMemcpyDeviceToDevice:
		return (cudaError_t)driver->cuMemcpyDtoDAsync(DEVICE(to), DEVICE(from), bytes, stream);
	case cudaMemcpyDefault:
		return (cudaError_t)driver->cuMemcpyAsync(DEVICE(to), DEVICE(from), bytes, stream);
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
}

RUNTIME_BOTH(cudaMemcpy, _ptds, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
	     copy(driver, to, from, bytes, kind))
RUNTIME_BOTH(cudaMemcpyAsync, _ptsz,
	     (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
	     copy_async(driver, to, from, bytes, kind, stream))
RUNTIME(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t bytes),
	driver->cuMemcpyPeer(DEVICE(to), runtime_context(to_device), DEVICE(from), runtime_context(from_device), bytes))
RUNTIME(cudaMemcpyPeerAsync,
	(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream),
	driver->cuMemcpyPeerAsync(DEVICE(to), runtime_context(to_device), DEVICE(from), runtime_context(from_device), bytes,
				  stream))
RUNTIME_BOTH(cudaMemset, _ptds, (void *to, int value, size_t count),
	     driver->cuMemsetD8(DEVICE(to), (unsigned char)value, count))
RUNTIME_BOTH(cudaMemsetAsync, _ptsz, (void *to, int value, size_t count, cudaStream_t stream),
	     driver->cuMemsetD8Async(DEVICE(to), (unsigned char)value, count, stream))
