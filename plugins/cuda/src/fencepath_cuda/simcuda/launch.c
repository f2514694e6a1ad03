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

static uint64_t asked_ns(void **params, void **extra, uint64_t default_ns)
{
	uint64_t duration_ns = default_ns;

	if (params && params[0])
		memcpy(&duration_ns, params[0], sizeof(duration_ns));
	for (; !params && extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			memcpy(&duration_ns, extra[1], sizeof(duration_ns));
	return duration_ns;
}

static CUresult launch(struct call *outer, CUfunction function, CUstream handle, void **params, void **extra)
{
	struct work work = {.kind = KERNEL};
	struct context *context;
	struct stream *stream;
	struct op *op = NULL;
	uint64_t default_ns;
	CUresult error;

	context = current_context(&error);
	if (!context)
		return error;
	pthread_mutex_lock(&device_lock);
	work.name = find_function(function, &default_ns);
	stream = find_stream(context, handle);
	if (!work.name || !stream) {
		error = CUDA_ERROR_INVALID_HANDLE;
	} else {
		work.duration_ns = asked_ns(params, extra, default_ns);
		error = work.duration_ns > LONGEST_NS ? CUDA_ERROR_INVALID_VALUE :
							submit(stream, &work, NULL, outer->number, &op);
	}
	pthread_mutex_unlock(&device_lock);
	if (outer->written) {
		line_hex(&outer->line, "handle", (uintptr_t)handle);
		line_hex(&outer->line, "function", (uintptr_t)function);
		line_hex(&outer->line, "params", (uintptr_t)params);
		line_hex(&outer->line, "extra", (uintptr_t)extra);
		if (stream)
			line_u64(&outer->line, "stream", stream->index);
		if (work.name)
			line_text(&outer->line, "kernel", work.name);
		if (op)
			line_u64(&outer->line, "op", op->id);
	}
	op_put(op);
	return error;
}

static void write_shape(struct call *call, const unsigned int *grid, const unsigned int *block, unsigned int shared_bytes)
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

SIMCUDA_API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
				    unsigned int block_x, unsigned int block_y, unsigned int block_z,
				    unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
	const unsigned int grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};

	ENTER(cuLaunchKernel);
	write_shape(&call, grid, block, shared_bytes);
	if (!is_shape(grid, block))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(launch(&call, function, stream, params, extra));
}

SIMCUDA_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	ENTER(cuLaunchKernelEx);
	write_shape(&call, &config->gridDimX, &config->blockDimX, config->sharedMemBytes);
	ARG_U64("attributes", config->numAttrs);
	if (!is_shape(&config->gridDimX, &config->blockDimX))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(launch(&call, function, config->hStream, params, extra));
}

SIMCUDA_API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
	const struct work work = {.kind = HOST_FUNC, .function = function, .data = data};
	struct context *context;
	struct stream *stream;
	struct op *op = NULL;
	CUresult error;

	ENTER(cuLaunchHostFunc);
	ARG_HEX("handle", handle);
	ARG_HEX("function", function);
	if (!function)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
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
