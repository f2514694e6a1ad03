// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The part of the CUDA runtime API that the simulated libcudart has; see simcuda.h. */
#ifndef SIMCUDART_H
#define SIMCUDART_H

#include "simcuda.h"

#ifdef SIMCUDA_NVIDIA_HEADERS
#include <cuda_runtime_api.h>
#else

typedef enum cudaError {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInitializationError = 3,
	cudaErrorInvalidMemcpyDirection = 21,
	cudaErrorInvalidDeviceFunction = 98,
	cudaErrorInvalidDevice = 101,
	cudaErrorNotReady = 600
} cudaError_t;

enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4
};

typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUhostFn cudaHostFn_t;

typedef struct dim3 {
	unsigned int x, y, z;
} dim3;

typedef struct cudaLaunchConfig_st {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	void *attrs;
	unsigned int numAttrs;
} cudaLaunchConfig_t;

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **params, size_t shared_bytes,
			     cudaStream_t stream);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **params);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t count, cudaStream_t stream);
cudaError_t cudaMalloc(void **device, size_t bytes);
cudaError_t cudaFree(void *device);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

#endif /* SIMCUDA_NVIDIA_HEADERS */

/* What nvcc's start-up code calls: it gives the host function that stands for a kernel its name. */
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name, int thread_limit, void *tid,
			    void *bid, void *block, void *grid, int *warp_size);

#endif
