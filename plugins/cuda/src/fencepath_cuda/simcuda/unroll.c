// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: how a graph becomes a row of nodes, and which of them may run side by side. */
#include <stdlib.h>
#include <string.h>

#include "exec.h"

/* Places in a row. */
struct places {
	size_t *items, count, size;
};

static void add_place(struct places *places, size_t place)
{
	for (size_t i = 0; i < places->count; i++)
		if (places->items[i] == place)
			return;
	places->items = grown(places->items, places->count, &places->size, sizeof(size_t));
	places->items[places->count++] = place;
}

static void add_places(struct places *places, const struct places *more)
{
	for (size_t i = 0; i < more->count; i++)
		add_place(places, more->items[i]);
}

static size_t add_node(struct exec *exec, const struct node *node, const struct origin *outer, struct places *after)
{
	struct exec_node *row;

	exec->nodes = grown(exec->nodes, exec->count, &exec->size, sizeof(*exec->nodes));
	row = &exec->nodes[exec->count];
	*row = (struct exec_node){.identity = node->identity, .work = work_copy(&node->work), .origin = *outer,
				  .after = after->items, .after_count = after->count, .leaf = true};
	row->origin.made_by = node->made_by;
	row->origin.node = node->number;
	for (size_t i = 0; i < after->count; i++)
		exec->nodes[after->items[i]].leaf = false;
	*after = (struct places){0};
	return exec->count++;
}

/* Adds a graph's nodes, its roots after `before`; its leaves are added to `ends`. */
static bool add_graph(struct exec *exec, const struct graph *graph, const struct origin *outer, const struct places *before,
		      struct places *ends);

static bool add_child(struct exec *exec, const struct node *node, const struct origin *outer, struct places *after,
		      struct places *ends)
{
	struct origin inner = *outer;
	bool ordered;

	inner.path[inner.depth++] = node->number;
	ordered = add_graph(exec, node->child, &inner, after, ends);
	free(after->items);
	*after = (struct places){0};
	return ordered;
}

static bool add_graph(struct exec *exec, const struct graph *graph, const struct origin *outer, const struct places *before,
		      struct places *ends)
{
	struct node **order = must(calloc(graph->count + 1, sizeof(*order)));
	struct places *ends_of = must(calloc(graph->count + 1, sizeof(*ends_of)));
	bool *leaf = must(calloc(graph->count + 1, sizeof(*leaf)));
	bool ordered = graph_order(graph, order);

	graph_leaves(graph, leaf);
	for (size_t i = 0; ordered && i < graph->count; i++) {
		const struct node *node = order[i];
		struct places after = {0}, *own = &ends_of[node->number];

		for (size_t j = 0; j < node->after_count; j++)
			add_places(&after, &ends_of[node->after[j]->number]);
		if (!node->after_count)
			add_places(&after, before);
		if (node->child && node->child->count)
			ordered = add_child(exec, node, outer, &after, own);
		else
			add_place(own, add_node(exec, node, outer, &after));
		if (leaf[node->number])
			add_places(ends, own);
	}
	for (size_t i = 0; i < graph->count; i++)
		free(ends_of[i].items);
	free(ends_of);
	free(order);
	free(leaf);
	return ordered;
}

/* Lanes: a node continues the lane of one that it depends on, directly or not, if no other has; else it opens one. So a
 * lane orders nothing that the graph does not. */

static void mark_before(const struct exec *exec, size_t place, bool *before)
{
	memset(before, 0, exec->count * sizeof(*before));
	before[place] = true;
	for (size_t at = place + 1; at-- > 0;)
		for (size_t i = 0; before[at] && i < exec->nodes[at].after_count; i++)
			before[exec->nodes[at].after[i]] = true;
}

static unsigned choose_lane(const struct exec *exec, size_t place, const size_t *last, bool *before)
{
	const struct exec_node *node = &exec->nodes[place];

	for (size_t i = 0; i < node->after_count; i++)
		if (last[exec->nodes[node->after[i]].lane] == node->after[i])
			return exec->nodes[node->after[i]].lane;
	mark_before(exec, place, before);
	for (unsigned lane = 0; lane < exec->lane_count; lane++)
		if (before[last[lane]])
			return lane;
	return exec->lane_count;
}

static void choose_lanes(struct exec *exec)
{
	size_t *last = must(calloc(exec->count + 1, sizeof(*last)));
	bool *before = must(calloc(exec->count + 1, sizeof(*before)));

	for (size_t i = 0; i < exec->count; i++) {
		unsigned lane = choose_lane(exec, i, last, before);

		exec->nodes[i].lane = lane;
		last[lane] = i;
		if (lane == exec->lane_count)
			exec->lane_count++;
	}
	exec->lanes = must(calloc(exec->lane_count + 1, sizeof(*exec->lanes)));
	free(before);
	free(last);
}

struct exec *exec_new(const struct graph *graph)
{
	struct exec *exec = must(calloc(1, sizeof(*exec)));
	struct places none = {0}, ends = {0};
	bool ordered = add_graph(exec, graph, &(struct origin){0}, &none, &ends);

	free(ends.items);
	if (!ordered) {
		exec_free(exec);
		return NULL;
	}
	exec->graph = graph_copy(graph);
	choose_lanes(exec);
	return exec;
}

void exec_free(struct exec *exec)
{
	for (size_t i = 0; i < exec->count; i++) {
		work_drop(&exec->nodes[i].work);
		free(exec->nodes[i].after);
	}
	for (unsigned i = 1; exec->lanes && i < exec->lane_count; i++)
		if (exec->lanes[i])
			lane_close(exec->lanes[i]);
	ops_clear(&exec->last);
	graph_free(exec->graph);
	free(exec->lanes);
	free(exec->nodes);
	free(exec);
}
