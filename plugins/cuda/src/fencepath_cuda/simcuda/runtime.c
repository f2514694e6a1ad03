// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated libcudart: every function makes the driver calls that the real one makes for it, through pointers that
 * cuGetProcAddress gave out, on the device's primary context.
 */
#define _GNU_SOURCE
#include "simcudart.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "truth.h"

#define CUDA_VERSION_ASKED 12090
#define MAX_KERNELS 1024

static struct driver {
#define MEMBER(name, exported) __typeof__(&exported) name;
	SIMCUDA_DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
} driver;

static const struct simcuda_calls *calls;
static CUcontext primary;
static CUmodule all_kernels; /* an image without names has every kernel */
static cudaError_t start_error;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static __thread cudaError_t last_error;
static __thread bool has_context;

static struct kernel {
	const void *host;
	CUfunction function;
	char *name;
} kernels[MAX_KERNELS];
static int kernel_count;
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

/* Truth's functions and the driver's entry points are there before any call: no call, no context. */
static void load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	__typeof__(&cuGetProcAddress_v2) get = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;

	calls = library ? dlsym(library, "simcuda_calls") : NULL;
	if (!get || !calls) {
		fprintf(stderr, "simulated CUDA: libcudart found no simulated libcuda.so.1: %s\n", dlerror());
		abort();
	}
#define FIND(name, exported) get(#name, (void **)&driver.name, CUDA_VERSION_ASKED, 0, NULL);
	SIMCUDA_DRIVER_FUNCTIONS(FIND)
#undef FIND
}

static void start(void)
{
	CUcontext before = NULL;

	if (driver.cuInit(0) || driver.cuDevicePrimaryCtxRetain(&primary, 0)) {
		start_error = cudaErrorInitializationError;
		return;
	}
	driver.cuCtxGetCurrent(&before);
	driver.cuCtxSetCurrent(primary);
	driver.cuModuleLoadData(&all_kernels, "");
	if (before)
		driver.cuCtxSetCurrent(before);
}

/* A thread that has no context current gets the primary one. */
static cudaError_t attach_thread(void)
{
	CUcontext current = NULL;

	pthread_once(&started, start);
	if (start_error || has_context)
		return start_error;
	driver.cuCtxGetCurrent(&current);
	has_context = current || !driver.cuCtxSetCurrent(primary);
	return has_context ? cudaSuccess : cudaErrorInitializationError;
}

static bool begin(struct call *call, const char *name)
{
	static pthread_once_t loaded = PTHREAD_ONCE_INIT;

	pthread_once(&loaded, load_driver);
	return calls->begin(call, name);
}

static cudaError_t leave(struct call *call, cudaError_t result)
{
	if (result != cudaSuccess && result != cudaErrorNotReady)
		last_error = result;
	return (cudaError_t)calls->end(call, (int)result);
}

#define START(function)                                                                                                  \
	struct call call;                                                                                                \
	cudaError_t error;                                                                                               \
	if (begin(&call, #function))                                                                                     \
		return leave(&call, (cudaError_t)call.forced);                                                           \
	error = attach_thread();                                                                                         \
	if (error)                                                                                                       \
		return leave(&call, error)
#define DRIVER(name, ...) return leave(&call, (cudaError_t)driver.name(__VA_ARGS__))

/* Kernels. */

SIMCUDA_API void **__cudaRegisterFatBinary(void *image)
{
	return image;
}

SIMCUDA_API void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name, int thread_limit,
					void *tid, void *bid, void *block, void *grid, int *warp_size)
{
	(void)module, (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
	pthread_mutex_lock(&kernels_lock);
	if (kernel_count < MAX_KERNELS)
		kernels[kernel_count++] = (struct kernel){host, NULL, strdup(name)};
	pthread_mutex_unlock(&kernels_lock);
}

/* Loaded on first use, as the real one does. */
static CUfunction find_kernel(const void *host)
{
	CUfunction found = NULL;

	pthread_mutex_lock(&kernels_lock);
	for (int i = 0; i < kernel_count; i++)
		if (kernels[i].host == host) {
			if (!kernels[i].function)
				driver.cuModuleGetFunction(&kernels[i].function, all_kernels, kernels[i].name);
			found = kernels[i].function;
			break;
		}
	pthread_mutex_unlock(&kernels_lock);
	return found;
}

SIMCUDA_API cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **params, size_t shared_bytes,
					 cudaStream_t stream)
{
	CUfunction function;

	START(cudaLaunchKernel);
	if (call.written)
		calls->hex(&call.line, "host_function", (uintptr_t)host);
	function = find_kernel(host);
	if (!function)
		return leave(&call, cudaErrorInvalidDeviceFunction);
	DRIVER(cuLaunchKernel, function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned int)shared_bytes,
	       stream, params, NULL);
}

SIMCUDA_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **params)
{
	CUlaunchConfig driver_config;
	CUfunction function;

	START(cudaLaunchKernelExC);
	function = find_kernel(host);
	if (!function)
		return leave(&call, cudaErrorInvalidDeviceFunction);
	driver_config = (CUlaunchConfig){
		.gridDimX = config->gridDim.x, .gridDimY = config->gridDim.y, .gridDimZ = config->gridDim.z,
		.blockDimX = config->blockDim.x, .blockDimY = config->blockDim.y, .blockDimZ = config->blockDim.z,
		.sharedMemBytes = (unsigned int)config->dynamicSmemBytes, .hStream = config->stream,
	};
	DRIVER(cuLaunchKernelEx, &driver_config, function, params, NULL);
}

SIMCUDA_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
	START(cudaLaunchHostFunc);
	DRIVER(cuLaunchHostFunc, stream, function, data);
}

/* Memory. */

#define DEVICE(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

SIMCUDA_API cudaError_t cudaMalloc(void **device, size_t bytes)
{
	CUdeviceptr pointer = 0;

	START(cudaMalloc);
	error = (cudaError_t)driver.cuMemAlloc(&pointer, bytes);
	*device = (void *)(uintptr_t)pointer;
	return leave(&call, error);
}

SIMCUDA_API cudaError_t cudaFree(void *device)
{
	START(cudaFree);
	if (!device) /* the customary way to start the runtime */
		return leave(&call, cudaSuccess);
	DRIVER(cuMemFree, DEVICE(device));
}

SIMCUDA_API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	START(cudaMemcpy);
	switch (kind) {
	case cudaMemcpyHostToHost:
		memmove(to, from, bytes);
		return leave(&call, cudaSuccess);
	case cudaMemcpyHostToDevice:
		DRIVER(cuMemcpyHtoD, DEVICE(to), from, bytes);
	case cudaMemcpyDeviceToHost:
		DRIVER(cuMemcpyDtoH, to, DEVICE(from), bytes);
	case cudaMemcpyDeviceToDevice:
		DRIVER(cuMemcpyDtoD, DEVICE(to), DEVICE(from), bytes);
	default:
		return leave(&call, cudaErrorInvalidMemcpyDirection);
	}
}

SIMCUDA_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
					cudaStream_t stream)
{
	START(cudaMemcpyAsync);
	switch (kind) {
	case cudaMemcpyHostToDevice:
		DRIVER(cuMemcpyHtoDAsync, DEVICE(to), from, bytes, stream);
	case cudaMemcpyDeviceToHost:
		DRIVER(cuMemcpyDtoHAsync, to, DEVICE(from), bytes, stream);
	case cudaMemcpyDeviceToDevice:
		DRIVER(cuMemcpyDtoDAsync, DEVICE(to), DEVICE(from), bytes, stream);
	case cudaMemcpyDefault:
		DRIVER(cuMemcpyAsync, DEVICE(to), DEVICE(from), bytes, stream);
	default:
		return leave(&call, cudaErrorInvalidMemcpyDirection);
	}
}

SIMCUDA_API cudaError_t cudaMemsetAsync(void *to, int value, size_t count, cudaStream_t stream)
{
	START(cudaMemsetAsync);
	DRIVER(cuMemsetD8Async, DEVICE(to), (unsigned char)value, count, stream);
}

/* Streams and CUDA events. */

SIMCUDA_API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	START(cudaStreamCreate);
	DRIVER(cuStreamCreate, stream, CU_STREAM_DEFAULT);
}

SIMCUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	START(cudaStreamCreateWithFlags);
	DRIVER(cuStreamCreate, stream, flags);
}

SIMCUDA_API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	START(cudaStreamDestroy);
	DRIVER(cuStreamDestroy, stream);
}

SIMCUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	START(cudaStreamSynchronize);
	DRIVER(cuStreamSynchronize, stream);
}

SIMCUDA_API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	START(cudaStreamQuery);
	DRIVER(cuStreamQuery, stream);
}

SIMCUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	START(cudaStreamWaitEvent);
	DRIVER(cuStreamWaitEvent, stream, event, flags);
}

SIMCUDA_API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	START(cudaEventCreate);
	DRIVER(cuEventCreate, event, CU_EVENT_DEFAULT);
}

SIMCUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	START(cudaEventCreateWithFlags);
	DRIVER(cuEventCreate, event, flags);
}

SIMCUDA_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	START(cudaEventRecord);
	DRIVER(cuEventRecord, event, stream);
}

SIMCUDA_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
	START(cudaEventQuery);
	DRIVER(cuEventQuery, event);
}

SIMCUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	START(cudaEventSynchronize);
	DRIVER(cuEventSynchronize, event);
}

SIMCUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	START(cudaEventDestroy);
	DRIVER(cuEventDestroy, event);
}

/* The device, and errors. */

SIMCUDA_API cudaError_t cudaDeviceSynchronize(void)
{
	START(cudaDeviceSynchronize);
	DRIVER(cuCtxSynchronize);
}

SIMCUDA_API cudaError_t cudaGetDevice(int *device)
{
	START(cudaGetDevice);
	DRIVER(cuCtxGetDevice, device);
}

SIMCUDA_API cudaError_t cudaSetDevice(int device)
{
	START(cudaSetDevice);
	return leave(&call, device ? cudaErrorInvalidDevice : cudaSuccess);
}

SIMCUDA_API cudaError_t cudaGetDeviceCount(int *count)
{
	START(cudaGetDeviceCount);
	DRIVER(cuDeviceGetCount, count);
}

SIMCUDA_API cudaError_t cudaGetLastError(void)
{
	cudaError_t result = last_error;

	last_error = cudaSuccess;
	return result;
}

SIMCUDA_API cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}
