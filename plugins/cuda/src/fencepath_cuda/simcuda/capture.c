// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: capture of streams.
 *
 * Each stream that is captured has a set of nodes that its next node comes after. To record a CUDA event there copies the
 * set into the event, to wait for one adds the event's set to the stream's, and brings a stream into the capture that was
 * not in it: neither makes a node. What may not be done in a capture spoils it: it then ends with an error.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

struct capture {
	struct capture *next;
	uint64_t id;
	struct graph *graph;
	struct stream *origin;
	struct stream **members;
	size_t member_count, member_size;
	CUstreamCaptureMode mode;
	unsigned owner; /* the thread that began it */
	bool spoiled;
};

static struct capture *captures;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct capture *find_capture(uint64_t id)
{
	struct capture *capture = captures;

	while (capture && capture->id != id)
		capture = capture->next;
	return capture;
}

static CUresult spoil(struct capture *capture, CUresult error)
{
	if (capture->spoiled)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	capture->spoiled = true;
	return error;
}

/* What may not be done. */

static bool forbids(const struct capture *capture)
{
	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (capture->owner == thread_number())
		return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_permits(void)
{
	CUresult error = CUDA_SUCCESS;

	for (struct capture *capture = captures; capture; capture = capture->next)
		if (forbids(capture)) {
			spoil(capture, error);
			error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return error;
}

/* Spoils the captures that have a stream in a context, of blocking streams only or of all. */
static CUresult spoil_in(const struct context *context, bool blocking_only, CUresult error)
{
	CUresult found = CUDA_SUCCESS;

	for (struct stream *stream = context->streams; stream; stream = stream->next)
		if (stream->capture && !(blocking_only && stream->non_blocking)) {
			spoil(stream->capture, error);
			found = error;
		}
	return found;
}

CUresult capture_refuses(struct stream *stream)
{
	if (!stream->capture)
		return CUDA_SUCCESS;
	stream->capture->spoiled = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_permits_wait(struct context *context, struct stream *stream)
{
	CUresult error;

	if (!stream)
		return spoil_in(context, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	error = capture_refuses(stream);
	if (error == CUDA_SUCCESS)
		error = capture_permits_work(stream);
	return error == CUDA_SUCCESS ? capture_permits() : error;
}

CUresult capture_permits_work(struct stream *stream)
{
	if (!stream->legacy)
		return CUDA_SUCCESS;
	return spoil_in(stream->context, true, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult capture_permits_event(const struct capture_point *point)
{
	struct capture *capture = find_capture(point->capture);

	if (capture && !capture->spoiled)
		return spoil(capture, CUDA_ERROR_CAPTURED_EVENT);
	return point->capture ? CUDA_ERROR_INVALID_VALUE : capture_permits();
}

/* What is captured. */

static void add_captured(struct stream *stream, struct node *node)
{
	for (size_t i = 0; i < stream->captured_count; i++)
		if (stream->captured[i] == node)
			return;
	stream->captured = must(realloc(stream->captured, (stream->captured_count + 1) * sizeof(node)));
	stream->captured[stream->captured_count++] = node;
}

static void set_captured(struct stream *stream, struct node *const *nodes, size_t count)
{
	free(stream->captured);
	stream->captured = NULL;
	stream->captured_count = 0;
	for (size_t i = 0; i < count; i++)
		add_captured(stream, nodes[i]);
}

CUresult capture_work(struct call *call, struct stream *stream, const struct work *work)
{
	struct node *node;

	if (stream->capture->spoiled)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	node = graph_add(call, stream->capture->graph, work, NULL, stream->captured, stream->captured_count);
	set_captured(stream, &node, 1);
	return CUDA_SUCCESS;
}

unsigned capture_graph(const struct stream *stream)
{
	return stream->capture ? stream->capture->graph->index : 0;
}

CUresult capture_record(struct call *call, struct stream *stream, struct event *event)
{
	struct capture_point *point = event_point(event);

	if (stream->capture->spoiled)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	point->capture = stream->capture->id;
	point->nodes = must(realloc(point->nodes, (stream->captured_count + 1) * sizeof(struct node *)));
	if (stream->captured_count)
		memcpy(point->nodes, stream->captured, stream->captured_count * sizeof(struct node *));
	point->count = stream->captured_count;
	say_graph(call, stream->capture->graph);
	return CUDA_SUCCESS;
}

static void join(struct stream *stream, struct capture *capture)
{
	stream->capture = capture;
	set_captured(stream, NULL, 0);
	capture->members = grown(capture->members, capture->member_count, &capture->member_size, sizeof(struct stream *));
	capture->members[capture->member_count++] = stream;
}

CUresult capture_wait(struct call *call, struct stream *stream, struct event *event)
{
	const struct capture_point *point = event_point(event);
	struct capture *capture = find_capture(point->capture);

	if (stream->capture && stream->capture->spoiled)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!point->capture)
		return event_recorded(event) ? spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
	if (!capture || capture->spoiled) { /* it is over, or as good as */
		if (stream->capture)
			spoil(stream->capture, CUDA_ERROR_INVALID_VALUE);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (stream->capture && stream->capture != capture) {
		spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
		return spoil(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	if (stream->legacy)
		return spoil(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (!stream->capture)
		join(stream, capture);
	for (size_t i = 0; i < point->count; i++)
		add_captured(stream, point->nodes[i]);
	say_graph(call, capture->graph);
	return CUDA_SUCCESS;
}

/* Begin and end. */

static CUresult begin_on(struct call *call, struct stream *stream, CUstreamCaptureMode mode)
{
	static uint64_t last_id;
	struct capture *capture;

	if (stream->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = must(calloc(1, sizeof(*capture)));
	*capture = (struct capture){.next = captures, .id = ++last_id, .graph = graph_new(), .origin = stream, .mode = mode,
				    .owner = thread_number()};
	capture->graph->capturing = true;
	captures = capture;
	join(stream, capture);
	say_graph(call, capture->graph);
	return CUDA_SUCCESS;
}

static CUresult begin(struct call *call, CUstream handle, CUstreamCaptureMode mode)
{
	struct stream *stream;
	CUresult error;

	say_u64(call, "mode", mode);
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	if (stream)
		error = begin_on(call, stream, mode);
	pthread_mutex_unlock(&device_lock);
	return error;
}

/* Whether every leaf is among what the stream that began the capture comes after. */
static bool is_joined(const struct capture *capture)
{
	bool *leaf = must(calloc(capture->graph->count + 1, sizeof(*leaf))), joined = true;

	graph_leaves(capture->graph, leaf);
	for (size_t i = 0; i < capture->origin->captured_count; i++)
		leaf[capture->origin->captured[i]->number] = false;
	for (size_t i = 0; i < capture->graph->count; i++)
		joined &= !leaf[i];
	free(leaf);
	return joined;
}

static void remove_capture(struct capture *capture)
{
	struct capture **at = &captures;

	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	for (size_t i = 0; i < capture->member_count; i++) {
		capture->members[i]->capture = NULL;
		set_captured(capture->members[i], NULL, 0);
	}
	free(capture->members);
	free(capture);
}

/* Without the stream that began it, a capture is over; the others are only needed to add to it. */
void capture_stream_closed(struct stream *stream)
{
	struct capture *capture = stream->capture;

	if (capture && capture->origin == stream) {
		graph_free(capture->graph);
		remove_capture(capture);
	}
}

static CUresult end_on(struct call *call, struct stream *stream, CUgraph *out)
{
	struct capture *capture = stream->capture;
	struct graph *graph;
	CUresult error;

	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream) {
		capture->spoiled = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	error = capture->owner != thread_number() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED ?
			CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD :
		capture->spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
		!is_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS;
	graph = capture->graph;
	graph->capturing = false;
	remove_capture(capture);
	say_graph(call, graph);
	say_u64(call, "nodes", graph->count);
	if (error == CUDA_SUCCESS)
		*out = graph->handle;
	else
		graph_free(graph);
	return error;
}

static CUresult end(struct call *call, CUstream handle, CUgraph *out)
{
	struct stream *stream;
	CUresult error;

	pthread_mutex_lock(&device_lock);
	*out = NULL;
	stream = find_stream(call, handle, &error);
	if (stream)
		error = end_on(call, stream, out);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT_BOTH(cuStreamBeginCapture_v2, _ptsz, begin, (CUstream stream, CUstreamCaptureMode mode), stream, mode)
EXPORT_BOTH(cuStreamEndCapture, _ptsz, end, (CUstream stream, CUgraph *graph), stream, graph)

/* Queries. */

static CUstreamCaptureStatus status_of(const struct stream *stream)
{
	return !stream->capture	       ? CU_STREAM_CAPTURE_STATUS_NONE :
	       stream->capture->spoiled ? CU_STREAM_CAPTURE_STATUS_INVALIDATED :
					  CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Of the legacy stream it cannot be told while a blocking stream is captured, which this does not spoil. */
static CUresult check_legacy(const struct stream *stream)
{
	for (const struct stream *other = stream->context->streams; stream->legacy && other; other = other->next)
		if (other->capture && !other->non_blocking)
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return CUDA_SUCCESS;
}

/* What is asked for with NULL is not wanted. */
struct info {
	CUstreamCaptureStatus *status;
	cuuint64_t *id;
	CUgraph *graph;
	const CUgraphNode **after;
	const CUgraphEdgeData **data;
	size_t *count;
};

static void tell(const struct stream *stream, const struct info *info)
{
	static __thread CUgraphNode *handles; /* valid until the next call */

	*info->status = status_of(stream);
	if (*info->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return;
	handles = must(realloc(handles, (stream->captured_count + 1) * sizeof(*handles)));
	for (size_t i = 0; i < stream->captured_count; i++)
		handles[i] = stream->captured[i]->handle;
	if (info->id)
		*info->id = stream->capture->id;
	if (info->graph)
		*info->graph = stream->capture->graph->handle;
	if (info->after)
		*info->after = handles;
	if (info->data)
		*info->data = NULL;
	if (info->count)
		*info->count = stream->captured_count;
}

static CUresult get_info(struct call *call, CUstream handle, const struct info *info)
{
	struct stream *stream;
	CUresult error;

	if (!info->status)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, handle, &error);
	if (stream)
		error = check_legacy(stream);
	if (error == CUDA_SUCCESS)
		tell(stream, info);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT_BOTH(cuStreamIsCapturing, _ptsz, get_info, (CUstream stream, CUstreamCaptureStatus *status), stream,
	    &(struct info){.status = status})
EXPORT_BOTH(cuStreamGetCaptureInfo_v3, _ptsz, get_info,
	    (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **after,
	     const CUgraphEdgeData **data, size_t *count),
	    stream, (&(struct info){status, id, graph, after, data, count}))

static CUresult exchange_mode(struct call *call, CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	say_u64(call, "mode", *mode);
	if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

EXPORT(cuThreadExchangeStreamCaptureMode, exchange_mode, (CUstreamCaptureMode *mode), mode)
