// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Truth: what the simulated library did, in its own words.
 *
 * With SIMCUDA_TRUTH=path each API call and each operation becomes a line of JSON there; %p in the path is the process id.
 * Lines of one thread are in order, those of several are not. Times are CLOCK_MONOTONIC in nanoseconds. A process that is
 * killed loses the last tenth of a second.
 */
#ifndef SIMCUDA_TRUTH_H
#define SIMCUDA_TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "line.h"
#include "simcuda.h"

uint64_t now_ns(void);
int thread_id(void);

bool truth_on(void);

/* Ends a line and writes it. */
void truth_write(struct line *line);

/* An API call in progress. libcudart's calls come through the same functions (simcuda_calls), so that numbers are one
 * sequence and a driver call knows the runtime call it was made for. */
struct call {
	uint64_t number, begin_ns;
	struct call *outer;
	const char *name;
	int forced; /* the result that SIMCUDA_FAIL asks for, 0 for none */
	bool written;
	bool per_thread; /* handle 0 is the calling thread's default stream */
	unsigned context; /* number of the context it worked on, 0 for none */
	uint64_t context_handle;
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
};

/* Defines an API function, whose body is a function of the call and the arguments. */
#define DEFINE_CALL(attributes, symbol, name, is_per_thread, body, parameters, ...)                                      \
	attributes CUresult symbol parameters                                                                            \
	{                                                                                                                \
		struct call call;                                                                                        \
                                                                                                                         \
		if (call_begin(&call, name))                                                                             \
			return (CUresult)call_end(&call, call.forced);                                                   \
		call.per_thread = is_per_thread;                                                                         \
		return (CUresult)call_end(&call, (int)body(&call, ##__VA_ARGS__));                                       \
	}
#define EXPORT(name, body, parameters, ...) DEFINE_CALL(SIMCUDA_API, name, #name, false, body, parameters, ##__VA_ARGS__)

/* The same, and its variant (_ptsz or _ptds) that means the calling thread's default stream by handle 0. */
#define EXPORT_BOTH(name, suffix, body, parameters, ...)                                                                 \
	EXPORT(name, body, parameters, ##__VA_ARGS__)                                                                    \
	EXPORT_VARIANT(name, suffix, body, parameters, ##__VA_ARGS__)
#define EXPORT_VARIANT(name, suffix, body, parameters, ...)                                                              \
	DEFINE_CALL(SIMCUDA_API, name##suffix, #name #suffix, true, body, parameters, ##__VA_ARGS__)

/*
 * What a uprobe costs depends on the instruction under it: the kernel emulates push and nop and single-steps others. Nearly
 * all functions of NVIDIA's begin with a push, and so do those here; these two are for the exceptions. `landing` is
 * "endbr64" or nothing. Of a stepped function no argument may be on the stack.
 */
#if defined(__x86_64__)
#define EXPORT_STEPPED(name, landing, body, parameters, ...)                                                             \
	__asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" landing \
		"\nsub $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall stepped_" #name                                         \
		"\nadd $8, %rsp\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n.size " #name ", . - " #name "\n");       \
	__attribute__((visibility("hidden"), used)) __typeof__(name) stepped_##name;                                     \
	DEFINE_CALL(, stepped_##name, #name, false, body, parameters, ##__VA_ARGS__)
#define EXPORT_NOP(name, body, parameters, ...)                                                                          \
	DEFINE_CALL(SIMCUDA_API __attribute__((patchable_function_entry(1))), name, #name, false, body, parameters,      \
		    ##__VA_ARGS__)
#else
#define EXPORT_STEPPED(name, landing, body, parameters, ...) EXPORT(name, body, parameters, ##__VA_ARGS__)
#define EXPORT_NOP(name, body, parameters, ...) EXPORT(name, body, parameters, ##__VA_ARGS__)
#endif

/* Opens and closes an API function that has its body in place. */
#define ENTER(function)                                                                                                  \
	struct call call;                                                                                                \
	if (call_begin(&call, #function))                                                                                \
		return (CUresult)call_end(&call, call.forced)
#define LEAVE(result) return (CUresult)call_end(&call, (int)(result))

/* Members of a call's line. */
static inline void say_u64(struct call *call, const char *key, uint64_t value)
{
	if (call->written)
		line_u64(&call->line, key, value);
}

static inline void say_hex(struct call *call, const char *key, uint64_t value)
{
	if (call->written)
		line_hex(&call->line, key, value);
}

static inline void say_handle(struct call *call, const char *key, const void *handle)
{
	say_hex(call, key, (uintptr_t)handle);
}

static inline void say_text(struct call *call, const char *key, const char *value)
{
	if (call->written)
		line_text(&call->line, key, value);
}

#endif
