// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The interpreter of programs: how steps are carried out. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"
#include "spin.h"

static pthread_barrier_t barriers[MAX_BARRIERS];

static const char kinds[] = "csebhpgnx";
static _Atomic(void *) slots[sizeof(kinds)][MAX_SLOTS];
static _Atomic int graph_of_node[MAX_SLOTS];

CUfunction spin;
char pageable[HOST_BYTES];

static void pause_ns(uint64_t ns)
{
	const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	nanosleep(&time, NULL);
}

void host_function(void *ns)
{
	pause_ns((uintptr_t)ns);
}

static int kind_of(char letter)
{
	return (int)(strchr(kinds, tolower((unsigned char)letter)) - kinds);
}

void fill_nodes(int slot, const CUgraphNode *nodes, size_t count)
{
	for (size_t i = 0; i < count && slot + i < MAX_SLOTS; i++)
		slots[kind_of('n')][(size_t)slot + i] = nodes[i];
}

/* False: a slot is empty. What the step empties is taken at once, so that no other thread can use it any more. */
static bool fill_handles(struct step *step)
{
	int i = 0;

	for (const char *kind = step->operation->takes; *kind; kind++) {
		bool is_slot = islower((unsigned char)*kind) && *kind != 'u';

		if (*kind == '-' || *kind == '*')
			continue;
		if (is_slot && step->slots[i] < 0) {
			step->handles[i] = specials[-1 - step->slots[i]].handle;
		} else if (is_slot) {
			_Atomic(void *) *slot = &slots[kind_of(*kind)][step->slots[i]];

			step->handles[i] = kind[1] == '-' ? atomic_exchange(slot, NULL) : *slot;
			if (!step->handles[i])
				return false;
		}
		i++;
	}
	for (i = 0; i < step->after_count; i++) {
		step->after[i] = slots[kind_of('n')][step->after_slots[i]];
		if (!step->after[i])
			return false;
	}
	return true;
}

/* A node is gone with its graph. */
static void forget_nodes(int graph)
{
	for (int i = 0; i < MAX_SLOTS; i++)
		if (graph_of_node[i] == graph)
			slots[kind_of('n')][i] = NULL;
}

static void keep_handles(struct step *step)
{
	int i = 0;

	for (const char *kind = step->operation->takes; *kind; kind++) {
		if (*kind == '-' || *kind == '*')
			continue;
		if (isupper((unsigned char)*kind)) {
			slots[kind_of(*kind)][step->slots[i]] = step->result ? NULL : step->handles[i];
			if (*kind == 'N')
				graph_of_node[step->slots[i]] = step->slots[0];
		}
		if (kind[0] == 'g' && kind[1] == '-')
			forget_nodes(step->slots[i]);
		i++;
	}
}

static void *run_thread(void *argument)
{
	struct thread *thread = argument;

	for (size_t i = 0; i < thread->count; i++) {
		struct step *step = &thread->steps[i];

		if (step->operation == &barrier_step) {
			pthread_barrier_wait(&barriers[step->numbers[0]]);
		} else if (step->operation == &sleep_step) {
			pause_ns(step->numbers[0]);
		} else if (fill_handles(step)) {
			step->result = (int)step->operation->run(step);
			keep_handles(step);
		}
	}
	return NULL;
}

static void start(void)
{
	static const char ptx[] = SPIN_HEAD SPIN_ENTRY("spin");
	CUlibrary library;
	CUkernel kernel = NULL;
	CUresult error = cuInit(0);

	if (error == CUDA_SUCCESS)
		error = cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0);
	if (error == CUDA_SUCCESS)
		error = cuLibraryGetKernel(&kernel, library, "spin");
	if (error != CUDA_SUCCESS) {
		fprintf(stderr, "CUDA does not start: %d\n", (int)error);
		exit(1);
	}
	spin = (CUfunction)kernel; /* which is a kernel of every context */
}

static void finish(void)
{
	for (int i = 0; i < MAX_SLOTS && !leave; i++)
		if (slots[kind_of('c')][i]) {
			cuCtxSetCurrent(slots[kind_of('c')][i]);
			cuCtxSynchronize();
		}
}

void print_results(int program)
{
	for (int i = 0; i < thread_count; i++)
		for (size_t j = 0; j < threads[i].count; j++)
			printf("{\"program\":%d,\"thread\":%d,\"line\":%d,\"step\":\"%s\",\"result\":%d}\n", program, i,
			       threads[i].steps[j].line, threads[i].steps[j].operation->name, threads[i].steps[j].result);
	fflush(stdout);
}

void run_program(void)
{
	start();
	for (int i = 0; i < MAX_BARRIERS; i++)
		if (barrier_threads[i])
			pthread_barrier_init(&barriers[i], NULL, (unsigned)__builtin_popcount(barrier_threads[i]));
	for (int i = 0; i < thread_count; i++)
		if (pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]))
			abort();
	for (int i = 0; i < thread_count; i++)
		pthread_join(threads[i].thread, NULL);
	finish();
}
