// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: streams, and the order that they give. */
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

/* With the lock held. */

static bool is_idle(const struct stream *stream)
{
	for (size_t i = 0; i < stream->last.count; i++)
		if (!op_done(stream->last.items[i]))
			return false;
	return true;
}

static void forget_closed(struct context *context)
{
	for (struct stream **at = &context->streams; *at;) {
		struct stream *stream = *at;

		if (stream->closing && is_idle(stream)) {
			*at = stream->next;
			ops_clear(&stream->last);
		} else {
			at = &stream->next;
		}
	}
}

struct stream *stream_open(struct context *context, CUstream handle, bool legacy, unsigned flags, unsigned owner)
{
	static unsigned last_index;
	struct stream *stream = must(calloc(1, sizeof(*stream)));

	*stream = (struct stream){.context = context, .handle = handle, .legacy = legacy, .flags = flags, .owner = owner,
				  .non_blocking = flags & CU_STREAM_NON_BLOCKING, .index = ++last_index};
	snprintf(stream->lane.name, sizeof(stream->lane.name), "sim-stream-%u", stream->index % 10000);
	lane_open(&stream->lane);
	forget_closed(context);
	stream->next = context->streams;
	context->streams = stream;
	return stream;
}

/* A closed stream stays with its context until what was submitted to it is done. */
void stream_close(struct stream *stream)
{
	stream->closing = true;
	capture_stream_closed(stream);
	lane_close(&stream->lane);
}

static struct stream *default_stream(struct context *context, bool per_thread)
{
	if (per_thread) {
		for (struct stream *stream = context->streams; stream; stream = stream->next)
			if (stream->owner == thread_number())
				return stream;
		return stream_open(context, CU_STREAM_PER_THREAD, false, 0, thread_number());
	}
	if (!context->legacy)
		context->legacy = stream_open(context, CU_STREAM_LEGACY, true, 0, 0);
	return context->legacy;
}

struct stream *find_stream(struct call *call, CUstream handle, CUresult *error)
{
	struct context *context = current_context(call, error);
	struct stream *stream;

	say_handle(call, "handle", handle);
	if (!context)
		return NULL;
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		stream = default_stream(context, handle == CU_STREAM_PER_THREAD || (!handle && call->per_thread));
	else
		stream = table_get(&streams, handle);
	*error = stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	if (stream) {
		say_u64(call, "stream", stream->index);
		say_context(call, stream->context);
	}
	return stream;
}

/* Whether the order of `other` binds `stream` by the legacy default stream's rule: it waits for every blocking stream
 * and they wait for it. */
static bool legacy_binds(const struct stream *stream, const struct stream *other)
{
	return other != stream && !other->non_blocking && !stream->non_blocking && (stream->legacy || other->legacy);
}

static struct edge *edges;
static size_t edge_count, edge_size;

static void add_edge(struct op *before, const char *why)
{
	edges = grown(edges, edge_count, &edge_size, sizeof(*edges));
	edges[edge_count++] = (struct edge){before, why};
}

size_t next_edges(struct stream *stream, struct edge **out)
{
	edge_count = 0;
	for (size_t i = 0; i < stream->last.count; i++)
		add_edge(stream->last.items[i], "stream");
	for (struct stream *other = stream->context->streams; other; other = other->next)
		for (size_t i = 0; legacy_binds(stream, other) && i < other->last.count; i++)
			if (!op_done(other->last.items[i]))
				add_edge(other->last.items[i], "legacy");
	*out = edges;
	return edge_count;
}

CUresult submit(struct call *call, struct stream *stream, const struct work *work, struct op *after, struct op **out)
{
	CUresult error = capture_permits_work(stream);
	struct edge *before;
	struct op *op;

	if (out)
		*out = NULL;
	if (error != CUDA_SUCCESS)
		return error;
	if (stream->capture)
		return capture_work(call, stream, work);
	next_edges(stream, &before);
	if (after)
		add_edge(after, "event");
	op = op_submit(stream, &stream->lane, work, edges, edge_count, call, NULL);
	ops_clear(&stream->last);
	ops_add(&stream->last, op);
	say_u64(call, "op", op->id);
	if (out)
		*out = op;
	else
		op_put(op);
	return CUDA_SUCCESS;
}

void last_ops(struct context *context, struct stream *stream, struct ops *ops)
{
	for (struct stream *other = context->streams; other; other = other->next)
		if (!stream || other == stream || (stream->legacy && legacy_binds(stream, other)))
			for (size_t i = 0; i < other->last.count; i++)
				ops_add(ops, other->last.items[i]);
}

/* The API. */

static CUresult create(struct call *call, CUstream *out, unsigned int flags, int priority)
{
	struct context *context;
	struct stream *stream;
	CUresult error;

	say_u64(call, "flags", flags);
	if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	context = current_context(call, &error);
	if (!context)
		return error;
	pthread_mutex_lock(&device_lock);
	stream = stream_open(context, NULL, false, flags, 0);
	stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	*out = stream->handle = table_put(&streams, stream);
	if (!*out)
		stream_close(stream);
	pthread_mutex_unlock(&device_lock);
	say_handle(call, "handle", *out);
	say_u64(call, "stream", stream->index);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}


EXPORT(cuStreamCreate, create, (CUstream *out, unsigned int flags), out, flags, 0)
EXPORT(cuStreamCreateWithPriority, create, (CUstream *out, unsigned int flags, int priority), out, flags,
       priority)

/* Returns at once; what was submitted still runs. */
static CUresult destroy(struct call *call, CUstream handle)
{
	struct stream *stream;
	CUresult error;

	say_handle(call, "handle", handle);
	if (!current_context(call, &error))
		return error;
	pthread_mutex_lock(&device_lock);
	stream = table_take(&streams, handle);
	if (stream)
		stream_close(stream);
	pthread_mutex_unlock(&device_lock);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	say_u64(call, "stream", stream->index);
	say_context(call, stream->context);
	return CUDA_SUCCESS;
}

EXPORT(cuStreamDestroy_v2, destroy, (CUstream stream), stream)

/* The operations that `handle` still has to finish. */
static CUresult pending(struct call *call, CUstream handle, struct stream **stream, struct ops *ops)
{
	CUresult error;

	pthread_mutex_lock(&device_lock);
	*stream = find_stream(call, handle, &error);
	if (*stream)
		error = capture_permits_wait((*stream)->context, *stream);
	if (error == CUDA_SUCCESS)
		last_ops((*stream)->context, *stream, ops);
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult synchronize(struct call *call, CUstream handle)
{
	struct stream *stream;
	struct ops ops = {0};
	CUresult error = pending(call, handle, &stream, &ops);

	if (error == CUDA_SUCCESS)
		wait_and_clear(call, &ops, choose_wait(stream->context, false));
	return error;
}

EXPORT_BOTH(cuStreamSynchronize, _ptsz, synchronize, (CUstream stream), stream)

static CUresult query(struct call *call, CUstream handle)
{
	struct stream *stream;
	struct ops ops = {0};
	CUresult error = pending(call, handle, &stream, &ops);

	for (size_t i = 0; i < ops.count; i++)
		if (!op_done(ops.items[i]))
			error = CUDA_ERROR_NOT_READY;
	ops_clear(&ops);
	return error;
}

EXPORT_STEPPED(cuStreamQuery, "", query, (CUstream stream), stream)
EXPORT_VARIANT(cuStreamQuery, _ptsz, query, (CUstream stream), stream)

static struct stream *look_up(struct call *call, CUstream handle, CUresult *error)
{
	struct stream *stream;

	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, error);
	pthread_mutex_unlock(&device_lock);
	return stream;
}

static CUresult get_priority(struct call *call, CUstream handle, int *priority)
{
	CUresult error;
	const struct stream *stream = look_up(call, handle, &error);

	if (stream)
		*priority = stream->priority;
	return error;
}

static CUresult get_flags(struct call *call, CUstream handle, unsigned int *flags)
{
	CUresult error;
	const struct stream *stream = look_up(call, handle, &error);

	if (stream)
		*flags = stream->flags;
	return error;
}

static CUresult get_context(struct call *call, CUstream handle, CUcontext *context)
{
	CUresult error;
	const struct stream *stream = look_up(call, handle, &error);

	if (stream)
		*context = stream->context->handle;
	return error;
}

EXPORT_BOTH(cuStreamGetPriority, _ptsz, get_priority, (CUstream stream, int *priority), stream, priority)
EXPORT_BOTH(cuStreamGetFlags, _ptsz, get_flags, (CUstream stream, unsigned int *flags), stream, flags)
EXPORT_BOTH(cuStreamGetCtx, _ptsz, get_context, (CUstream stream, CUcontext *context), stream, context)
