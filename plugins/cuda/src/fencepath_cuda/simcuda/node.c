// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: nodes that a program adds to a graph itself. */
#include <stdlib.h>

#include "graph.h"

/* What all functions that add a node are given. */
struct target {
	CUgraphNode *out;
	CUgraph graph;
	const CUgraphNode *after;
	size_t count;
};

#define PLACE CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count
#define HERE &(struct target){out, graph, after, count}

/* With the lock held. */
static CUresult add_to(struct call *call, const struct target *target, struct graph *graph, const struct work *work,
		       const struct graph *child)
{
	struct node **before = must(calloc(target->count + 1, sizeof(*before)));
	CUresult error = CUDA_SUCCESS;

	for (size_t i = 0; i < target->count; i++) {
		before[i] = find_node(target->after[i]);
		if (!before[i] || before[i]->graph != graph)
			error = CUDA_ERROR_INVALID_VALUE;
		for (size_t j = 0; j < i; j++)
			if (before[j] == before[i])
				error = CUDA_ERROR_INVALID_VALUE;
	}
	if (error == CUDA_SUCCESS)
		*target->out = graph_add(call, graph, work, child, before, target->count)->handle;
	free(before);
	return error;
}

static CUresult add(struct call *call, const struct target *target, const struct work *work, const struct graph *child)
{
	struct graph *graph = find_graph(target->graph);

	return graph && !graph->capturing ? add_to(call, target, graph, work, child) : CUDA_ERROR_INVALID_VALUE;
}

/* The context that a node is given, else the current one. */
static const struct context *context_of(CUcontext handle, struct call *call, CUresult *error)
{
	const struct context *context = handle ? table_get(&contexts, handle) : current_context(call, error);

	if (handle)
		*error = context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (context)
		say_context(call, context);
	return context;
}

CUresult kernel_work(struct call *call, const CUDA_KERNEL_NODE_PARAMS *params, struct work *work)
{
	const void *function = params->func ? (const void *)params->func : (const void *)params->kern;
	const struct context *context;
	uint64_t default_ns;
	CUresult error;

	say_shape(call, &params->gridDimX, &params->blockDimX, params->sharedMemBytes);
	say_handle(call, "function", function);
	context = context_of(params->ctx, call, &error);
	if (!context)
		return error;
	*work = (struct work){.kind = KERNEL};
	work->name = params->func ? find_function(context, params->func, &default_ns) : find_kernel(params->kern, &default_ns);
	if (!work->name)
		return CUDA_ERROR_INVALID_HANDLE;
	say_text(call, "kernel", work->name);
	return kernel_ns(params->kernelParams, params->extra, default_ns, &work->duration_ns) ? CUDA_SUCCESS :
												CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_kernel(struct call *call, const struct target *target, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct work work;
	CUresult error;

	pthread_mutex_lock(&device_lock);
	error = kernel_work(call, params, &work);
	if (error == CUDA_SUCCESS)
		error = add(call, target, &work, NULL);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuGraphAddKernelNode_v2, add_kernel, (PLACE, const CUDA_KERNEL_NODE_PARAMS *params), HERE, params)

/* Copies: one row of bytes. */

static void *end_of(CUmemorytype type, const void *host, CUdeviceptr device)
{
	return type == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)host : (void *)(uintptr_t)device;
}

static CUresult copy_work(const CUDA_MEMCPY3D *params, struct work *work)
{
	bool from_host = params->srcMemoryType == CU_MEMORYTYPE_HOST, to_host = params->dstMemoryType == CU_MEMORYTYPE_HOST;
	unsigned on_device = DEVICE_MEMORY | MANAGED_MEMORY;

	if (params->Height > 1 || params->Depth > 1 || (from_host && to_host))
		return CUDA_ERROR_NOT_SUPPORTED;
	*work = (struct work){
		.kind = from_host ? HTOD : to_host ? DTOH : DTOD,
		.from = (char *)end_of(params->srcMemoryType, params->srcHost, params->srcDevice) + params->srcXInBytes,
		.to = (char *)end_of(params->dstMemoryType, params->dstHost, params->dstDevice) + params->dstXInBytes,
		.bytes = params->WidthInBytes,
		.duration_ns = copy_ns(params->WidthInBytes),
	};
	work->touches[0] = find_allocation(work->to, work->bytes, to_host ? HOST_MEMORY : on_device);
	work->touches[1] = find_allocation(work->from, work->bytes, from_host ? HOST_MEMORY : on_device);
	return (work->touches[0] || to_host) && (work->touches[1] || from_host) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_copy(struct call *call, const struct target *target, const CUDA_MEMCPY3D *params, CUcontext context)
{
	struct work work;
	CUresult error;

	say_u64(call, "bytes", params->WidthInBytes);
	pthread_mutex_lock(&device_lock);
	error = !context || context_of(context, call, &error) ? copy_work(params, &work) : CUDA_ERROR_INVALID_CONTEXT;
	if (error == CUDA_SUCCESS)
		error = add(call, target, &work, NULL);
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuGraphAddMemcpyNode, add_copy, (PLACE, const CUDA_MEMCPY3D *params, CUcontext context), HERE, params, context)

static CUresult add_set(struct call *call, const struct target *target, const CUDA_MEMSET_NODE_PARAMS *params,
			CUcontext context)
{
	struct work work = {.kind = MEMSET, .to = (void *)(uintptr_t)params->dst, .value = params->value,
			    .unit = params->elementSize, .bytes = params->width * params->elementSize};
	CUresult error;

	say_u64(call, "bytes", work.bytes);
	if ((work.unit != 1 && work.unit != 2 && work.unit != 4) || params->height != 1)
		return CUDA_ERROR_INVALID_VALUE;
	work.duration_ns = copy_ns(work.bytes);
	pthread_mutex_lock(&device_lock);
	work.touches[0] = find_allocation(work.to, work.bytes, DEVICE_MEMORY | MANAGED_MEMORY);
	if (context && !context_of(context, call, &error))
		error = CUDA_ERROR_INVALID_CONTEXT;
	else
		error = work.touches[0] ? add(call, target, &work, NULL) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuGraphAddMemsetNode, add_set, (PLACE, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context), HERE, params, context)

static CUresult add_locked(struct call *call, const struct target *target, const struct work *work)
{
	CUresult error;

	pthread_mutex_lock(&device_lock);
	error = add(call, target, work, NULL);
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult add_host(struct call *call, const struct target *target, const CUDA_HOST_NODE_PARAMS *params)
{
	say_hex(call, "function", (uintptr_t)params->fn);
	if (!params->fn)
		return CUDA_ERROR_INVALID_VALUE;
	return add_locked(call, target,
			  &(struct work){.kind = HOST_FUNC, .function = params->fn, .data = params->userData});
}

static CUresult add_empty(struct call *call, const struct target *target)
{
	return add_locked(call, target, &(struct work){.kind = EMPTY});
}

static CUresult add_event(struct call *call, const struct target *target, enum op_kind kind, CUevent handle)
{
	struct work work = {.kind = kind};
	CUresult error = CUDA_ERROR_INVALID_HANDLE;

	say_handle(call, "event_handle", handle);
	pthread_mutex_lock(&device_lock);
	work.event = table_get(&events, handle);
	if (work.event) {
		say_u64(call, "event", event_number(work.event));
		error = add(call, target, &work, NULL);
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult add_child(struct call *call, const struct target *target, CUgraph handle)
{
	const struct graph *child;
	CUresult error = CUDA_ERROR_INVALID_VALUE;

	say_handle(call, "child_graph_handle", handle);
	pthread_mutex_lock(&device_lock);
	child = find_graph(handle);
	if (child && handle != target->graph && child->depth + 1 < MAX_DEPTH && !child->allocates) {
		say_u64(call, "child_graph", child->index);
		error = add(call, target, &(struct work){.kind = EMPTY}, child);
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuGraphAddHostNode, add_host, (PLACE, const CUDA_HOST_NODE_PARAMS *params), HERE, params)
EXPORT(cuGraphAddEmptyNode, add_empty, (PLACE), HERE)
EXPORT(cuGraphAddEventRecordNode, add_event, (PLACE, CUevent event), HERE, EVENT_RECORD, event)
EXPORT(cuGraphAddEventWaitNode, add_event, (PLACE, CUevent event), HERE, WAIT_EVENT, event)
EXPORT(cuGraphAddChildGraphNode, add_child, (PLACE, CUgraph child), HERE, child)
