// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: graphs, as they are made and as they are launched. With the lock held throughout. */
#ifndef SIMCUDA_GRAPH_H
#define SIMCUDA_GRAPH_H

#include "device.h"

struct node {
	uint64_t identity;    /* never used again */
	uint64_t copied_from; /* identity of the node that this is a copy of, or 0 */
	uint64_t made_by;  /* the call that was captured or that added the node */
	unsigned number;   /* in its graph, from 0 */
	struct graph *graph;
	CUgraphNode handle;
	struct work work;
	struct graph *child; /* its own copy */
	struct node **after;
	size_t after_count, after_size;
};

struct graph {
	unsigned index; /* never used again */
	CUgraph handle;
	bool capturing;
	bool allocates;    /* has nodes that do, and so can be instantiated once and not be copied */
	bool instantiated;
	unsigned depth; /* of the child graphs in it */
	struct node **nodes;
	size_t count, size;
};

#define MAX_DEPTH 8 /* of child graphs */

struct graph *graph_new(void);
void graph_free(struct graph *graph);
struct graph *graph_copy(const struct graph *from);
struct graph *find_graph(CUgraph handle);
struct node *find_node(CUgraphNode handle);
void say_graph(struct call *call, const struct graph *graph);

/* Adds a node that runs the work, or a copy of the child graph, after others of the graph. */
struct node *graph_add(struct call *call, struct graph *graph, const struct work *work, const struct graph *child,
		       struct node *const *after, size_t after_count);
bool node_add_after(struct node *node, struct node *before); /* false: it is there */

/* The nodes in an order in which each comes after those that it depends on; false if there is none. */
bool graph_order(const struct graph *graph, struct node **order);

/* Which nodes nothing in the graph depends on: one flag a node, by number. */
void graph_leaves(const struct graph *graph, bool *leaf);

/* The work of a kernel node. */
CUresult kernel_work(struct call *call, const CUDA_KERNEL_NODE_PARAMS *params, struct work *work);

#endif
