// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated libcudart: every function makes the driver calls that the real one makes for it, through pointers that
 * cuGetProcAddress gave out, on the device's primary context. Its variants for per-thread default streams (_ptsz, _ptds)
 * make those of the driver.
 */
#ifndef SIMCUDA_RUNTIME_H
#define SIMCUDA_RUNTIME_H

#include "truth.h" /* first: the API under its exported names */

#include <cuda_runtime_api.h>

#include "simcuda_tables.h"

#define MAX_DEVICES 8
#define DEVICE(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

struct driver {
#define MEMBER(name, exported, variant) __typeof__(&exported) name;
	SIMCUDA_DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* Plain, and for per-thread default streams. */
extern struct driver drivers[2];
extern const struct simcuda_calls *calls;

/* Opens a call; false: it is to fail with *error. The first starts the driver, a thread's first gives it a context. */
bool runtime_begin(struct call *call, const char *name, cudaError_t *error);
cudaError_t runtime_end(struct call *call, cudaError_t error);

int runtime_device(void);
unsigned runtime_resets(void); /* how often a device was reset: nothing from before is good any more */
CUcontext runtime_context(int device); /* its primary context, NULL if there is none */

/* Defines functions whose result is an expression, in which `driver` has the driver's functions and `call` is the call. */
#define RUNTIME_AS(symbol, is_per_thread, parameters, ...)                                                               \
	SIMCUDA_API cudaError_t symbol parameters                                                                        \
	{                                                                                                                \
		const struct driver *driver = &drivers[is_per_thread];                                                   \
		struct call call;                                                                                        \
		cudaError_t error;                                                                                       \
                                                                                                                         \
		(void)driver;                                                                                            \
		if (!runtime_begin(&call, #symbol, &error))                                                              \
			return runtime_end(&call, error);                                                                \
		return runtime_end(&call, (cudaError_t)(__VA_ARGS__));                                                   \
	}
#define RUNTIME(name, parameters, ...) RUNTIME_AS(name, 0, parameters, __VA_ARGS__)
#define RUNTIME_BOTH(name, suffix, parameters, ...)                                                                      \
	RUNTIME_AS(name, 0, parameters, __VA_ARGS__)                                                                     \
	RUNTIME_AS(name##suffix, 1, parameters, __VA_ARGS__)

/* What nvcc's start-up code calls: it gives the host function that stands for a kernel its name. */
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **module);
void __cudaUnregisterFatBinary(void **module);
void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name, int thread_limit, void *tid,
			    void *bid, void *block, void *grid, int *warp_size);

/* The driver's function for the kernel that a host function stands for, in the current context; NULL if it stands for
 * none. */
CUfunction runtime_kernel(const void *host);

#endif
