// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: streams. */
#include <stdlib.h>

#include "device.h"

static CUresult create(struct call *outer, CUstream *out, unsigned int flags)
{
	struct context *context;
	struct stream *stream;
	CUresult error;

	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	context = current_context(&error);
	if (!context)
		return error;
	pthread_mutex_lock(&device_lock);
	*out = NULL;
	stream = stream_open(context, NULL, false, flags & CU_STREAM_NON_BLOCKING, 0);
	if (stream) {
		*out = stream->handle = table_put(&streams, stream);
		if (!*out)
			stream_close(stream);
	}
	pthread_mutex_unlock(&device_lock);
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (outer->written) {
		line_hex(&outer->line, "handle", (uintptr_t)*out);
		line_u64(&outer->line, "stream", stream->index);
		line_u64(&outer->line, "context", context->index);
	}
	return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	ENTER(cuStreamCreate);
	ARG_U64("flags", flags);
	LEAVE(create(&call, out, flags));
}

SIMCUDA_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	(void)priority; /* streams of the simulated device do not compete */
	ENTER(cuStreamCreateWithPriority);
	ARG_U64("flags", flags);
	LEAVE(create(&call, out, flags));
}

/* Returns at once; what was submitted still runs. */
SIMCUDA_API CUresult cuStreamDestroy_v2(CUstream handle)
{
	struct stream *stream;

	ENTER(cuStreamDestroy_v2);
	ARG_HEX("handle", handle);
	pthread_mutex_lock(&device_lock);
	stream = table_take(&streams, handle);
	if (stream)
		stream_close(stream);
	pthread_mutex_unlock(&device_lock);
	if (!stream)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	ARG_U64("stream", stream->index);
	LEAVE(CUDA_SUCCESS);
}

/* The operations that `handle` still has to finish. */
static CUresult pending(struct call *outer, CUstream handle, struct context **context, struct op ***ops, size_t *count)
{
	struct stream *stream;
	CUresult error;

	*context = current_context(&error);
	if (!*context)
		return error;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(*context, handle);
	error = !stream ? CUDA_ERROR_INVALID_HANDLE :
		stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
	if (error == CUDA_SUCCESS)
		*count = last_ops(*context, stream, ops);
	pthread_mutex_unlock(&device_lock);
	if (stream && outer->written) {
		line_hex(&outer->line, "handle", (uintptr_t)handle);
		line_u64(&outer->line, "stream", stream->index);
	}
	return error;
}

SIMCUDA_API CUresult cuStreamSynchronize(CUstream handle)
{
	struct context *context;
	struct op **ops;
	size_t count;
	CUresult error;

	ENTER(cuStreamSynchronize);
	error = pending(&call, handle, &context, &ops, &count);
	if (error == CUDA_SUCCESS)
		wait_and_put(&call, ops, count, choose_wait(context, false));
	LEAVE(error);
}

SIMCUDA_API CUresult cuStreamQuery(CUstream handle)
{
	struct context *context;
	struct op **ops;
	size_t count;
	CUresult error;

	ENTER(cuStreamQuery);
	error = pending(&call, handle, &context, &ops, &count);
	if (error != CUDA_SUCCESS)
		LEAVE(error);
	for (size_t i = 0; i < count; i++) {
		if (!op_done(ops[i]))
			error = CUDA_ERROR_NOT_READY;
		op_put(ops[i]);
	}
	free(ops);
	LEAVE(error);
}
