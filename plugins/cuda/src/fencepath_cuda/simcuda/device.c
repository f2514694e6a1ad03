// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#define _GNU_SOURCE
#include "device.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* Adaptive: a launching thread that meets a stream's thread spins for the moment it takes instead of sleeping. */
pthread_mutex_t device_lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

#define DOZE_NS 100000
#define DOZES 20 /* without work, before the thread sleeps until it is woken */

TABLE(streams, 4096);
TABLE(events, 65536);

void *table_put(struct table *table, void *object)
{
	size_t at;

	if (!table->free_count && table->used == table->size)
		return NULL;
	at = table->free_count ? table->free[--table->free_count] : table->used++;
	table->objects[at] = object;
	return &table->objects[at];
}

void *table_get(const struct table *table, const void *handle)
{
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)table->objects;

	if (offset >= table->used * sizeof(void *) || offset % sizeof(void *))
		return NULL;
	return table->objects[offset / sizeof(void *)];
}

void *table_take(struct table *table, const void *handle)
{
	void *object = table_get(table, handle);

	if (object) {
		size_t at = ((uintptr_t)handle - (uintptr_t)table->objects) / sizeof(void *);

		table->objects[at] = NULL;
		table->free[table->free_count++] = (uint32_t)at;
	}
	return object;
}

uint64_t copy_ns(size_t bytes)
{
	static uint64_t bytes_per_us;

	if (!bytes_per_us) {
		const char *wish = getenv("SIMCUDA_COPY_GBPS");
		unsigned long gigabytes_per_s = wish ? strtoul(wish, NULL, 10) : 0;

		bytes_per_us = (gigabytes_per_s ? gigabytes_per_s : 16) * 1000;
	}
	return 2000 + bytes * 1000 / bytes_per_us;
}

/* Operations. */

struct op *op_get(struct op *op)
{
	atomic_fetch_add(&op->references, 1);
	return op;
}

void op_put(struct op *op)
{
	if (!op || atomic_fetch_sub(&op->references, 1) != 1)
		return;
	free(op->work.staged);
	free(op);
}

bool op_done(const struct op *op)
{
	return atomic_load(&op->done);
}

static void wake(struct stream *stream)
{
	if (stream->rest != AWAKE)
		pthread_cond_signal(&stream->work);
}

static void op_block(struct op *op)
{
	struct stream *stream = op->stream;

	pthread_mutex_lock(&device_lock);
	wake(stream);
	atomic_fetch_add(&stream->waiters, 1);
	while (!op_done(op))
		pthread_cond_wait(&stream->finished, &device_lock);
	atomic_fetch_sub(&stream->waiters, 1);
	pthread_mutex_unlock(&device_lock);
}

static void op_poll(struct op *op, bool yield)
{
	pthread_mutex_lock(&device_lock);
	wake(op->stream);
	pthread_mutex_unlock(&device_lock);
	while (!op_done(op)) {
		if (yield)
			sched_yield();
#if defined(__x86_64__)
		else
			__builtin_ia32_pause();
#endif
	}
}

void op_wait(struct op *op, enum wait_mode mode)
{
	if (op_done(op))
		return;
	if (mode == WAIT_BLOCK)
		op_block(op);
	else
		op_poll(op, mode == WAIT_YIELD);
}

static int asked_wait_mode(void)
{
	const char *wish = getenv("SIMCUDA_WAIT");

	if (!wish || !*wish)
		return -1;
	if (strcmp(wish, "block") == 0)
		return WAIT_BLOCK;
	return strcmp(wish, "yield") == 0 ? WAIT_YIELD : WAIT_SPIN;
}

enum wait_mode choose_wait(const struct context *context, bool blocking_event)
{
	static int asked = -2;

	if (asked == -2)
		asked = asked_wait_mode();
	if (asked >= 0)
		return (enum wait_mode)asked;
	if (blocking_event || context->flags & CU_CTX_SCHED_BLOCKING_SYNC)
		return WAIT_BLOCK;
	return context->flags & CU_CTX_SCHED_YIELD ? WAIT_YIELD : WAIT_SPIN;
}

void wait_and_put(struct call *call, struct op **ops, size_t count, enum wait_mode mode)
{
	static const char *const names[] = {"spin", "yield", "block"};
	uint64_t *ids = malloc((count + 1) * sizeof(*ids));

	for (size_t i = 0; i < count; i++) {
		op_wait(ops[i], mode);
		if (ids)
			ids[i] = ops[i]->id;
		op_put(ops[i]);
	}
	if (call->written && ids) {
		line_ids(&call->line, "waited_for", ids, count);
		line_text(&call->line, "wait", names[mode]);
	}
	free(ids);
	free(ops);
}

/* What the device does. */

static void write_truth(const struct op *op)
{
	static const char *const kinds[] = {"kernel", "memcpy_htod", "memcpy_dtoh", "memcpy_dtod",
					    "memset", "host_func",   "event_record", "wait_event"};
	size_t size = 768 + 40 * op->edge_count;
	char *text = malloc(size);
	struct line line;

	if (!text)
		return;
	line_start(&line, text, size, "op");
	line_u64(&line, "op", op->id);
	line_text(&line, "kind", kinds[op->work.kind]);
	if (op->work.name)
		line_text(&line, "name", op->work.name);
	line_u64(&line, "bytes", op->work.bytes);
	line_u64(&line, "context", op->stream->context->index);
	line_u64(&line, "stream", op->stream->index);
	line_hex(&line, "handle", (uintptr_t)op->stream->handle);
	line_u64(&line, "call", op->call);
	line_u64(&line, "submit_ns", op->submit_ns);
	line_u64(&line, "start_ns", op->start_ns);
	line_u64(&line, "end_ns", op->end_ns);
	line_u64(&line, "done_ns", op->done_ns);
	line_raw(&line, ",\"after\":[");
	for (size_t i = 0; i < op->edge_count; i++)
		line_edge(&line, i == 0, op->edges[i].op->id, op->edges[i].why);
	line_raw(&line, "]");
	truth_write(&line);
	free(text);
}

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

static void act(const struct work *work)
{
	switch (work->kind) {
	case HTOD:
	case DTOH:
	case DTOD:
		memmove(work->to, work->staged ? work->staged : work->from, work->bytes);
		break;
	case MEMSET:
		memset(work->to, work->value, work->bytes);
		break;
	case HOST_FUNC:
		work->function(work->data);
		break;
	default:
		break;
	}
}

static void run(struct op *op)
{
	uint64_t start_ns = op->submit_ns > op->stream->last_end_ns ? op->submit_ns : op->stream->last_end_ns;

	for (size_t i = 0; i < op->edge_count; i++) {
		struct op *before = op->edges[i].op;

		op_wait(before, WAIT_BLOCK);
		if (before->end_ns > start_ns)
			start_ns = before->end_ns;
	}
	if (op->work.kind == HOST_FUNC)
		start_ns = now_ns();
	op->start_ns = start_ns;
	act(&op->work);
	op->end_ns = op->work.kind == HOST_FUNC ? now_ns() : start_ns + op->work.duration_ns;
	op->done_ns = now_ns();
	if (op->done_ns < op->end_ns) {
		sleep_until(op->end_ns);
		op->done_ns = now_ns();
	}
	op->stream->last_end_ns = op->end_ns;
	/* Before it is made known, so that a program which then ends has all of it in its truth. */
	if (truth_on())
		write_truth(op);
	for (size_t i = 0; i < op->edge_count; i++)
		op_put(op->edges[i].op);
	op->edge_count = 0;
	atomic_store(&op->done, true);
	if (atomic_load(&op->stream->waiters)) {
		pthread_mutex_lock(&device_lock);
		pthread_cond_broadcast(&op->stream->finished);
		pthread_mutex_unlock(&device_lock);
	}
	op_put(op);
}

static struct op *next_ops(struct stream *stream)
{
	struct op *ops;

	pthread_mutex_lock(&device_lock);
	for (int dozes = 0; !stream->head && !stream->closing; dozes++) {
		struct timespec until = as_timespec(now_ns() + DOZE_NS);

		stream->rest = dozes < DOZES ? DOZING : ASLEEP;
		if (stream->rest == DOZING)
			pthread_cond_timedwait(&stream->work, &device_lock, &until);
		else
			pthread_cond_wait(&stream->work, &device_lock);
	}
	stream->rest = AWAKE;
	ops = stream->head;
	stream->head = stream->tail = NULL;
	pthread_mutex_unlock(&device_lock);
	return ops;
}

static void *stream_main(void *argument)
{
	struct stream *stream = argument;
	struct op *op;
	char name[16];

	snprintf(name, sizeof(name), "sim-stream-%u", stream->index % 10000);
	prctl(PR_SET_NAME, name);
	prctl(PR_SET_TIMERSLACK, 1);
	/* A device does not compete with its host for a CPU. Where this is not allowed it does, and done_ns says how much. */
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
	while ((op = next_ops(stream)))
		while (op) {
			struct op *next = op->next;

			run(op);
			op = next;
		}
	/* The stream itself stays: operations that others still refer to name it. */
	return NULL;
}

/* Streams. The lock is held. */

static void forget_closed(struct context *context)
{
	for (struct stream **at = &context->streams; *at;) {
		struct stream *stream = *at;

		if (stream->closing && (!stream->last || op_done(stream->last)))
			*at = stream->next;
		else
			at = &stream->next;
	}
}

struct stream *stream_open(struct context *context, CUstream handle, bool legacy, bool non_blocking, int owner_tid)
{
	static unsigned last_index;
	struct stream *stream = calloc(1, sizeof(*stream));
	pthread_condattr_t monotonic;
	pthread_t thread;

	if (!stream)
		return NULL;
	*stream = (struct stream){.context = context, .handle = handle, .legacy = legacy, .non_blocking = non_blocking,
				  .owner_tid = owner_tid, .index = ++last_index};
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&stream->work, &monotonic);
	pthread_cond_init(&stream->finished, NULL);
	if (pthread_create(&thread, NULL, stream_main, stream)) {
		free(stream);
		return NULL;
	}
	pthread_detach(thread);
	forget_closed(context);
	stream->next = context->streams;
	context->streams = stream;
	return stream;
}

/* A closed stream stays with its context until what was submitted to it is done. */
void stream_close(struct stream *stream)
{
	stream->closing = true;
	pthread_cond_signal(&stream->work);
}

struct stream *find_stream(struct context *context, CUstream handle)
{
	struct stream *stream;

	if (handle == CU_STREAM_PER_THREAD) {
		for (stream = context->streams; stream; stream = stream->next)
			if (stream->owner_tid == thread_id())
				return stream;
		return stream_open(context, handle, false, false, thread_id());
	}
	if (handle == NULL || handle == CU_STREAM_LEGACY) {
		if (!context->legacy)
			context->legacy = stream_open(context, CU_STREAM_LEGACY, true, false, 0);
		return context->legacy;
	}
	stream = table_get(&streams, handle);
	return stream && stream->context == context ? stream : NULL;
}

/* Whether the order of `other` binds `stream` by the legacy default stream's rule: it waits for every blocking stream
 * and they wait for it. */
static bool legacy_binds(const struct stream *stream, const struct stream *other)
{
	return other != stream && !other->non_blocking && !stream->non_blocking && (stream->legacy || other->legacy);
}

static void add_edge(struct op *op, struct op *before, const char *why)
{
	op->edges[op->edge_count++] = (struct edge){op_get(before), why};
}

static void add_edges(struct op *op, struct op *after)
{
	struct stream *stream = op->stream;

	if (stream->last)
		add_edge(op, stream->last, "stream");
	if (after)
		add_edge(op, after, "event");
	for (struct stream *other = stream->context->streams; other; other = other->next)
		if (other->last && !op_done(other->last) && legacy_binds(stream, other))
			add_edge(op, other->last, "legacy");
}

static size_t most_edges(const struct context *context)
{
	size_t count = 2;

	for (const struct stream *stream = context->streams; stream; stream = stream->next)
		count++;
	return count;
}

CUresult submit(struct stream *stream, const struct work *work, struct op *after, uint64_t call, struct op **out)
{
	static uint64_t last_id;
	struct op *op;

	if (out)
		*out = NULL;
	if (stream->capture) {
		graph_add(stream->capture, work);
		return CUDA_SUCCESS;
	}
	op = calloc(1, sizeof(*op) + most_edges(stream->context) * sizeof(struct edge));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->stream = stream;
	op->work = *work;
	op->call = call;
	op->id = ++last_id;
	/* The queue's, the stream's as its last, and the caller's. */
	atomic_init(&op->references, out ? 3 : 2);
	add_edges(op, after);
	op_put(stream->last);
	stream->last = op;
	if (stream->tail)
		stream->tail->next = op;
	else
		stream->head = op;
	stream->tail = op;
	op->submit_ns = now_ns();
	if (stream->rest == ASLEEP || work->kind == HOST_FUNC)
		wake(stream);
	if (out)
		*out = op;
	return CUDA_SUCCESS;
}

size_t last_ops(struct context *context, struct stream *stream, struct op ***ops)
{
	size_t count = 0;

	*ops = calloc(most_edges(context), sizeof(**ops));
	for (struct stream *other = context->streams; *ops && other; other = other->next)
		if (other->last && (!stream || other == stream || (stream->legacy && legacy_binds(stream, other))))
			(*ops)[count++] = op_get(other->last);
	return count;
}
