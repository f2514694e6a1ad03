// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: graphs made by capturing one stream. A graph is a row of operations; launched, each becomes an
 * operation of the stream. Capture of several streams and of CUDA events is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "device.h"

struct graph {
	unsigned index;
	bool failed;
	size_t count;
	struct work *works;
};

TABLE(graphs, 1024);
TABLE(graph_execs, 1024);

void graph_add(struct graph *graph, const struct work *work)
{
	struct work *works = realloc(graph->works, (graph->count + 1) * sizeof(*works));

	if (!works) {
		graph->failed = true;
		return;
	}
	graph->works = works;
	works[graph->count++] = *work;
}

static struct graph *graph_new(const struct graph *from)
{
	static unsigned last_index;
	struct graph *graph = calloc(1, sizeof(*graph));

	if (graph)
		graph->index = ++last_index;
	for (size_t i = 0; graph && from && i < from->count; i++)
		graph_add(graph, &from->works[i]);
	return graph;
}

static void graph_free(struct graph *graph)
{
	if (graph)
		free(graph->works);
	free(graph);
}

SIMCUDA_API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct context *context;
	struct stream *stream;
	CUresult error;

	ENTER(cuStreamBeginCapture_v2);
	ARG_HEX("handle", handle);
	ARG_U64("mode", mode);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, handle);
	error = !stream ? CUDA_ERROR_INVALID_HANDLE :
		stream->legacy ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED :
		stream->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
	if (error == CUDA_SUCCESS)
		stream->capture = graph_new(NULL);
	pthread_mutex_unlock(&device_lock);
	if (stream)
		ARG_U64("stream", stream->index);
	LEAVE(error);
}

SIMCUDA_API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
	struct context *context;
	struct stream *stream;
	struct graph *graph = NULL;
	CUresult error;

	ENTER(cuStreamEndCapture);
	ARG_HEX("handle", handle);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, handle);
	if (stream) {
		graph = stream->capture;
		stream->capture = NULL;
	}
	*out = graph && !graph->failed ? table_put(&graphs, graph) : NULL;
	pthread_mutex_unlock(&device_lock);
	if (stream)
		ARG_U64("stream", stream->index);
	if (!graph)
		LEAVE(stream ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_HANDLE);
	ARG_HEX("graph_handle", *out);
	ARG_U64("graph", graph->index);
	ARG_U64("nodes", graph->count);
	LEAVE(*out ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

SIMCUDA_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct context *context;
	struct stream *stream;
	CUresult error;

	ENTER(cuStreamIsCapturing);
	ARG_HEX("handle", handle);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, handle);
	*status = stream && stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	pthread_mutex_unlock(&device_lock);
	LEAVE(stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

SIMCUDA_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
	struct graph *graph, *exec = NULL;

	ENTER(cuGraphInstantiateWithFlags);
	ARG_HEX("graph_handle", handle);
	ARG_U64("flags", flags);
	pthread_mutex_lock(&device_lock);
	graph = table_get(&graphs, handle);
	if (graph)
		exec = graph_new(graph);
	*out = exec ? table_put(&graph_execs, exec) : NULL;
	pthread_mutex_unlock(&device_lock);
	if (!graph)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	if (!*out) {
		graph_free(exec);
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	}
	ARG_HEX("exec_handle", *out);
	ARG_U64("exec", exec->index);
	LEAVE(CUDA_SUCCESS);
}

static CUresult submit_all(struct stream *stream, const struct graph *exec, struct call *outer, uint64_t *first)
{
	struct op *op;

	for (size_t i = 0; i < exec->count; i++) {
		CUresult error = submit(stream, &exec->works[i], NULL, outer->number, &op);

		if (error != CUDA_SUCCESS)
			return error;
		if (i == 0 && op)
			*first = op->id;
		op_put(op);
	}
	return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
	struct context *context;
	struct stream *stream;
	struct graph *exec;
	uint64_t first = 0;
	CUresult error;

	ENTER(cuGraphLaunch);
	ARG_HEX("exec_handle", handle);
	ARG_HEX("handle", stream_handle);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	pthread_mutex_lock(&device_lock);
	stream = find_stream(context, stream_handle);
	exec = table_get(&graph_execs, handle);
	error = stream && exec ? submit_all(stream, exec, &call, &first) : CUDA_ERROR_INVALID_HANDLE;
	if (exec) {
		ARG_U64("exec", exec->index);
		ARG_U64("ops", exec->count);
	}
	pthread_mutex_unlock(&device_lock);
	if (stream)
		ARG_U64("stream", stream->index);
	if (first)
		ARG_U64("op", first); /* the first; the others follow it without a gap */
	LEAVE(error);
}

SIMCUDA_API CUresult cuGraphExecDestroy(CUgraphExec handle)
{
	struct graph *exec;

	ENTER(cuGraphExecDestroy);
	ARG_HEX("exec_handle", handle);
	pthread_mutex_lock(&device_lock);
	exec = table_take(&graph_execs, handle);
	pthread_mutex_unlock(&device_lock);
	graph_free(exec);
	LEAVE(exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

SIMCUDA_API CUresult cuGraphDestroy(CUgraph handle)
{
	struct graph *graph;

	ENTER(cuGraphDestroy);
	ARG_HEX("graph_handle", handle);
	pthread_mutex_lock(&device_lock);
	graph = table_take(&graphs, handle);
	pthread_mutex_unlock(&device_lock);
	graph_free(graph);
	LEAVE(graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
