// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: executable graphs in use. A launch makes an operation of each node: those that depend on none wait
 * for what the stream's next operation would, and what follows on the stream for those that none depends on. Launches of
 * one executable graph do not overlap.
 */
#include "exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TABLE(execs, 4096);

static void say_exec(struct call *call, CUgraphExec handle, const struct exec *exec)
{
	say_handle(call, "exec_handle", handle);
	if (exec)
		say_u64(call, "exec", exec->index);
}

/* Instantiation and update. */

static CUresult instantiate(struct call *call, CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
	static unsigned last_index;
	struct graph *graph;
	struct exec *exec = NULL;
	CUresult error;

	say_u64(call, "flags", flags);
	*out = NULL;
	if (!current_context(call, &error))
		return error;
	if (flags > 15)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	error = capture_permits();
	graph = find_graph(handle);
	if (error == CUDA_SUCCESS && graph && graph->allocates && graph->instantiated)
		error = CUDA_ERROR_NOT_SUPPORTED;
	if (error == CUDA_SUCCESS && graph && !graph->capturing) {
		say_graph(call, graph);
		exec = exec_new(graph);
	}
	if (exec) {
		graph->instantiated = true;
		exec->frees_itself = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
		exec->index = ++last_index;
		*out = must(table_put(&execs, exec));
		say_exec(call, *out, exec);
	}
	pthread_mutex_unlock(&device_lock);
	return *out || error != CUDA_SUCCESS ? error : CUDA_ERROR_INVALID_VALUE;
}

/* To upload at once takes a stream, which only the next has. */
static CUresult instantiate_plain(struct call *call, CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	return flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? CUDA_ERROR_INVALID_VALUE : instantiate(call, out, graph, flags);
}

static CUresult instantiate_with(struct call *call, CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	CUresult error = instantiate(call, out, graph, params->flags);

	params->hErrNode_out = NULL;
	params->result_out = error == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	return error;
}

EXPORT(cuGraphInstantiateWithFlags, instantiate_plain, (CUgraphExec *out, CUgraph graph, unsigned long long flags), out,
       graph, flags)
EXPORT_BOTH(cuGraphInstantiateWithParams, _ptsz, instantiate_with,
	    (CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), out, graph, params)

static bool is_copy(enum op_kind kind)
{
	return kind == HTOD || kind == DTOH || kind == DTOD || kind == PEER;
}

static CUgraphExecUpdateResult compare_nodes(const struct node *old, const struct node *new);

/* Node by node, in the order of their creation. */
static CUgraphExecUpdateResult compare(const struct graph *old, const struct graph *new)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	if (old->count != new->count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < old->count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++)
		result = compare_nodes(old->nodes[i], new->nodes[i]);
	return result;
}

static bool is_after(const struct node *node, unsigned number)
{
	for (size_t i = 0; i < node->after_count; i++)
		if (node->after[i]->number == number)
			return true;
	return false;
}

static CUgraphExecUpdateResult compare_nodes(const struct node *old, const struct node *new)
{
	if (old->after_count != new->after_count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < old->after_count; i++)
		if (!is_after(new, old->after[i]->number))
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (!old->child != !new->child)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (old->child)
		return compare(old->child, new->child);
	if (old->work.kind != new->work.kind && !(is_copy(old->work.kind) && is_copy(new->work.kind)))
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* The nodes do what those of the other graph do, and are as if made by the calls that made those. */
static void take_over(struct exec *old, struct exec *new)
{
	struct graph *graph = old->graph;

	old->graph = new->graph;
	new->graph = graph;
	for (size_t i = 0; i < old->count; i++) {
		work_drop(&old->nodes[i].work);
		old->nodes[i].work = work_copy(&new->nodes[i].work);
		old->nodes[i].origin = new->nodes[i].origin;
	}
}

static CUresult update(struct call *call, CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_ERROR;
	const struct graph *graph;
	struct exec *exec, *new;

	*info = (CUgraphExecUpdateResultInfo){.result = result};
	pthread_mutex_lock(&device_lock);
	exec = table_get(&execs, handle);
	graph = find_graph(graph_handle);
	say_exec(call, handle, exec);
	if (graph)
		say_graph(call, graph);
	if (exec && graph && !graph->capturing)
		result = compare(exec->graph, graph);
	if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
		new = exec_new(graph);
		take_over(exec, new);
		exec_free(new);
	}
	pthread_mutex_unlock(&device_lock);
	info->result = result;
	if (!exec || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	return result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

EXPORT(cuGraphExecUpdate_v2, update, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), exec, graph, info)

static struct exec_node *find_in(const struct exec *exec, CUgraphNode handle)
{
	const struct node *node = find_node(handle);

	for (size_t i = 0; node && exec && i < exec->count; i++)
		if (exec->nodes[i].identity == node->identity && !exec->nodes[i].origin.depth)
			return &exec->nodes[i];
	return NULL;
}

static CUresult set_kernel(struct call *call, CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct exec_node *found;
	struct exec *exec;
	struct work work;
	CUresult error = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&device_lock);
	exec = table_get(&execs, handle);
	found = find_in(exec, node);
	say_exec(call, handle, exec);
	if (found && found->work.kind == KERNEL)
		error = kernel_work(call, params, &work);
	if (error == CUDA_SUCCESS) {
		say_u64(call, "node", found->origin.node);
		found->work = work;
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuGraphExecKernelNodeSetParams_v2, set_kernel,
       (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), exec, node, params)

/* Launch. */

static struct lane *lane_of(struct exec *exec, struct stream *stream, unsigned number)
{
	if (!number)
		return &stream->lane;
	if (!exec->lanes[number]) {
		exec->lanes[number] = must(calloc(1, sizeof(struct lane)));
		snprintf(exec->lanes[number]->name, sizeof(exec->lanes[number]->name), "sim-graph-%u.%u", exec->index % 1000,
			 number % 10);
		lane_open(exec->lanes[number]);
	}
	return exec->lanes[number];
}

static bool has_edge(const struct edge *edges, size_t count, const struct op *op)
{
	for (size_t i = 0; i < count; i++)
		if (edges[i].op == op)
			return true;
	return false;
}

/* What a launch's first nodes wait for. */
static struct edge *launch_edges(struct exec *exec, struct stream *stream, size_t *count)
{
	struct edge *edges, *all;

	*count = next_edges(stream, &edges);
	all = must(calloc(*count + exec->last.count + 1, sizeof(*all)));
	if (*count)
		memcpy(all, edges, *count * sizeof(*all));
	for (size_t i = 0; i < exec->last.count; i++)
		if (!op_done(exec->last.items[i]) && !has_edge(all, *count, exec->last.items[i]))
			all[(*count)++] = (struct edge){exec->last.items[i], "exec"};
	return all;
}

static struct op *launch_node(struct call *call, struct exec *exec, struct stream *stream, struct exec_node *node,
			      const struct edge *first, size_t first_count, struct op *const *made)
{
	size_t count = node->after_count ? node->after_count : first_count;
	struct edge *edges = must(calloc(count + 1, sizeof(*edges)));
	struct op *op, *record;

	for (size_t i = 0; i < count; i++)
		edges[i] = node->after_count ? (struct edge){made[node->after[i]], "graph"} : first[i];
	record = node->work.kind == WAIT_EVENT ? event_recorded(node->work.event) : NULL;
	if (record)
		edges[count++] = (struct edge){record, "event"};
	node->origin.launch = call->number;
	op = op_submit(stream, lane_of(exec, stream, node->lane), &node->work, edges, count, call, &node->origin);
	if (node->work.kind == EVENT_RECORD)
		event_set_recorded(node->work.event, op);
	free(edges);
	return op;
}

static void launch_all(struct call *call, struct exec *exec, struct stream *stream)
{
	struct op **made = must(calloc(exec->count + 1, sizeof(struct op *)));
	size_t first_count;
	struct edge *first = launch_edges(exec, stream, &first_count);

	for (size_t i = 0; i < exec->count; i++)
		made[i] = launch_node(call, exec, stream, &exec->nodes[i], first, first_count, made);
	free(first);
	if (exec->count) {
		say_u64(call, "op", made[0]->id); /* the others follow it without a gap */
		ops_clear(&stream->last);
		ops_clear(&exec->last);
	}
	for (size_t i = 0; i < exec->count; i++) {
		if (exec->nodes[i].leaf) {
			ops_add(&stream->last, made[i]);
			ops_add(&exec->last, made[i]);
		}
		op_put(made[i]);
	}
	free(made);
}

static bool frees(const struct exec *exec, const struct allocation *allocation)
{
	for (size_t i = 0; i < exec->count; i++)
		if (exec->nodes[i].work.kind == FREE && exec->nodes[i].work.touches[0] == allocation)
			return true;
	return false;
}

/* What the graph allocates and does not free is there again, unless the launch before left it. */
static CUresult allocate_again(struct exec *exec)
{
	for (size_t i = 0; i < exec->count; i++) {
		struct allocation *allocation = exec->nodes[i].work.touches[0];

		if (exec->nodes[i].work.kind != ALLOC || frees(exec, allocation))
			continue;
		if (!allocation_is_listed(allocation))
			allocation_list(allocation);
		else if (exec->last.count && !exec->frees_itself)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult launch_on(struct call *call, struct exec *exec, struct stream *stream)
{
	CUresult error = capture_permits_work(stream);

	if (error == CUDA_SUCCESS)
		error = capture_refuses(stream);
	if (error == CUDA_SUCCESS && exec->graph->allocates)
		error = allocate_again(exec);
	if (error != CUDA_SUCCESS)
		return error;
	say_u64(call, "ops", exec->count);
	launch_all(call, exec, stream);
	return CUDA_SUCCESS;
}

static CUresult launch(struct call *call, CUgraphExec handle, CUstream stream_handle)
{
	struct stream *stream;
	struct exec *exec;
	CUresult error;

	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, stream_handle, &error);
	exec = table_get(&execs, handle);
	say_exec(call, handle, exec);
	if (stream)
		error = exec ? launch_on(call, exec, stream) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&device_lock);
	return error;
}

/* Nothing needs to be there before a launch. */
static CUresult upload(struct call *call, CUgraphExec handle, CUstream stream_handle)
{
	struct stream *stream;
	const struct exec *exec;
	CUresult error;

	pthread_mutex_lock(&device_lock);
	stream = find_stream(call, stream_handle, &error);
	exec = table_get(&execs, handle);
	say_exec(call, handle, exec);
	if (stream)
		error = exec ? capture_refuses(stream) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&device_lock);
	return error;
}

/* What was launched still runs. */
static CUresult destroy(struct call *call, CUgraphExec handle)
{
	struct exec *exec = NULL;
	CUresult error;

	pthread_mutex_lock(&device_lock);
	error = capture_permits();
	if (error == CUDA_SUCCESS)
		exec = table_take(&execs, handle);
	say_exec(call, handle, exec);
	if (exec)
		exec_free(exec);
	pthread_mutex_unlock(&device_lock);
	return exec || error != CUDA_SUCCESS ? error : CUDA_ERROR_INVALID_VALUE;
}

EXPORT_BOTH(cuGraphLaunch, _ptsz, launch, (CUgraphExec exec, CUstream stream), exec, stream)
EXPORT_BOTH(cuGraphUpload, _ptsz, upload, (CUgraphExec exec, CUstream stream), exec, stream)
EXPORT(cuGraphExecDestroy, destroy, (CUgraphExec exec), exec)
