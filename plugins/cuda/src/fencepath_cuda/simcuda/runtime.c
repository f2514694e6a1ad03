// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated libcudart: start, devices, errors. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct driver drivers[2];
const struct simcuda_calls *calls;

static CUcontext primaries[MAX_DEVICES];
static _Atomic unsigned resets;
static pthread_mutex_t primaries_lock = PTHREAD_MUTEX_INITIALIZER;
static cudaError_t start_error;

static __thread cudaError_t last_error;
static __thread int own_device;
static __thread unsigned seen_resets;
static __thread bool has_context;

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
#define FIND(name, exported, variant)                                                                                    \
	get(#name, (void **)&drivers[0].name, CUDA_VERSION, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL);                    \
	get(#name, (void **)&drivers[1].name, CUDA_VERSION, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
	SIMCUDA_DRIVER_FUNCTIONS(FIND)
#undef FIND
}

static void start(void)
{
	if (drivers[0].cuInit(0))
		start_error = cudaErrorInitializationError;
}

CUcontext runtime_context(int device)
{
	CUcontext context;

	pthread_mutex_lock(&primaries_lock);
	if (!primaries[device])
		drivers[0].cuDevicePrimaryCtxRetain(&primaries[device], device);
	context = primaries[device];
	pthread_mutex_unlock(&primaries_lock);
	return context;
}

unsigned runtime_resets(void)
{
	return resets;
}

int runtime_device(void)
{
	return own_device;
}

/* A thread that has no context current gets the primary one of its device. */
static cudaError_t attach_thread(void)
{
	static pthread_once_t started = PTHREAD_ONCE_INIT;
	CUcontext current = NULL;

	pthread_once(&started, start);
	if (start_error || (has_context && seen_resets == resets))
		return start_error;
	seen_resets = resets;
	drivers[0].cuCtxGetCurrent(&current);
	has_context = current || !drivers[0].cuCtxSetCurrent(runtime_context(own_device));
	return has_context ? cudaSuccess : cudaErrorInitializationError;
}

bool runtime_begin(struct call *call, const char *name, cudaError_t *error)
{
	static pthread_once_t loaded = PTHREAD_ONCE_INIT;

	pthread_once(&loaded, load_driver);
	*error = calls->begin(call, name) ? (cudaError_t)call->forced : attach_thread();
	return *error == cudaSuccess;
}

cudaError_t runtime_end(struct call *call, cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		last_error = error;
	return (cudaError_t)calls->end(call, (int)error);
}

static cudaError_t set_device(int device)
{
	int count;

	drivers[0].cuDeviceGetCount(&count);
	if (device < 0 || device >= count)
		return cudaErrorInvalidDevice;
	own_device = device;
	return (cudaError_t)drivers[0].cuCtxSetCurrent(runtime_context(device));
}

static cudaError_t reset(void)
{
	cudaError_t error;

	pthread_mutex_lock(&primaries_lock);
	primaries[own_device] = NULL;
	error = (cudaError_t)drivers[0].cuDevicePrimaryCtxReset(own_device);
	pthread_mutex_unlock(&primaries_lock);
	drivers[0].cuCtxSetCurrent(NULL);
	resets++;
	return error;
}

RUNTIME(cudaGetDevice, (int *device), driver->cuCtxGetDevice(device))
RUNTIME(cudaSetDevice, (int device), set_device(device))
RUNTIME(cudaGetDeviceCount, (int *count), driver->cuDeviceGetCount(count))
RUNTIME(cudaDeviceSynchronize, (void), driver->cuCtxSynchronize())
RUNTIME(cudaDeviceReset, (void), reset())

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
