// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated devices: contexts, streams and operations.
 *
 * A stream has a lane, a thread that runs operations in order. Device time is computed, as a device's is, not by when that
 * thread happens to be scheduled: an operation starts when it was submitted and all that it depends on (the one before it
 * in the stream, what it waits for) has ended, whichever is last, and takes its duration. The thread sleeps until the end
 * and then makes it known. So `end_ns` is the device's time, and `done_ns`, never earlier, is when a waiter could see it.
 * A host function runs on the thread for as long as it takes. Streams do not compete: there is no limit on what runs at
 * once. The nodes of a graph run on the stream that it was launched on and, where it branches, on lanes of its own.
 *
 * Operations are numbered as they are submitted, depend only on earlier ones (but for values in memory that a stream waits
 * for) and every lane runs them in this order, so that no two can wait for each other.
 *
 * Since device time does not depend on it, a lane's thread looks for new work every DOZE_NS and is not woken for each
 * launch, which would cost the launching thread more than a launch does. A thread that waits does wake it.
 */
#ifndef SIMCUDA_DEVICE_H
#define SIMCUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "truth.h"

enum op_kind {
	KERNEL, HTOD, DTOH, DTOD, PEER, MEMSET, HOST_FUNC, EVENT_RECORD, WAIT_EVENT, ALLOC, FREE, PREFETCH, WAIT_VALUE,
	WRITE_VALUE, EMPTY
};

struct allocation;
struct capture;
struct context;
struct event;
struct graph;
struct job;
struct node;
struct op;
struct stream;

/* What an operation is to do. Copied with work_copy: it holds references. */
struct work {
	enum op_kind kind;
	uint64_t duration_ns;
	const char *name; /* of a kernel */
	void *to;
	const void *from;
	size_t bytes;
	uint32_t value;
	unsigned flags;    /* of a wait for a value */
	unsigned unit;     /* bytes of one element that is set */
	void *staged;      /* a copy of a pageable source */
	CUhostFn function;
	void *data;
	struct event *event;            /* recorded or waited for */
	struct allocation *touches[2];  /* kept until the operation is done */
};

struct work work_copy(const struct work *work);
void work_drop(struct work *work);

struct edge {
	struct op *op;
	const char *why; /* "stream", "event", "legacy", "graph", "exec" or "value" */
};

/* Where an operation comes from that a graph launch made; launch is 0 for others. */
struct origin {
	uint64_t launch, made_by;
	unsigned node, depth;
	unsigned path[8]; /* the child graph nodes it lies in, outermost first */
};

struct lane {
	pthread_cond_t work, finished;
	enum { AWAKE, DOZING, ASLEEP } rest;
	bool closing;
	atomic_int waiters;
	struct op *head, *tail; /* submitted, not begun */
	unsigned number; /* from 0, in the order in which they were opened */
	char name[16];
};

struct op {
	atomic_int references;
	atomic_bool done;
	uint64_t id, call, submit_ns, start_ns, end_ns, done_ns;
	struct stream *stream; /* submitted to */
	struct lane *lane;     /* runs on */
	struct op *next;
	struct op *wrote; /* what wrote the value it waited for */
	_Atomic(struct job *) job; /* backend.h; NULL as long as there is none */
	struct work work;
	struct origin origin;
	size_t edge_count;
	struct edge edges[];
};

/* References to operations. */
struct ops {
	struct op **items;
	size_t count, size;
};

struct stream {
	struct context *context;
	struct stream *next;
	unsigned index; /* N of "sim-stream-N", never used again */
	unsigned flags;
	int priority;
	CUstream handle;
	bool legacy, non_blocking, closing;
	unsigned owner; /* number of the thread whose default stream it is, 0 for none */
	struct lane lane;
	struct ops last; /* what the next operation comes after: the last one, or the last ones of a graph */
	struct capture *capture;
	struct node **captured; /* what the next node captured comes after */
	size_t captured_count;
};

struct context {
	struct context *next;
	unsigned index, flags;
	CUdevice device;
	CUcontext handle;
	atomic_bool alive;
	bool primary;
	struct stream *streams, *legacy;
};

/* Protects all of the above and the tables; held for a few hundred nanoseconds at a time. */
extern pthread_mutex_t device_lock;

/* Memory that a simulated driver cannot do without: no memory ends the program. */
void *must(void *memory);
void *grown(void *items, size_t count, size_t *size, size_t item_bytes);

/* handles.c: handles are slots of a table, given out again last in, first out, as a driver's allocator does: a handle
 * alone does not tell one stream from a later one. */
struct table {
	void **objects;
	uint32_t *free;
	size_t size, used, free_count;
};

#define TABLE(name, count)                                                                                               \
	static void *name##_objects[count];                                                                              \
	static uint32_t name##_free[count];                                                                              \
	struct table name = {name##_objects, name##_free, count, 0, 0}

extern struct table contexts, streams, events;

void *table_put(struct table *table, void *object); /* NULL: full */
void *table_get(const struct table *table, const void *handle);
void *table_take(struct table *table, const void *handle);
/* Takes out what `is_of` says is the owner's. */
void table_purge(struct table *table, bool (*is_of)(const void *object, const void *owner), const void *owner);

/* op.c: operations and lanes. */
void lane_open(struct lane *lane);
void lane_close(struct lane *lane);
struct op *op_get(struct op *op);
void op_put(struct op *op);
bool op_done(const struct op *op);
void ops_add(struct ops *ops, struct op *op); /* takes a reference */
void ops_clear(struct ops *ops);

/* Makes an operation and gives it to a lane; takes references of its own. */
struct op *op_submit(struct stream *stream, struct lane *lane, const struct work *work, const struct edge *edges, size_t count,
		     const struct call *call, const struct origin *origin);

/* wait.c */
enum wait_mode { WAIT_SPIN, WAIT_YIELD, WAIT_BLOCK };

/* The mode that SIMCUDA_WAIT, an event's flags or the context's ask for, in this order. */
enum wait_mode choose_wait(const struct context *context, bool blocking_event);
void op_wait(struct op *op, enum wait_mode mode);

/* Waits for operations and clears them, writing both into the call's truth. Without the lock. */
void wait_and_clear(struct call *call, struct ops *ops, enum wait_mode mode);

/* stream.c */
struct stream *stream_open(struct context *context, CUstream handle, bool legacy, unsigned flags, unsigned owner);
void stream_close(struct stream *stream);

/* Finds the stream of a handle: 0 and 0x1 legacy, 0x2 per thread. Says it and its context in the call's truth. NULL and
 * *error if there is none, or no context. */
struct stream *find_stream(struct call *call, CUstream handle, CUresult *error);

/* Submits work, or adds it to the graph that the stream is capturing. `after` (may be NULL) is one more operation it waits
 * for. The operation is returned with a reference if `out` is not NULL, NULL if it was captured. */
CUresult submit(struct call *call, struct stream *stream, const struct work *work, struct op *after, struct op **out);

/* What the stream's next operation would wait for, in memory that is valid until the lock is given up. */
size_t next_edges(struct stream *stream, struct edge **edges);

/* Adds what has to end before `stream` (NULL: everything in the context) is idle. */
void last_ops(struct context *context, struct stream *stream, struct ops *ops);

/* context.c */
/* The calling thread's context, said in the call's truth, or NULL with *error set. */
struct context *current_context(struct call *call, CUresult *error);
struct context *find_context(CUcontext handle);
void say_context(struct call *call, const struct context *context);
unsigned thread_number(void); /* never given out again, from 1 */
bool driver_ready(CUresult *error);
int device_count(void);

/* module.c: the name of a kernel and its image's duration, NULL if the handle is none or, of a function, of another context. */
const char *find_function(const struct context *context, CUfunction handle, uint64_t *default_ns);
const char *find_kernel(CUkernel handle, uint64_t *default_ns);
void forget_modules(const struct context *context);

/* event.c */
struct event *event_get(struct event *event);
void event_put(struct event *event);
unsigned event_number(const struct event *event);
struct op *event_recorded(const struct event *event);          /* the latest record, no reference; NULL before it */
void event_set_recorded(struct event *event, struct op *op);
void forget_events(const struct context *context);

/* memory.c */
enum memory { DEVICE_MEMORY = 1, HOST_MEMORY = 2, MANAGED_MEMORY = 4 };

/* The allocation that a range lies in, if it is of these kinds; with the lock held, no reference. */
struct allocation *find_allocation(const void *memory, size_t bytes, unsigned kinds);
struct allocation *allocation_get(struct allocation *allocation);
void allocation_put(struct allocation *allocation);
struct allocation *allocate(size_t bytes, enum memory kind, const struct context *context);
/* Takes an allocation off the list; its memory stays as long as somebody holds it. NULL if there is none. */
struct allocation *forget_allocation(const void *memory, unsigned kinds);
const void *allocation_memory(const struct allocation *allocation);
/* The graph that an allocation was captured in, 0 for none; each launch makes it again. */
void allocation_set_graph(struct allocation *allocation, unsigned graph);
unsigned allocation_graph(const struct allocation *allocation);
bool allocation_is_listed(const struct allocation *allocation);
void allocation_list(struct allocation *allocation); /* takes a reference */
void forget_memory(const struct context *context);

/* copy.c: how long a copy takes on the simulated bus. */
uint64_t copy_ns(size_t bytes);

/* value.c */
void value_written(struct op *op);
void value_wait(struct op *op);
void values_forget(const void *memory, size_t bytes);

/* launch.c: a kernel's duration by its parameters. False: none that can be meant. */
bool kernel_ns(void **params, void **extra, uint64_t default_ns, uint64_t *duration_ns);
void say_shape(struct call *call, const unsigned int *grid, const unsigned int *block, unsigned int shared_bytes);

/* capture.c */
/* With the lock held. Whether a call that is not safe while streams are being captured may go on; if not, those captures are
 * spoiled. */
CUresult capture_permits(void);
/* Spoils the stream's capture, if there is one, by what cannot be captured. */
CUresult capture_refuses(struct stream *stream);
/* Likewise for a wait on a stream, or with stream NULL on all of a context. */
CUresult capture_permits_wait(struct context *context, struct stream *stream);
/* Whether work may be submitted to a stream as far as captures of others go. */
CUresult capture_permits_work(struct stream *stream);
CUresult capture_work(struct call *call, struct stream *stream, const struct work *work);
/* Number of the graph that the stream adds to, 0 for none. */
unsigned capture_graph(const struct stream *stream);
CUresult capture_record(struct call *call, struct stream *stream, struct event *event);
CUresult capture_wait(struct call *call, struct stream *stream, struct event *event);
void capture_stream_closed(struct stream *stream);
/* What an event was last recorded in: the capture and its nodes. */
struct capture_point {
	uint64_t capture; /* id, 0 for none */
	struct node **nodes;
	size_t count;
};
struct capture_point *event_point(struct event *event);
CUresult capture_permits_event(const struct capture_point *point);

#endif
