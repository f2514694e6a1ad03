// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: launches.
 *
 * A simulated kernel does nothing for a time: that of its first parameter, a u64 of nanoseconds (params[0] points to it,
 * or it begins the buffer given in `extra`), or where there are no parameters the one that its module's image names.
 */
#include <string.h>

#include "device.h"

#define LONGEST_NS 60000000000ull /* more was not meant as a time */

bool kernel_ns(void **params, void **extra, uint64_t default_ns, uint64_t *duration_ns)
{
	*duration_ns = default_ns;
	if (params && params[0])
		memcpy(duration_ns, params[0], sizeof(*duration_ns));
	for (; !params && extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			memcpy(duration_ns, extra[1], sizeof(*duration_ns));
	return *duration_ns <= LONGEST_NS;
}

void say_shape(struct call *call, const unsigned int *grid, const unsigned int *block, unsigned int shared_bytes)
{
	const uint64_t g[] = {grid[0], grid[1], grid[2]}, b[] = {block[0], block[1], block[2]};

	if (!call->written)
		return;
	line_ids(&call->line, "grid", g, 3);
	line_ids(&call->line, "block", b, 3);
	line_u64(&call->line, "shared_bytes", shared_bytes);
}

static bool is_shape(const unsigned int *grid, const unsigned int *block)
{
	return grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2];
}

/* With the lock held. */
static CUresult submit_kernel(struct call *call, struct stream *stream, CUfunction function, void **params, void **extra)
{
	struct work work = {.kind = KERNEL};
	uint64_t default_ns;

	work.name = find_function(stream->context, function, &default_ns);
	if (!work.name) /* a launch takes a library's kernel too */
		work.name = find_kernel((CUkernel)function, &default_ns);
	if (!work.name)
		return CUDA_ERROR_INVALID_HANDLE;
	say_text(call, "kernel", work.name);
	if (!kernel_ns(params, extra, default_ns, &work.duration_ns))
		return CUDA_ERROR_INVALID_VALUE;
	return submit(call, stream, &work, NULL, NULL);
}

static CUresult launch(struct call *call, const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct stream *stream;
	CUresult error;

	say_shape(call, &config->gridDimX, &config->blockDimX, config->sharedMemBytes);
	if (!is_shape(&config->gridDimX, &config->blockDimX))
		return CUDA_ERROR_INVALID_VALUE;
	say_handle(call, "function", function);
	say_handle(call, "params", params);
	say_handle(call, "extra", extra);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, config->hStream, &error);
	if (stream)
		error = submit_kernel(call, stream, function, params, extra);
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult launch_config(struct call *call, const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	say_u64(call, "attributes", config->numAttrs);
	return launch(call, config, function, params, extra);
}

#define SHAPE                                                                                                            \
	unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y,       \
		unsigned int block_z, unsigned int shared_bytes
#define CONFIG                                                                                                           \
	&(CUlaunchConfig)                                                                                                \
	{                                                                                                                \
		.gridDimX = grid_x, .gridDimY = grid_y, .gridDimZ = grid_z, .blockDimX = block_x, .blockDimY = block_y,  \
		.blockDimZ = block_z, .sharedMemBytes = shared_bytes, .hStream = stream,                                 \
	}

EXPORT_BOTH(cuLaunchKernel, _ptsz, launch, (CUfunction function, SHAPE, CUstream stream, void **params, void **extra), CONFIG,
	    function, params, extra)
EXPORT_BOTH(cuLaunchCooperativeKernel, _ptsz, launch, (CUfunction function, SHAPE, CUstream stream, void **params), CONFIG,
	    function, params, NULL)
EXPORT_BOTH(cuLaunchKernelEx, _ptsz, launch_config,
	    (const CUlaunchConfig *config, CUfunction function, void **params, void **extra), config, function, params, extra)

static CUresult launch_host(struct call *call, CUstream handle, CUhostFn function, void *data)
{
	const struct work work = {.kind = HOST_FUNC, .function = function, .data = data};
	struct stream *stream;
	CUresult error;

	say_hex(call, "function", (uintptr_t)function);
	say_handle(call, "data", data);
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	if (stream)
		error = submit(call, stream, &work, NULL, NULL);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT_BOTH(cuLaunchHostFunc, _ptsz, launch_host, (CUstream stream, CUhostFn function, void *data), stream, function, data)
