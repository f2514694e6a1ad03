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

#include "simcuda.h"

#define FLUSH_NS 100000000
#define BUFFER_BYTES (64 << 10)
#define HEAD_BYTES 320 /* kept for what every call has, however many arguments it writes */

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int thread_id(void)
{
	static __thread int tid;

	if (!tid)
		tid = (int)syscall(SYS_gettid);
	return tid;
}

/* The file, and one buffer per thread: a line costs its thread no system call. */

struct buffer {
	pthread_mutex_t lock;
	struct buffer *next;
	size_t used;
	char text[BUFFER_BYTES];
};

static int truth_fd = -1;
static _Atomic(struct buffer *) buffers;
static __thread struct buffer *own_buffer;

bool truth_on(void)
{
	return truth_fd >= 0;
}

static void flush(struct buffer *buffer)
{
	size_t done = 0;

	while (done < buffer->used) {
		ssize_t n = write(truth_fd, buffer->text + done, buffer->used - done);

		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
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
	memcpy(buffer->text + buffer->used, line->text, line->used);
	buffer->used += line->used;
	pthread_mutex_unlock(&buffer->lock);
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

static void stop_in_child(void)
{
	truth_fd = -1; /* a forked child has no device: its calls are nobody's truth */
}

__attribute__((constructor)) static void truth_open(void)
{
	const char *path = getenv("SIMCUDA_TRUTH");
	struct line line;
	char text[256];
	pthread_t thread;

	if (!path || !*path)
		return;
	truth_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (truth_fd < 0) {
		fprintf(stderr, "simulated CUDA: cannot write truth to %s: %s\n", path, strerror(errno));
		return;
	}
	line_start(&line, text, sizeof(text), "header");
	line_raw(&line, ",\"format\":\"simcuda.truth/1\",\"simulated\":true,\"clock\":\"CLOCK_MONOTONIC\"");
	line_u64(&line, "pid", (uint64_t)getpid());
	line_u64(&line, "begin_ns", now_ns());
	truth_write(&line);
	flush_all(); /* first, whatever becomes of the process */
	pthread_atfork(NULL, NULL, stop_in_child);
	if (pthread_create(&thread, NULL, flush_now_and_then, NULL) == 0)
		pthread_detach(thread);
}

__attribute__((destructor)) static void truth_close(void)
{
	if (truth_on())
		flush_all();
}

/* Lines. Numbers are written by hand: a launch's line must not cost more than the launch. */

static void add(struct line *line, const char *text, size_t size)
{
	memcpy(line->text + line->used, text, size);
	line->used += size;
}

/* Room for a member and for the end of the line. */
static bool fits(const struct line *line, size_t size)
{
	return line->used + size + 8 <= line->size;
}

static void add_key(struct line *line, const char *key)
{
	add(line, ",\"", 2);
	add(line, key, strlen(key));
	add(line, "\":", 2);
}

static void add_u64(struct line *line, uint64_t value)
{
	char digits[20];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	add(line, digits + at, sizeof(digits) - at);
}

void line_start(struct line *line, char *text, size_t size, const char *type)
{
	*line = (struct line){.text = text, .size = size};
	add(line, "{\"type\":\"", 9);
	add(line, type, strlen(type));
	add(line, "\"", 1);
}

void line_raw(struct line *line, const char *text)
{
	add(line, text, strlen(text));
}

void line_u64(struct line *line, const char *key, uint64_t value)
{
	if (fits(line, strlen(key) + 24)) {
		add_key(line, key);
		add_u64(line, value);
	}
}

void line_hex(struct line *line, const char *key, uint64_t value)
{
	char digits[16];
	size_t at = sizeof(digits);

	if (!fits(line, strlen(key) + 26))
		return;
	do
		digits[--at] = "0123456789abcdef"[value & 15];
	while (value >>= 4);
	add_key(line, key);
	add(line, "\"0x", 3);
	add(line, digits + at, sizeof(digits) - at);
	add(line, "\"", 1);
}

void line_text(struct line *line, const char *key, const char *value)
{
	if (!fits(line, strlen(key) + 6 * strlen(value) + 6))
		return;
	add_key(line, key);
	add(line, "\"", 1);
	for (; *value; value++) {
		char escaped[8];

		if (*value == '"' || *value == '\\' || (unsigned char)*value < ' ')
			add(line, escaped, (size_t)snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned char)*value));
		else
			add(line, value, 1);
	}
	add(line, "\"", 1);
}

void line_ids(struct line *line, const char *key, const uint64_t *ids, size_t count)
{
	if (!fits(line, strlen(key) + 6 + 21 * count))
		return;
	add_key(line, key);
	add(line, "[", 1);
	for (size_t i = 0; i < count; i++) {
		if (i)
			add(line, ",", 1);
		add_u64(line, ids[i]);
	}
	add(line, "]", 1);
}

void line_edge(struct line *line, bool first, uint64_t op, const char *why)
{
	if (!fits(line, strlen(why) + 28))
		return;
	add(line, first ? "[" : ",[", first ? 1 : 2);
	add_u64(line, op);
	add(line, ",\"", 2);
	add(line, why, strlen(why));
	add(line, "\"]", 2);
}

/* Failures on demand: SIMCUDA_FAIL="cuLaunchKernel:719:3,cudaMalloc:2:1+": the third launch fails with 719, every
 * allocation with 2. */

#define MAX_FAILURES 16

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
	call->written = truth_on();
	call->name = name;
	call->number = 0;
	if (call->written) {
		call->outer = innermost;
		innermost = call;
		call->number = atomic_fetch_add(&last_call, 1) + 1;
		line_start(&call->line, call->text, sizeof(call->text) - HEAD_BYTES, "call");
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
	call->line.size += HEAD_BYTES;
	line_u64(&call->line, "call", call->number);
	line_text(&call->line, "name", call->name);
	line_u64(&call->line, "tid", (uint64_t)thread_id());
	line_u64(&call->line, "begin_ns", call->begin_ns);
	line_u64(&call->line, "end_ns", end_ns);
	line_u64(&call->line, "result", (uint64_t)result);
	if (call->outer)
		line_u64(&call->line, "outer", call->outer->number);
	truth_write(&call->line);
	innermost = call->outer;
	return result;
}

/* For the simulated libcudart. */
SIMCUDA_API const struct simcuda_calls simcuda_calls = {call_begin, call_end, line_u64, line_hex, line_text};
