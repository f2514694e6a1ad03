// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: CUDA events.
 *
 * This file is compiled so that its functions begin with endbr64 and then push %rbp, unlike the others, which begin with
 * push %rbp as nearly all of NVIDIA's do: the two classes of instruction that a uprobe costs differently on.
 */
#include <stdlib.h>

#include "device.h"

struct event {
	unsigned index, flags;
	struct op *recorded; /* the latest record, NULL before the first */
};

/* The lock is held. Returns the latest record with a reference, NULL if there is none. */
static struct op *latest_record(const struct event *event)
{
	return event->recorded ? op_get(event->recorded) : NULL;
}

static CUresult find_recorded(CUevent handle, struct op **op, unsigned *flags)
{
	const struct event *event;

	pthread_mutex_lock(&device_lock);
	event = table_get(&events, handle);
	*op = event ? latest_record(event) : NULL;
	*flags = event ? event->flags : 0;
	pthread_mutex_unlock(&device_lock);
	return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIMCUDA_API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	static unsigned last_index;
	struct event *event;
	CUresult error;

	ENTER(cuEventCreate);
	ARG_U64("flags", flags);
	if (!current_context(&error))
		LEAVE(error);
	event = calloc(1, sizeof(*event));
	if (!event)
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	pthread_mutex_lock(&device_lock);
	*event = (struct event){.index = ++last_index, .flags = flags};
	*out = table_put(&events, event);
	pthread_mutex_unlock(&device_lock);
	if (!*out) {
		free(event);
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	}
	ARG_HEX("event_handle", *out);
	ARG_U64("event", event->index);
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuEventDestroy_v2(CUevent handle)
{
	struct event *event;

	ENTER(cuEventDestroy_v2);
	ARG_HEX("event_handle", handle);
	pthread_mutex_lock(&device_lock);
	event = table_take(&events, handle);
	pthread_mutex_unlock(&device_lock);
	if (!event)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	ARG_U64("event", event->index);
	op_put(event->recorded);
	free(event);
	LEAVE(CUDA_SUCCESS);
}

static CUresult record(struct call *outer, CUevent handle, CUstream stream_handle)
{
	const struct work work = {.kind = EVENT_RECORD};
	struct context *context;
	struct stream *stream;
	struct event *event;
	struct op *op = NULL;
	CUresult error;

	context = current_context(&error);
	if (!context)
		return error;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, stream_handle);
	event = table_get(&events, handle);
	if (!stream || !event)
		error = CUDA_ERROR_INVALID_HANDLE;
	else if (stream->capture)
		error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else
		error = submit(stream, &work, NULL, outer->number, &op);
	if (op) {
		op_put(event->recorded);
		event->recorded = op;
	}
	if (op && outer->written) {
		line_u64(&outer->line, "event", event->index);
		line_hex(&outer->line, "event_handle", (uintptr_t)handle);
		line_u64(&outer->line, "stream", stream->index);
		line_hex(&outer->line, "handle", (uintptr_t)stream_handle);
		line_u64(&outer->line, "op", op->id);
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

SIMCUDA_API CUresult cuEventRecord(CUevent handle, CUstream stream)
{
	ENTER(cuEventRecord);
	LEAVE(record(&call, handle, stream));
}

SIMCUDA_API CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags)
{
	ENTER(cuEventRecordWithFlags);
	ARG_U64("flags", flags);
	LEAVE(record(&call, handle, stream));
}

SIMCUDA_API CUresult cuEventSynchronize(CUevent handle)
{
	struct context *context;
	struct op *op, **ops;
	unsigned flags;
	CUresult error;

	ENTER(cuEventSynchronize);
	ARG_HEX("event_handle", handle);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	error = find_recorded(handle, &op, &flags);
	if (!op)
		LEAVE(error);
	ops = malloc(sizeof(*ops));
	if (!ops)
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	ops[0] = op;
	wait_and_put(&call, ops, 1, choose_wait(context, flags & CU_EVENT_BLOCKING_SYNC));
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuEventQuery(CUevent handle)
{
	struct op *op;
	unsigned flags;
	CUresult error;

	ENTER(cuEventQuery);
	ARG_HEX("event_handle", handle);
	error = find_recorded(handle, &op, &flags);
	if (op && !op_done(op))
		error = CUDA_ERROR_NOT_READY;
	op_put(op);
	LEAVE(error);
}

SIMCUDA_API CUresult cuEventElapsedTime(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
	struct op *start = NULL, *end = NULL;
	unsigned flags;
	CUresult error;

	ENTER(cuEventElapsedTime);
	error = find_recorded(start_handle, &start, &flags);
	if (error == CUDA_SUCCESS)
		error = find_recorded(end_handle, &end, &flags);
	if (error == CUDA_SUCCESS && (!start || !end))
		error = CUDA_ERROR_INVALID_HANDLE;
	else if (error == CUDA_SUCCESS && (!op_done(start) || !op_done(end)))
		error = CUDA_ERROR_NOT_READY;
	if (error == CUDA_SUCCESS)
		*milliseconds = (float)((double)(int64_t)(end->end_ns - start->end_ns) / 1e6);
	op_put(start);
	op_put(end);
	LEAVE(error);
}

/* An event that was never recorded binds nothing. */
SIMCUDA_API CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
	const struct work work = {.kind = WAIT_EVENT};
	struct context *context;
	struct stream *stream;
	struct event *event;
	struct op *op = NULL;
	CUresult error;

	ENTER(cuStreamWaitEvent);
	ARG_HEX("handle", stream_handle);
	ARG_HEX("event_handle", handle);
	ARG_U64("flags", flags);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, stream_handle);
	event = table_get(&events, handle);
	if (!stream || !event)
		error = CUDA_ERROR_INVALID_HANDLE;
	else if (stream->capture)
		error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else
		error = event->recorded ? submit(stream, &work, event->recorded, call.number, &op) : CUDA_SUCCESS;
	if (event)
		ARG_U64("event", event->index);
	if (stream)
		ARG_U64("stream", stream->index);
	if (op)
		ARG_U64("op", op->id);
	pthread_mutex_unlock(&device_lock);
	op_put(op);
	LEAVE(error);
}
