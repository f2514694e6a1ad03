// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: graphs and their nodes. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

TABLE(graphs, 4096);
TABLE(nodes, 1 << 18);

struct graph *graph_new(void)
{
	static unsigned last_index;
	struct graph *graph = must(calloc(1, sizeof(*graph)));

	graph->index = ++last_index;
	graph->handle = must(table_put(&graphs, graph));
	return graph;
}

void graph_free(struct graph *graph)
{
	if (!graph)
		return;
	table_take(&graphs, graph->handle);
	for (size_t i = 0; i < graph->count; i++) {
		struct node *node = graph->nodes[i];

		table_take(&nodes, node->handle);
		work_drop(&node->work);
		graph_free(node->child);
		free(node->after);
		free(node);
	}
	free(graph->nodes);
	free(graph);
}

struct graph *find_graph(CUgraph handle)
{
	return table_get(&graphs, handle);
}

struct node *find_node(CUgraphNode handle)
{
	return table_get(&nodes, handle);
}

void say_graph(struct call *call, const struct graph *graph)
{
	say_handle(call, "graph_handle", graph->handle);
	say_u64(call, "graph", graph->index);
}

static struct node *new_node(struct graph *graph)
{
	static uint64_t last_identity;
	struct node *node = must(calloc(1, sizeof(*node)));

	node->identity = ++last_identity;
	node->graph = graph;
	node->number = (unsigned)graph->count;
	node->handle = must(table_put(&nodes, node));
	graph->nodes = grown(graph->nodes, graph->count, &graph->size, sizeof(struct node *));
	graph->nodes[graph->count++] = node;
	return node;
}

bool node_add_after(struct node *node, struct node *before)
{
	for (size_t i = 0; i < node->after_count; i++)
		if (node->after[i] == before)
			return false;
	node->after = grown(node->after, node->after_count, &node->after_size, sizeof(struct node *));
	node->after[node->after_count++] = before;
	return true;
}

struct graph *graph_copy(const struct graph *from)
{
	struct graph *graph = graph_new();

	graph->depth = from->depth;
	graph->allocates = from->allocates;
	for (size_t i = 0; i < from->count; i++) {
		const struct node *original = from->nodes[i];
		struct node *node = new_node(graph);

		node->copied_from = original->identity;
		node->made_by = original->made_by;
		node->work = work_copy(&original->work);
		node->child = original->child ? graph_copy(original->child) : NULL;
	}
	for (size_t i = 0; i < from->count; i++)
		for (size_t j = 0; j < from->nodes[i]->after_count; j++)
			node_add_after(graph->nodes[i], graph->nodes[from->nodes[i]->after[j]->number]);
	return graph;
}

struct node *graph_add(struct call *call, struct graph *graph, const struct work *work, const struct graph *child,
		       struct node *const *after, size_t after_count)
{
	struct node *node = new_node(graph);

	node->made_by = call->number;
	node->work = work_copy(work);
	graph->allocates |= work->kind == ALLOC;
	if (child) {
		node->child = graph_copy(child);
		if (graph->depth < child->depth + 1)
			graph->depth = child->depth + 1;
	}
	for (size_t i = 0; i < after_count; i++)
		node_add_after(node, after[i]);
	say_graph(call, graph);
	say_handle(call, "node_handle", node->handle);
	say_u64(call, "node", node->number);
	return node;
}

void graph_leaves(const struct graph *graph, bool *leaf)
{
	memset(leaf, true, graph->count * sizeof(*leaf));
	for (size_t i = 0; i < graph->count; i++)
		for (size_t j = 0; j < graph->nodes[i]->after_count; j++)
			leaf[graph->nodes[i]->after[j]->number] = false;
}

bool graph_order(const struct graph *graph, struct node **order)
{
	bool *placed = must(calloc(graph->count + 1, sizeof(*placed))), progress = true;
	size_t count = 0;

	/* Nodes are nearly always created in such an order: one pass, and more only where edges go back. */
	while (progress) {
		progress = false;
		for (size_t i = 0; i < graph->count; i++) {
			struct node *node = graph->nodes[i];
			bool ready = !placed[i];

			for (size_t j = 0; ready && j < node->after_count; j++)
				ready = placed[node->after[j]->number];
			if (ready) {
				order[count++] = node;
				placed[i] = progress = true;
			}
		}
	}
	free(placed);
	return count == graph->count;
}

/* The API. */

static CUresult create(struct call *call, CUgraph *out, unsigned int flags)
{
	struct graph *graph;

	say_u64(call, "flags", flags);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device_lock);
	graph = graph_new();
	*out = graph->handle;
	say_graph(call, graph);
	pthread_mutex_unlock(&device_lock);
	return CUDA_SUCCESS;
}

static CUresult destroy(struct call *call, CUgraph handle)
{
	struct graph *graph;

	pthread_mutex_lock(&device_lock);
	graph = find_graph(handle);
	if (graph)
		say_graph(call, graph);
	if (graph && !graph->capturing)
		graph_free(graph);
	else
		graph = NULL;
	pthread_mutex_unlock(&device_lock);
	return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult clone(struct call *call, CUgraph *out, CUgraph handle)
{
	const struct graph *from;
	struct graph *graph;
	CUresult error;

	say_handle(call, "from_graph_handle", handle);
	pthread_mutex_lock(&device_lock);
	from = find_graph(handle);
	error = !from ? CUDA_ERROR_INVALID_VALUE : from->allocates ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	if (error == CUDA_SUCCESS) {
		graph = graph_copy(from);
		*out = graph->handle;
		say_u64(call, "from_graph", from->index);
		say_graph(call, graph);
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

static CUresult find_in_clone(struct call *call, CUgraphNode *out, CUgraphNode handle, CUgraph clone_handle)
{
	const struct graph *graph;
	const struct node *original;

	say_handle(call, "node_handle", handle);
	pthread_mutex_lock(&device_lock);
	*out = NULL;
	original = find_node(handle);
	graph = find_graph(clone_handle);
	for (size_t i = 0; original && graph && i < graph->count; i++)
		if (graph->nodes[i]->copied_from == original->identity)
			*out = graph->nodes[i]->handle;
	pthread_mutex_unlock(&device_lock);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_nodes(struct call *call, CUgraph handle, CUgraphNode *out, size_t *count)
{
	const struct graph *graph;

	pthread_mutex_lock(&device_lock);
	graph = find_graph(handle);
	if (graph) {
		size_t room = out ? *count : 0;

		say_graph(call, graph);
		for (size_t i = 0; i < room; i++)
			out[i] = i < graph->count ? graph->nodes[i]->handle : NULL;
		*count = out && graph->count > room ? room : graph->count;
	}
	pthread_mutex_unlock(&device_lock);
	return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT(cuGraphCreate, create, (CUgraph *out, unsigned int flags), out, flags)
EXPORT(cuGraphDestroy, destroy, (CUgraph graph), graph)
EXPORT(cuGraphClone, clone, (CUgraph *out, CUgraph graph), out, graph)
EXPORT(cuGraphNodeFindInClone, find_in_clone, (CUgraphNode *out, CUgraphNode node, CUgraph graph), out, node, graph)
EXPORT(cuGraphGetNodes, get_nodes, (CUgraph graph, CUgraphNode *out, size_t *count), graph, out, count)

static CUresult add_dependencies(struct call *call, CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
				 size_t count)
{
	struct graph *graph;
	CUresult error = CUDA_SUCCESS;

	pthread_mutex_lock(&device_lock);
	graph = find_graph(handle);
	if (graph)
		say_graph(call, graph);
	else
		error = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && error == CUDA_SUCCESS; i++) {
		struct node *before = find_node(from[i]), *after = find_node(to[i]);

		if (!before || !after || before == after || before->graph != graph || after->graph != graph ||
		    !node_add_after(after, before))
			error = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

EXPORT(cuGraphAddDependencies, add_dependencies,
       (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count), graph, from, to, count)

SIMCUDA_API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
					       const CUgraphEdgeData *data, size_t count)
{
	(void)data; /* all edges are full dependencies here */
	ENTER(cuGraphAddDependencies_v2);
	LEAVE(add_dependencies(&call, graph, from, to, count));
}
