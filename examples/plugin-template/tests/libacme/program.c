// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * program ROUNDS BURST BYTES: serves ROUNDS requests on one stream after another. A request is a burst of jobs and a wait
 * for them; each request has a stream of its own, so that the same handle names a new stream each time.
 *
 * What it did is printed, one fact a line: the source of truth that the recording is held against. Times are
 * CLOCK_MONOTONIC in ns, read outside of the calls.
 */
#define _GNU_SOURCE
#include "acme.h"
#include "fencepath_mark.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void check(int error)
{
	if (error) {
		fprintf(stderr, "libacme failed: %d\n", error);
		exit(1);
	}
}

static void serve(unsigned round, unsigned burst, uint64_t bytes)
{
	acme_stream_t stream;
	uint64_t request, before;
	char name[32];

	check(acme_stream_create(&stream));
	printf("create %llx\n", (unsigned long long)(uintptr_t)stream);
	snprintf(name, sizeof(name), "request-%u", round);
	request = fencepath_request_begin(name, NULL, NULL, 0);
	for (unsigned i = 0; i < burst; i++) {
		check(acme_submit(stream, round + 1, bytes + i));
		printf("submit %llu\n", (unsigned long long)(bytes + i));
	}
	before = now_ns();
	check(acme_wait(stream));
	printf("wait %llu %llu\n", (unsigned long long)before, (unsigned long long)now_ns());
	fencepath_request_end(request);
	check(acme_stream_destroy(stream));
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? atoi(argv[1]) : 3;
	unsigned burst = argc > 2 ? atoi(argv[2]) : 2;
	uint64_t bytes = argc > 3 ? strtoull(argv[3], NULL, 0) : 2000000;

	printf("thread %d\n", gettid());
	for (unsigned round = 0; round < rounds; round++)
		serve(round, burst, bytes);
	/* Refused: there is no kernel 0. A call that failed submitted nothing. */
	{
		acme_stream_t stream;

		check(acme_stream_create(&stream));
		printf("create %llx\n", (unsigned long long)(uintptr_t)stream);
		printf("refused %d\n", acme_submit(stream, 0, bytes));
		check(acme_stream_destroy(stream));
	}
	return 0;
}
