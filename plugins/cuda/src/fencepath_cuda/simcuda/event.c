// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: CUDA events.
 *
 * This file is compiled so that its functions begin with endbr64 and then push %rbp.
 */
#include <stdlib.h>

#include "device.h"

struct event {
	atomic_int references;
	unsigned index, flags;
	const struct context *context;
	struct op *recorded; /* the latest record, NULL before the first */
	struct capture_point point;
};

struct event *event_get(struct event *event)
{
	atomic_fetch_add(&event->references, 1);
	return event;
}

void event_put(struct event *event)
{
	if (atomic_fetch_sub(&event->references, 1) != 1)
		return;
	op_put(event->recorded);
	free(event->point.nodes);
	free(event);
}

unsigned event_number(const struct event *event)
{
	return event->index;
}

struct op *event_recorded(const struct event *event)
{
	return event->recorded;
}

struct capture_point *event_point(struct event *event)
{
	return &event->point;
}

void event_set_recorded(struct event *event, struct op *op)
{
	op_put(event->recorded);
	event->recorded = op_get(op);
	event->point.capture = 0;
}

static bool is_of(const void *event, const void *context)
{
	return ((const struct event *)event)->context == context;
}

void forget_events(const struct context *context)
{
	table_purge(&events, is_of, context);
}

/* With the lock held: the CUDA event of a handle, said in the call's truth. */
static struct event *find_event(struct call *call, CUevent handle, CUresult *error)
{
	struct event *event = table_get(&events, handle);

	say_handle(call, "event_handle", handle);
	if (event)
		say_u64(call, "event", event->index);
	else
		*error = CUDA_ERROR_INVALID_HANDLE;
	return event;
}

static CUresult create(struct call *call, CUevent *out, unsigned int flags)
{
	static unsigned last_index;
	struct event *event;
	CUresult error;
	const struct context *context = current_context(call, &error);

	say_u64(call, "flags", flags);
	if (!context)
		return error;
	if (flags > 7 || ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	event = must(calloc(1, sizeof(*event)));
	pthread_mutex_lock(&device_lock);
	*event = (struct event){.flags = flags, .context = context};
	atomic_init(&event->references, 1);
	*out = table_put(&events, event);
	if (*out)
		event->index = ++last_index;
	pthread_mutex_unlock(&device_lock);
	if (!*out) {
		event_put(event);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	say_handle(call, "event_handle", *out);
	say_u64(call, "event", event->index);
	return CUDA_SUCCESS;
}

/* What was recorded or waits still does. */
static CUresult destroy(struct call *call, CUevent handle)
{
	struct event *event;
	CUresult error;

	if (!current_context(call, &error))
		return error;
	pthread_mutex_lock(&device_lock);
	event = find_event(call, handle, &error);
	table_take(&events, handle);
	pthread_mutex_unlock(&device_lock);
	if (event)
		event_put(event);
	return error;
}

EXPORT(cuEventCreate, create, (CUevent *out, unsigned int flags), out, flags)
EXPORT(cuEventDestroy_v2, destroy, (CUevent event), event)

/* With the lock held. */
static CUresult submit_record(struct call *call, struct stream *stream, struct event *event, unsigned int flags)
{
	const struct work work = {.kind = EVENT_RECORD, .event = event};
	struct op *op;
	CUresult error;

	if (event->context != stream->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags & CU_EVENT_RECORD_EXTERNAL && !stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream->capture && !(flags & CU_EVENT_RECORD_EXTERNAL))
		return capture_record(call, stream, event);
	error = submit(call, stream, &work, NULL, &op);
	if (op)
		event_set_recorded(event, op);
	op_put(op);
	return error;
}

static CUresult record(struct call *call, CUevent handle, CUstream stream_handle, unsigned int flags)
{
	struct stream *stream;
	struct event *event;
	CUresult error;

	say_u64(call, "flags", flags);
	if (flags > CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, stream_handle, &error);
	event = find_event(call, handle, &error);
	if (stream && event)
		error = submit_record(call, stream, event, flags);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT_BOTH(cuEventRecord, _ptsz, record, (CUevent event, CUstream stream), event, stream, 0)
EXPORT_BOTH(cuEventRecordWithFlags, _ptsz, record, (CUevent event, CUstream stream, unsigned int flags), event, stream, flags)

/* With the lock held. An event that was never recorded binds nothing. */
static CUresult submit_wait(struct call *call, struct stream *stream, struct event *event, unsigned int flags)
{
	const struct work work = {.kind = WAIT_EVENT, .event = event};

	if (flags & CU_EVENT_WAIT_EXTERNAL && !stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if ((stream->capture || event->point.capture) && !(flags & CU_EVENT_WAIT_EXTERNAL))
		return capture_wait(call, stream, event);
	if (!event->recorded && !stream->capture)
		return capture_permits_work(stream);
	return submit(call, stream, &work, event->recorded, NULL);
}

static CUresult wait_event(struct call *call, CUstream stream_handle, CUevent handle, unsigned int flags)
{
	struct stream *stream;
	struct event *event;
	CUresult error;

	say_u64(call, "flags", flags);
	if (flags > CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, stream_handle, &error);
	event = find_event(call, handle, &error);
	if (stream && event)
		error = submit_wait(call, stream, event, flags);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT_BOTH(cuStreamWaitEvent, _ptsz, wait_event, (CUstream stream, CUevent event, unsigned int flags), stream, event, flags)

/* The latest record of an event, with a reference; NULL if there is none, which is no error. */
static CUresult find_recorded(struct call *call, CUevent handle, struct op **op, unsigned *flags)
{
	struct event *event;
	CUresult error;

	*op = NULL;
	pthread_mutex_lock(&device_lock);
	if (current_context(call, &error)) {
		event = find_event(call, handle, &error);
		if (event)
			error = capture_permits_event(&event->point);
		if (event && event->recorded && error == CUDA_SUCCESS)
			*op = op_get(event->recorded);
		*flags = event ? event->flags : 0;
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult synchronize(struct call *call, CUevent handle)
{
	struct ops ops = {0};
	struct op *op;
	unsigned flags;
	CUresult error = find_recorded(call, handle, &op, &flags);

	if (!op)
		return error;
	ops_add(&ops, op);
	wait_and_clear(call, &ops, choose_wait(op->stream->context, flags & CU_EVENT_BLOCKING_SYNC));
	op_put(op);
	return CUDA_SUCCESS;
}

static CUresult query(struct call *call, CUevent handle)
{
	struct op *op;
	unsigned flags;
	CUresult error = find_recorded(call, handle, &op, &flags);

	if (op) {
		say_u64(call, "record", op->id);
		error = op_done(op) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	}
	op_put(op);
	return error;
}

EXPORT(cuEventSynchronize, synchronize, (CUevent event), event)
EXPORT_STEPPED(cuEventQuery, "endbr64", query, (CUevent event), event)

/* With the lock held: both records, if they can be compared. */
static CUresult find_both(CUevent start_handle, CUevent end_handle, struct op **start, struct op **end)
{
	const struct event *first = table_get(&events, start_handle), *second = table_get(&events, end_handle);

	if (!first || !second)
		return CUDA_ERROR_INVALID_HANDLE;
	if (first->point.capture || second->point.capture)
		return CUDA_ERROR_INVALID_VALUE;
	if (!first->recorded || !second->recorded || first->context != second->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if ((first->flags | second->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!op_done(first->recorded) || !op_done(second->recorded))
		return CUDA_ERROR_NOT_READY;
	*start = first->recorded;
	*end = second->recorded;
	return CUDA_SUCCESS;
}

static CUresult elapsed(struct call *call, float *milliseconds, CUevent start_handle, CUevent end_handle)
{
	struct op *start, *end;
	CUresult error;

	if (!current_context(call, &error))
		return error;
	say_handle(call, "start_event_handle", start_handle);
	say_handle(call, "end_event_handle", end_handle);
	pthread_mutex_lock(&device_lock);
	error = find_both(start_handle, end_handle, &start, &end);
	if (error == CUDA_SUCCESS)
		*milliseconds = (float)((double)(int64_t)(end->end_ns - start->end_ns) / 1e6);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuEventElapsedTime, elapsed, (float *milliseconds, CUevent start, CUevent end), milliseconds, start, end)
EXPORT(cuEventElapsedTime_v2, elapsed, (float *milliseconds, CUevent start, CUevent end), milliseconds, start, end)
