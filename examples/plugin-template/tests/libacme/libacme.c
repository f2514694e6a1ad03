// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * libacme, a runtime for an accelerator that does not exist.
 *
 * A thread of its own plays each stream's device. It sleeps until its doorbell rings, runs one job for each ring, a
 * nanosecond a byte, and then tells whoever waits. The doorbell is a real-time signal, which queues: no ring is lost.
 */
#define _GNU_SOURCE
#include "acme.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

/* The plugin has the same number, in events.py. */
#define ACME_DOORBELL 40

enum { STREAMS = 8, DEPTH = 64 };

struct acme_stream {
	pthread_mutex_t lock;
	pthread_cond_t done;
	pthread_t device;
	bool used, closing;
	uint64_t submitted, finished;
	uint64_t bytes[DEPTH];
};

/* Handles are handed out again, the lowest free one first, as those of real runtimes are. */
static struct acme_stream streams[STREAMS];
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

static void run(uint64_t bytes)
{
	struct timespec left = {bytes / 1000000000, bytes % 1000000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
}

/* The device: returns when it is rung with nothing to do while its stream is being destroyed. */
static void *device_main(void *argument)
{
	struct acme_stream *stream = argument;
	sigset_t doorbell;
	uint64_t bytes;

	sigemptyset(&doorbell);
	sigaddset(&doorbell, ACME_DOORBELL);
	for (;;) {
		if (sigwaitinfo(&doorbell, NULL) < 0)
			continue;
		pthread_mutex_lock(&stream->lock);
		if (stream->closing && stream->finished == stream->submitted) {
			pthread_mutex_unlock(&stream->lock);
			return NULL;
		}
		bytes = stream->bytes[stream->finished % DEPTH];
		pthread_mutex_unlock(&stream->lock);
		run(bytes);
		pthread_mutex_lock(&stream->lock);
		stream->finished++;
		pthread_mutex_unlock(&stream->lock);
		pthread_cond_broadcast(&stream->done);
	}
}

/* Start the device with the doorbell blocked: a signal that is not blocked would end the program. */
static int start_device(struct acme_stream *stream)
{
	sigset_t doorbell, before;
	int error;

	sigemptyset(&doorbell);
	sigaddset(&doorbell, ACME_DOORBELL);
	pthread_sigmask(SIG_BLOCK, &doorbell, &before);
	error = pthread_create(&stream->device, NULL, device_main, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		pthread_setname_np(stream->device, "acme-device");
	return -error;
}

static struct acme_stream *take_stream(void)
{
	struct acme_stream *found = NULL;

	pthread_mutex_lock(&streams_lock);
	for (int i = 0; i < STREAMS && !found; i++)
		if (!streams[i].used)
			found = &streams[i];
	if (found)
		*found = (struct acme_stream){.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .used = true};
	pthread_mutex_unlock(&streams_lock);
	return found;
}

int acme_stream_create(acme_stream_t *out)
{
	struct acme_stream *stream = take_stream();
	int error;

	if (!stream)
		return -EMFILE;
	error = start_device(stream);
	if (error) {
		stream->used = false;
		return error;
	}
	*out = stream;
	return 0;
}

int acme_submit(acme_stream_t stream, uint32_t kernel, uint64_t bytes)
{
	if (!kernel)
		return -EINVAL;
	pthread_mutex_lock(&stream->lock);
	if (stream->submitted - stream->finished == DEPTH) {
		pthread_mutex_unlock(&stream->lock);
		return -EAGAIN;
	}
	stream->bytes[stream->submitted++ % DEPTH] = bytes;
	pthread_mutex_unlock(&stream->lock);
	return -pthread_kill(stream->device, ACME_DOORBELL);
}

int acme_wait(acme_stream_t stream)
{
	pthread_mutex_lock(&stream->lock);
	while (stream->finished != stream->submitted)
		pthread_cond_wait(&stream->done, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
	return 0;
}

int acme_stream_destroy(acme_stream_t stream)
{
	pthread_mutex_lock(&stream->lock);
	stream->closing = true;
	pthread_mutex_unlock(&stream->lock);
	pthread_kill(stream->device, ACME_DOORBELL);
	pthread_join(stream->device, NULL);
	stream->used = false;
	return 0;
}
