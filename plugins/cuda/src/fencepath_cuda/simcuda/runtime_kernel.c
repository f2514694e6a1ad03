// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated libcudart: kernels and their launches. */
#include <pthread.h>
#include <string.h>

#include "runtime.h"

#define MAX_KERNELS 1024

static struct kernel {
	const void *host;
	char *name;
	CUkernel kernel;
	CUcontext contexts[MAX_DEVICES];
	CUfunction functions[MAX_DEVICES];
	unsigned resets;
} kernels[MAX_KERNELS];
static int kernel_count;
static CUlibrary library; /* an image without names has every kernel */
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

SIMCUDA_API void **__cudaRegisterFatBinary(void *image)
{
	return image;
}

SIMCUDA_API void __cudaRegisterFatBinaryEnd(void **module)
{
	(void)module;
}

SIMCUDA_API void __cudaUnregisterFatBinary(void **module)
{
	(void)module;
}

SIMCUDA_API void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name, int thread_limit,
					void *tid, void *bid, void *block, void *grid, int *warp_size)
{
	(void)module, (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
	pthread_mutex_lock(&kernels_lock);
	if (kernel_count < MAX_KERNELS)
		kernels[kernel_count++] = (struct kernel){.host = host, .name = strdup(name)};
	pthread_mutex_unlock(&kernels_lock);
}

/* Loaded on first use, as the real one does. */
static CUfunction load(struct kernel *kernel)
{
	const struct driver *driver = &drivers[0];
	int device = runtime_device();
	CUcontext context = NULL;

	driver->cuCtxGetCurrent(&context);
	if (kernel->resets != runtime_resets())
		memset(kernel->functions, 0, sizeof(kernel->functions));
	kernel->resets = runtime_resets();
	if (kernel->functions[device] && kernel->contexts[device] == context)
		return kernel->functions[device];
	if (!library)
		driver->cuLibraryLoadData(&library, "", NULL, NULL, 0, NULL, NULL, 0);
	if (!kernel->kernel)
		driver->cuLibraryGetKernel(&kernel->kernel, library, kernel->name);
	kernel->contexts[device] = context;
	driver->cuKernelGetFunction(&kernel->functions[device], kernel->kernel);
	return kernel->functions[device];
}

CUfunction runtime_kernel(const void *host)
{
	CUfunction found = NULL;

	pthread_mutex_lock(&kernels_lock);
	for (int i = 0; i < kernel_count && !found; i++)
		if (kernels[i].host == host)
			found = load(&kernels[i]);
	pthread_mutex_unlock(&kernels_lock);
	return found;
}

static cudaError_t launch(struct call *call, const struct driver *driver, const void *host, dim3 grid, dim3 block,
			  void **params, size_t shared_bytes, cudaStream_t stream, bool cooperative)
{
	CUfunction function;

	if (call->written)
		calls->hex(&call->line, "host_function", (uintptr_t)host);
	function = runtime_kernel(host);
	if (!function)
		return cudaErrorInvalidDeviceFunction;
	if (cooperative)
		return (cudaError_t)driver->cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
								      block.z, (unsigned int)shared_bytes, stream, params);
	return (cudaError_t)driver->cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
						   (unsigned int)shared_bytes, stream, params, NULL);
}

static cudaError_t launch_config(struct call *call, const struct driver *driver, const cudaLaunchConfig_t *config,
				 const void *host, void **params)
{
	const CUlaunchConfig driver_config = {
		.gridDimX = config->gridDim.x, .gridDimY = config->gridDim.y, .gridDimZ = config->gridDim.z,
		.blockDimX = config->blockDim.x, .blockDimY = config->blockDim.y, .blockDimZ = config->blockDim.z,
		.sharedMemBytes = (unsigned int)config->dynamicSmemBytes, .hStream = config->stream,
	};
	CUfunction function;

	if (call->written)
		calls->hex(&call->line, "host_function", (uintptr_t)host);
	function = runtime_kernel(host);
	if (!function)
		return cudaErrorInvalidDeviceFunction;
	return (cudaError_t)driver->cuLaunchKernelEx(&driver_config, function, params, NULL);
}

RUNTIME_BOTH(cudaLaunchKernel, _ptsz,
	     (const void *host, dim3 grid, dim3 block, void **params, size_t shared_bytes, cudaStream_t stream),
	     launch(&call, driver, host, grid, block, params, shared_bytes, stream, false))
RUNTIME_BOTH(cudaLaunchCooperativeKernel, _ptsz,
	     (const void *host, dim3 grid, dim3 block, void **params, size_t shared_bytes, cudaStream_t stream),
	     launch(&call, driver, host, grid, block, params, shared_bytes, stream, true))
RUNTIME_BOTH(cudaLaunchKernelExC, _ptsz, (const cudaLaunchConfig_t *config, const void *host, void **params),
	     launch_config(&call, driver, config, host, params))
RUNTIME_BOTH(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, cudaHostFn_t function, void *data),
	     driver->cuLaunchHostFunc(stream, function, data))
