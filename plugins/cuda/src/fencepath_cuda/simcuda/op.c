// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Operations, and the lanes that run them. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "backend.h"

#define DOZE_NS 100000
#define DOZES 20 /* without work, before the thread sleeps until it is woken */

struct work work_copy(const struct work *work)
{
	if (work->event)
		event_get(work->event);
	for (int i = 0; i < 2; i++)
		if (work->touches[i])
			allocation_get(work->touches[i]);
	return *work;
}

void work_drop(struct work *work)
{
	if (work->event)
		event_put(work->event);
	for (int i = 0; i < 2; i++)
		if (work->touches[i])
			allocation_put(work->touches[i]);
	free(work->staged);
	*work = (struct work){.kind = EMPTY};
}

struct op *op_get(struct op *op)
{
	atomic_fetch_add(&op->references, 1);
	return op;
}

void op_put(struct op *op)
{
	if (!op || atomic_fetch_sub(&op->references, 1) != 1)
		return;
	if (backend_on)
		backend_forget(op);
	free(op);
}

bool op_done(const struct op *op)
{
	return atomic_load(&op->done);
}

void ops_add(struct ops *ops, struct op *op)
{
	ops->items = grown(ops->items, ops->count, &ops->size, sizeof(struct op *));
	ops->items[ops->count++] = op_get(op);
}

void ops_clear(struct ops *ops)
{
	while (ops->count)
		op_put(ops->items[--ops->count]);
	free(ops->items);
	*ops = (struct ops){0};
}

struct op *op_submit(struct stream *stream, struct lane *lane, const struct work *work, const struct edge *edges, size_t count,
		     const struct call *call, const struct origin *origin)
{
	static uint64_t last_id;
	struct op *op = must(calloc(1, sizeof(*op) + count * sizeof(struct edge)));

	op->stream = stream;
	op->lane = lane;
	op->work = work_copy(work);
	op->call = call->number;
	op->id = ++last_id;
	if (origin)
		op->origin = *origin;
	atomic_init(&op->references, 2); /* the lane's and the caller's */
	for (size_t i = 0; i < count; i++)
		op->edges[i] = (struct edge){op_get(edges[i].op), edges[i].why};
	op->edge_count = count;
	if (lane->tail)
		lane->tail->next = op;
	else
		lane->head = op;
	lane->tail = op;
	op->submit_ns = now_ns();
	if (backend_on && backend_takes(op))
		backend_submit(op);
	if (lane->rest == ASLEEP || (lane->rest == DOZING && work->kind == HOST_FUNC))
		pthread_cond_signal(&lane->work);
	return op;
}

/* Truth. */

static void write_origin(struct line *line, const struct origin *origin)
{
	uint64_t path[8];

	line_u64(line, "launch", origin->launch);
	line_u64(line, "made_by", origin->made_by);
	line_u64(line, "node", origin->node);
	for (unsigned i = 0; i < origin->depth; i++)
		path[i] = origin->path[i];
	if (origin->depth)
		line_ids(line, "path", path, origin->depth);
}

static void write_truth(const struct op *op)
{
	static const char *const kinds[] = {
		"kernel",       "memcpy_htod", "memcpy_dtoh", "memcpy_dtod", "memcpy_peer", "memset",
		"host_func",    "event_record", "wait_event", "mem_alloc",   "mem_free",    "prefetch",
		"wait_value",   "write_value", "empty",
	};
	char text[1024];
	struct line line;

	line_start(&line, text, sizeof(text), "op");
	line_u64(&line, "op", op->id);
	line_text(&line, "kind", kinds[op->work.kind]);
	if (op->work.name)
		line_text(&line, "name", op->work.name);
	line_u64(&line, "bytes", op->work.bytes);
	if (op->work.event)
		line_u64(&line, "event", event_number(op->work.event));
	line_u64(&line, "context", op->stream->context->index);
	line_u64(&line, "stream", op->stream->index);
	line_hex(&line, "handle", (uintptr_t)op->stream->handle);
	line_u64(&line, "call", op->call);
	if (op->origin.launch)
		write_origin(&line, &op->origin);
	line_u64(&line, "submit_ns", op->submit_ns);
	line_u64(&line, "start_ns", op->start_ns);
	line_u64(&line, "end_ns", op->end_ns);
	line_u64(&line, "done_ns", op->done_ns);
	if (backend_on)
		backend_write(&line, op);
	line_raw(&line, ",\"after\":[");
	for (size_t i = 0; i < op->edge_count; i++)
		line_edge(&line, i == 0, op->edges[i].op->id, op->edges[i].why);
	if (op->wrote)
		line_edge(&line, op->edge_count == 0, op->wrote->id, "value");
	line_raw(&line, "]");
	truth_write(&line);
}

/* What the device does. */

static struct timespec as_timespec(uint64_t time_ns)
{
	return (struct timespec){.tv_sec = (time_t)(time_ns / 1000000000), .tv_nsec = (long)(time_ns % 1000000000)};
}

static void sleep_until(uint64_t time_ns)
{
	struct timespec until = as_timespec(time_ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void set_memory(const struct work *work)
{
	for (size_t at = 0; at < work->bytes; at += work->unit)
		memcpy((char *)work->to + at, &work->value, work->unit);
}

/* Does the work; end_ns is set, and moved by what takes as long as it takes. */
static void act(struct op *op)
{
	const struct work *work = &op->work;

	switch (work->kind) {
	case HTOD:
	case DTOH:
	case DTOD:
	case PEER:
		memmove(work->to, work->staged ? work->staged : work->from, work->bytes);
		break;
	case MEMSET:
		set_memory(work);
		break;
	case HOST_FUNC:
		op->start_ns = now_ns();
		work->function(work->data);
		op->end_ns = now_ns();
		break;
	case WRITE_VALUE:
		value_written(op);
		break;
	case WAIT_VALUE:
		value_wait(op);
		break;
	default:
		break;
	}
}

static void wait_for_edges(struct op *op)
{
	op->start_ns = op->submit_ns;
	for (size_t i = 0; i < op->edge_count; i++) {
		struct op *before = op->edges[i].op;

		op_wait(before, WAIT_BLOCK);
		if (before->end_ns > op->start_ns)
			op->start_ns = before->end_ns;
	}
}

static void make_known(struct op *op)
{
	struct lane *lane = op->lane;

	atomic_store(&op->done, true);
	if (atomic_load(&lane->waiters)) {
		pthread_mutex_lock(&device_lock);
		pthread_cond_broadcast(&lane->finished);
		pthread_mutex_unlock(&device_lock);
	}
}

static void run_here(struct op *op)
{
	wait_for_edges(op);
	op->end_ns = op->start_ns + op->work.duration_ns;
	act(op);
	op->done_ns = now_ns();
	if (op->done_ns < op->end_ns) {
		sleep_until(op->end_ns);
		op->done_ns = now_ns();
	}
}

/* The driver's device takes the time; what comes of it is done here. */
static void run_below(struct op *op)
{
	backend_wait(op);
	wait_for_edges(op);
	if (!atomic_load(&op->job)) {
		backend_submit(op);
		backend_wait(op);
	}
	op->end_ns = backend_end_ns(op);
	act(op);
	op->done_ns = now_ns();
}

static void run(struct op *op)
{
	if (backend_on)
		run_below(op);
	else
		run_here(op);
	/* Before it is made known, so that a program which then ends has all of it in its truth. */
	if (truth_on())
		write_truth(op);
	for (size_t i = 0; i < op->edge_count; i++)
		op_put(op->edges[i].op);
	op->edge_count = 0;
	op_put(op->wrote);
	work_drop(&op->work);
	make_known(op);
	op_put(op);
}

static struct op *next_ops(struct lane *lane)
{
	struct op *ops;

	pthread_mutex_lock(&device_lock);
	for (int dozes = 0; !lane->head && !lane->closing; dozes++) {
		struct timespec until = as_timespec(now_ns() + DOZE_NS);

		lane->rest = dozes < DOZES ? DOZING : ASLEEP;
		if (lane->rest == DOZING)
			pthread_cond_timedwait(&lane->work, &device_lock, &until);
		else
			pthread_cond_wait(&lane->work, &device_lock);
	}
	lane->rest = AWAKE;
	ops = lane->head;
	lane->head = lane->tail = NULL;
	pthread_mutex_unlock(&device_lock);
	return ops;
}

static void *lane_main(void *argument)
{
	struct lane *lane = argument;
	struct op *op;

	prctl(PR_SET_NAME, lane->name);
	prctl(PR_SET_TIMERSLACK, 1);
	/* A device does not compete with its host for a CPU. Where this is not allowed it does, and done_ns says how much. With a
	 * driver below, a lane is no device, and those that wait for it must not be kept from running. */
	if (!backend_on)
		pthread_setschedparam(pthread_self(), SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
	while ((op = next_ops(lane)))
		while (op) {
			struct op *next = op->next;

			run(op);
			op = next;
		}
	/* The lane itself stays: operations that others still refer to name it. */
	return NULL;
}

void lane_open(struct lane *lane)
{
	static unsigned count;
	pthread_condattr_t monotonic;
	pthread_t thread;

	lane->number = count++;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&lane->work, &monotonic);
	pthread_cond_init(&lane->finished, NULL);
	if (pthread_create(&thread, NULL, lane_main, lane)) {
		fprintf(stderr, "simulated CUDA: cannot make a thread\n");
		abort();
	}
	pthread_detach(thread);
}

/* What was submitted still runs; then the thread ends. */
void lane_close(struct lane *lane)
{
	lane->closing = true;
	pthread_cond_signal(&lane->work);
}
