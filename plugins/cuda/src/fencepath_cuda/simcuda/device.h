// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated device: contexts, streams and operations.
 *
 * A stream is a thread that runs its operations in order. Device time is computed, as a device's is, not by when that
 * thread happens to be scheduled: an operation starts when it was submitted, the one before it in the stream has ended
 * and those it waits for have ended, whichever is last, and takes its duration. The thread sleeps until the end and then
 * makes it known. So `end_ns` is the device's time, and `done_ns`, never earlier, is when a waiter could see it. A host
 * function runs on the thread for as long as it takes. Streams do not compete: there is no limit on what runs at once.
 *
 * Since device time does not depend on it, a stream's thread looks for new work every DOZE_NS and is not woken for each
 * launch, which would cost the launching thread more than a launch does. A thread that waits does wake it.
 */
#ifndef SIMCUDA_DEVICE_H
#define SIMCUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "simcuda.h"
#include "truth.h"

enum op_kind { KERNEL, HTOD, DTOH, DTOD, MEMSET, HOST_FUNC, EVENT_RECORD, WAIT_EVENT };

struct op;
struct stream;
struct context;
struct graph;

/* What an operation is to do; copied into a graph as it is. */
struct work {
	enum op_kind kind;
	uint64_t duration_ns;
	const char *name; /* of a kernel */
	void *to;
	const void *from;
	size_t bytes;
	unsigned char value;
	void *staged; /* a copy of a pageable source, freed with the operation */
	CUhostFn function;
	void *data;
};

struct edge {
	struct op *op;
	const char *why; /* "stream", "event" or "legacy" */
};

struct op {
	atomic_int references;
	atomic_bool done;
	uint64_t id, call, submit_ns, start_ns, end_ns, done_ns;
	struct stream *stream;
	struct op *next;
	struct work work;
	size_t edge_count;
	struct edge edges[];
};

struct stream {
	struct context *context;
	struct stream *next;
	unsigned index; /* N of "sim-stream-N", never used again */
	CUstream handle;
	bool legacy, non_blocking, closing;
	int owner_tid; /* of a per-thread default stream */
	pthread_cond_t work, finished;
	enum { AWAKE, DOZING, ASLEEP } rest;
	atomic_int waiters;
	struct op *head, *tail; /* submitted, not begun */
	struct op *last;        /* last submitted; a reference */
	uint64_t last_end_ns;
	struct graph *capture;
};

struct context {
	struct context *next;
	unsigned index, flags;
	bool alive;
	struct stream *streams, *legacy;
};

/* Protects all of the above and the tables; held for a few hundred nanoseconds at a time. */
extern pthread_mutex_t device_lock;

enum wait_mode { WAIT_SPIN, WAIT_YIELD, WAIT_BLOCK };

/* The mode that SIMCUDA_WAIT, an event's flags or the context's ask for, in this order. */
enum wait_mode choose_wait(const struct context *context, bool blocking_event);

struct stream *stream_open(struct context *context, CUstream handle, bool legacy, bool non_blocking, int owner_tid);
void stream_close(struct stream *stream);

/* Submits work, or adds it to the graph that the stream is capturing (then *op is NULL). `after` (may be NULL) is one
 * more operation it waits for. The operation is returned with a reference if op is not NULL. */
CUresult submit(struct stream *stream, const struct work *work, struct op *after, uint64_t call, struct op **op);

/* Takes references to what has to end before `stream` (NULL: everything in the context) is idle: the last operation of
 * each stream concerned. Returns how many; the caller frees the array. */
size_t last_ops(struct context *context, struct stream *stream, struct op ***ops);

bool op_done(const struct op *op);
void op_wait(struct op *op, enum wait_mode mode);
void op_put(struct op *op);
struct op *op_get(struct op *op);

/* Waits for ops and puts them, writing both into the call's truth. */
void wait_and_put(struct call *call, struct op **ops, size_t count, enum wait_mode mode);

/* How long a copy takes on the simulated bus. */
uint64_t copy_ns(size_t bytes);

/* The current context of the calling thread, or NULL with *error set. */
struct context *current_context(CUresult *error);

/* Finds the stream of a handle: 0 and 0x1 legacy, 0x2 per thread. NULL if there is none. */
struct stream *find_stream(struct context *context, CUstream handle);

/* Handles are slots of a table, given out again last in, first out, as a driver's allocator does: a handle alone does not
 * tell one stream from a later one. */
struct table {
	void **objects;
	uint32_t *free;
	size_t size, used, free_count;
};

#define TABLE(name, count)                                                                                               \
	static void *name##_objects[count];                                                                              \
	static uint32_t name##_free[count];                                                                              \
	struct table name = {name##_objects, name##_free, count, 0, 0}

extern struct table streams, events;

void *table_put(struct table *table, void *object); /* NULL: full */
void *table_get(const struct table *table, const void *handle);
void *table_take(struct table *table, const void *handle);

/* The name of a kernel and its image's duration, NULL if the handle is none. The lock is held. */
const char *find_function(CUfunction handle, uint64_t *default_ns);

void graph_add(struct graph *graph, const struct work *work);

#endif
