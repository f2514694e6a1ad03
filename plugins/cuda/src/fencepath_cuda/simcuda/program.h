// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The interpreter of programs of CUDA calls: what its steps are given.
 *
 * A program is lines of text, one step each: a name and its arguments, separated by blanks. Handles are slots, a letter and
 * a number, and every thread uses the same ones:
 *
 *     c context    s stream      e CUDA event    b device memory    h pinned host memory    p memory pool
 *     g graph      n graph node  x executable graph
 *
 * Streams are also `null`, `legacy` and `own` (the handles 0, 0x1 and 0x2), host memory `pageable`, and a context `none`.
 * Everything else is a number. A step that names an empty slot is passed over, and one that fails leaves what it would have
 * made empty; neither ends the program. Which steps there are, and what they take, is the table in program_steps.c.
 *
 *     program          the lines before the next such line are one program
 *     thread N         the lines that follow are of thread N (0 first)
 *     barrier N        waits until every thread that has this line has come to it
 *     sleep NS         nanoseconds
 *     ptsz STEP ...    the step through the functions for per-thread default streams (_ptsz, _ptds)
 *     leave            the process ends without waiting for what its contexts have to do
 *     # comment
 */
#ifndef SIMCUDA_PROGRAM_H
#define SIMCUDA_PROGRAM_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MAX_ARGUMENTS = 8, MAX_AFTER = 16, MAX_SLOTS = 256, MAX_THREADS = 16, MAX_BARRIERS = 64, HOST_BYTES = 1 << 20 };

struct step {
	const struct operation *operation;
	int line, result; /* a CUresult, or PASSED_OVER */
	int slots[MAX_ARGUMENTS];
	uint64_t numbers[MAX_ARGUMENTS];
	void *handles[MAX_ARGUMENTS];
	int after_slots[MAX_AFTER];
	void *after[MAX_AFTER]; /* nodes */
	int after_count;
};

enum { PASSED_OVER = -1 };

/*
 * `takes` has a letter for each argument: that of a slot that has to be filled, as a capital of one that is filled by the
 * step, with '-' after it of one that is emptied; 'u' a number; at the end '*' any number of nodes.
 */
struct operation {
	const char *name, *takes;
	CUresult (*run)(struct step *step);
};

extern const struct operation steps[], per_thread_steps[]; /* up to one without name */
extern const struct operation barrier_step, sleep_step;    /* these have no function */

/* A slot's name that is not a number: slot -1 is the first of them. */
extern const struct special {
	char kind;
	const char *name;
	void *handle;
} specials[];

/* The program that was read. */
struct thread {
	pthread_t thread;
	struct step *steps;
	size_t count, size;
};

extern struct thread threads[MAX_THREADS];
extern int thread_count;
extern unsigned barrier_threads[MAX_BARRIERS]; /* bits of the threads that have it */
extern bool leave;

/* Reads one program of a file, or only counts them with `wanted` -1. Returns how many there are. A text that is not understood
 * ends the process with 2. */
int read_programs(FILE *file, int wanted);
void run_program(void);
void print_results(int program);

extern CUfunction spin;
extern char pageable[HOST_BYTES];
void host_function(void *ns); /* sleeps */

/* Fills node slots from one on. */
void fill_nodes(int slot, const CUgraphNode *nodes, size_t count);

#endif
