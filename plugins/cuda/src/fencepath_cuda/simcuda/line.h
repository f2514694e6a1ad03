// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Lines of JSON, written member by member. */
#ifndef SIMCUDA_LINE_H
#define SIMCUDA_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line being written. It begins in memory of its user's and moves to the heap if it does not fit there. */
struct line {
	char *text, *heap;
	size_t used, size;
};

void line_start(struct line *line, char *text, size_t size, const char *type);
void line_u64(struct line *line, const char *key, uint64_t value);
void line_hex(struct line *line, const char *key, uint64_t value);
void line_text(struct line *line, const char *key, const char *value);
void line_ids(struct line *line, const char *key, const uint64_t *ids, size_t count);
/* One more [OP,"WHY"] of a list that was opened with line_raw. */
void line_edge(struct line *line, bool first, uint64_t op, const char *why);
void line_raw(struct line *line, const char *text);

#endif
