// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Truth: what the simulated library did, in its own words.
 *
 * With SIMCUDA_TRUTH=path each API call and each operation becomes a line of JSON there. Lines of one thread are in
 * order, those of several are not. Times are CLOCK_MONOTONIC in nanoseconds. A process that is killed loses the last
 * tenth of a second.
 */
#ifndef SIMCUDA_TRUTH_H
#define SIMCUDA_TRUTH_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

uint64_t now_ns(void);
int thread_id(void);

bool truth_on(void);

/* A line being written; what does not fit is left out, whole members at a time. */
struct line {
	char *text;
	size_t used, size;
};

void line_start(struct line *line, char *text, size_t size, const char *type);
void line_u64(struct line *line, const char *key, uint64_t value);
void line_hex(struct line *line, const char *key, uint64_t value);
void line_text(struct line *line, const char *key, const char *value);
void line_ids(struct line *line, const char *key, const uint64_t *ids, size_t count);
void line_edge(struct line *line, bool first, uint64_t op, const char *why);
void line_raw(struct line *line, const char *text);
void truth_write(struct line *line);

/* An API call in progress. libcudart's calls come through the same functions (simcuda_calls), so that numbers are one
 * sequence and a driver call knows the runtime call it was made for. */
struct call {
	uint64_t number, begin_ns;
	struct call *outer;
	const char *name;
	int forced; /* the result that SIMCUDA_FAIL asks for, 0 for none */
	bool written;
	struct line line;
	char text[1024];
};

/* Returns whether the call is to fail at once with call->forced. */
bool call_begin(struct call *call, const char *name);
int call_end(struct call *call, int result);

struct simcuda_calls {
	bool (*begin)(struct call *call, const char *name);
	int (*end)(struct call *call, int result);
	void (*u64)(struct line *line, const char *key, uint64_t value);
	void (*hex)(struct line *line, const char *key, uint64_t value);
	void (*text)(struct line *line, const char *key, const char *value);
};

/* Opens an API function: the call, and its failure on demand. */
#define ENTER(function)                                                                                                  \
	struct call call;                                                                                                \
	if (call_begin(&call, #function))                                                                                \
		return (CUresult)call_end(&call, call.forced)
#define LEAVE(result) return (CUresult)call_end(&call, (int)(result))
#define ARG_U64(key, value)                                                                                              \
	do {                                                                                                             \
		if (call.written)                                                                                        \
			line_u64(&call.line, key, (uint64_t)(value));                                                    \
	} while (0)
#define ARG_HEX(key, value)                                                                                              \
	do {                                                                                                             \
		if (call.written)                                                                                        \
			line_hex(&call.line, key, (uint64_t)(uintptr_t)(value));                                         \
	} while (0)
#define ARG_TEXT(key, value)                                                                                             \
	do {                                                                                                             \
		if (call.written)                                                                                        \
			line_text(&call.line, key, value);                                                               \
	} while (0)

#endif
