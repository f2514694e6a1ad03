// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: executable graphs. One is a row of nodes, child graphs resolved, each after those it depends on. */
#ifndef SIMCUDA_EXEC_H
#define SIMCUDA_EXEC_H

#include "graph.h"

struct exec_node {
	uint64_t identity;
	struct work work;
	struct origin origin;
	size_t *after; /* places in the row */
	size_t after_count;
	bool leaf;
	unsigned lane; /* 0 is the stream's own */
};

struct exec {
	unsigned index; /* never used again */
	bool frees_itself; /* memory that a launch left allocated is freed by the next */
	struct graph *graph; /* its own copy */
	struct exec_node *nodes;
	size_t count, size;
	struct lane **lanes; /* 1 and up, made when first needed */
	unsigned lane_count;
	struct ops last; /* of the latest launch */
};

/* NULL: the graph has a cycle. */
struct exec *exec_new(const struct graph *graph);
void exec_free(struct exec *exec);

#endif
