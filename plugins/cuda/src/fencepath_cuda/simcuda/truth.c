// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#define _GNU_SOURCE
#include "truth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FLUSH_NS 100000000
#define BUFFER_BYTES (64 << 10)

static __thread int own_tid;

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int thread_id(void)
{
	if (!own_tid)
		own_tid = (int)syscall(SYS_gettid);
	return own_tid;
}

/* The file, and one buffer per thread: a line costs its thread no system call. */

struct buffer {
	pthread_mutex_t lock;
	struct buffer *next;
	size_t used;
	char text[BUFFER_BYTES];
};

static int truth_fd = -1;
static bool forked;
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static _Atomic(struct buffer *) buffers;
static __thread struct buffer *own_buffer;

bool truth_on(void)
{
	return truth_fd >= 0;
}

static void write_all(const char *text, size_t size)
{
	while (size) {
		ssize_t n = write(truth_fd, text, size);

		if (n < 0 && errno != EINTR)
			break;
		text += n > 0 ? n : 0;
		size -= n > 0 ? (size_t)n : 0;
	}
}

static void flush(struct buffer *buffer)
{
	write_all(buffer->text, buffer->used);
	buffer->used = 0;
}

static void flush_all(void)
{
	for (struct buffer *buffer = atomic_load(&buffers); buffer; buffer = buffer->next) {
		pthread_mutex_lock(&buffer->lock);
		flush(buffer);
		pthread_mutex_unlock(&buffer->lock);
	}
}

/* Buffers stay on the list after their thread: threads of a simulated program are few. */
static struct buffer *get_buffer(void)
{
	if (!own_buffer) {
		own_buffer = calloc(1, sizeof(*own_buffer));
		if (!own_buffer)
			abort();
		pthread_mutex_init(&own_buffer->lock, NULL);
		own_buffer->next = atomic_load(&buffers);
		while (!atomic_compare_exchange_weak(&buffers, &own_buffer->next, own_buffer))
			;
	}
	return own_buffer;
}

void truth_write(struct line *line)
{
	struct buffer *buffer = get_buffer();

	line_raw(line, "}\n");
	pthread_mutex_lock(&buffer->lock);
	if (buffer->used + line->used > sizeof(buffer->text))
		flush(buffer);
	if (line->used > sizeof(buffer->text)) {
		write_all(line->text, line->used);
	} else {
		memcpy(buffer->text + buffer->used, line->text, line->used);
		buffer->used += line->used;
	}
	pthread_mutex_unlock(&buffer->lock);
	free(line->heap);
}

static void *flush_now_and_then(void *unused)
{
	const struct timespec pause = {.tv_nsec = FLUSH_NS};

	prctl(PR_SET_NAME, "sim-truth");
	for (;;) {
		nanosleep(&pause, NULL);
		flush_all();
	}
	return unused;
}

/* SIMCUDA_TRUTH with the process's id for %p, NULL if nothing is to be written. */
static char *truth_path(void)
{
	const char *wish = getenv("SIMCUDA_TRUTH"), *at;
	char *path;

	if (!wish || !*wish)
		return NULL;
	at = strstr(wish, "%p");
	if (!at)
		return forked ? NULL : strdup(wish); /* the file is the truth of the process that loaded the library */
	return asprintf(&path, "%.*s%d%s", (int)(at - wish), wish, (int)getpid(), at + 2) < 0 ? NULL : path;
}

static void truth_open(void)
{
	char *path = truth_path(), text[256];
	struct line line;
	pthread_t thread;

	if (!path)
		return;
	truth_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (truth_fd < 0)
		fprintf(stderr, "simulated CUDA: cannot write truth to %s: %s\n", path, strerror(errno));
	free(path);
	if (truth_fd < 0)
		return;
	line_start(&line, text, sizeof(text), "header");
	line_raw(&line, ",\"format\":\"simcuda.truth/2\",\"simulated\":true,\"clock\":\"CLOCK_MONOTONIC\"");
	line_u64(&line, "pid", (uint64_t)getpid());
	line_u64(&line, "begin_ns", now_ns());
	truth_write(&line);
	flush_all(); /* first, whatever becomes of the process */
	if (pthread_create(&thread, NULL, flush_now_and_then, NULL) == 0)
		pthread_detach(thread);
}

/* A child of a process that has a device has none: its calls are nobody's truth. */
static void stop_in_child(void)
{
	forked = true;
	truth_fd = -1;
	own_tid = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, stop_in_child);
}

__attribute__((destructor)) static void truth_close(void)
{
	if (truth_on())
		flush_all();
}

/* Failures on demand: SIMCUDA_FAIL="cuLaunchKernel:719:3,cudaMalloc:2:1+": the third launch fails with 719, every
 * allocation with 2. */

#define MAX_FAILURES 64

static struct failure {
	char name[64];
	int result;
	unsigned long from;
	bool and_later;
	atomic_ulong calls;
} failures[MAX_FAILURES];
static int failure_count;

__attribute__((constructor)) static void read_failures(void)
{
	const char *wish = getenv("SIMCUDA_FAIL");
	char *copy = wish ? strdup(wish) : NULL, *rest = copy, *one;

	while (rest && (one = strsep(&rest, ",")) && failure_count < MAX_FAILURES) {
		struct failure *failure = &failures[failure_count];
		char later = 0;

		if (sscanf(one, "%63[^:]:%d:%lu%c", failure->name, &failure->result, &failure->from, &later) >= 3) {
			failure->and_later = later == '+';
			failure_count++;
		} else if (*one) {
			fprintf(stderr, "simulated CUDA: SIMCUDA_FAIL wants FUNCTION:RESULT:N[+], not '%s'\n", one);
		}
	}
	free(copy);
}

static int forced_result(const char *name)
{
	int result = 0;

	for (int i = 0; i < failure_count; i++) {
		struct failure *failure = &failures[i];
		unsigned long n;

		if (strcmp(failure->name, name))
			continue;
		n = atomic_fetch_add(&failure->calls, 1) + 1;
		if (n == failure->from || (failure->and_later && n > failure->from))
			result = failure->result;
	}
	return result;
}

/* Calls. */

static _Atomic uint64_t last_call;
static __thread struct call *innermost;

bool call_begin(struct call *call, const char *name)
{
	pthread_once(&opened, truth_open);
	call->written = truth_on();
	call->name = name;
	call->number = 0;
	call->per_thread = false;
	call->context = 0;
	if (call->written) {
		call->outer = innermost;
		innermost = call;
		call->number = atomic_fetch_add(&last_call, 1) + 1;
		line_start(&call->line, call->text, sizeof(call->text), "call");
		call->begin_ns = now_ns();
	}
	call->forced = failure_count ? forced_result(name) : 0;
	return call->forced != 0;
}

int call_end(struct call *call, int result)
{
	uint64_t end_ns;

	if (!call->written)
		return result;
	end_ns = now_ns();
	line_u64(&call->line, "call", call->number);
	line_text(&call->line, "name", call->name);
	line_u64(&call->line, "tid", (uint64_t)thread_id());
	line_u64(&call->line, "begin_ns", call->begin_ns);
	line_u64(&call->line, "end_ns", end_ns);
	line_u64(&call->line, "result", (uint64_t)result);
	if (call->context) {
		line_u64(&call->line, "context", call->context);
		line_hex(&call->line, "context_handle", call->context_handle);
	}
	if (call->outer)
		line_u64(&call->line, "outer", call->outer->number);
	truth_write(&call->line);
	innermost = call->outer;
	return result;
}

/* For the simulated libcudart. */
SIMCUDA_API const struct simcuda_calls simcuda_calls = {call_begin, call_end, line_u64, line_hex};
