// SPDX-License-Identifier: Apache-2.0
/*
 * steady STATUS LIBRARY [REQUESTS]: answers marked requests, each of seven launches and a wait, until STATUS asks it to
 * end or REQUESTS are answered. What it did is in STATUS, which is mapped, at every moment: also if it is killed.
 *
 * Ends with 43. A signal that it can handle is counted and does nothing else.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <fencepath_mark.h>

enum { LAUNCHES = 7, SIGNALS = 32, CODE = 43, TRAP = 0xcc, PATIENCE = 500 };

/* tests/faults/target.py reads it. */
struct status {
	volatile uint64_t pid, requests, launches, waits, stop, traps, done;
	volatile uint64_t signals[SIGNALS];
};

static struct status *status;

static void count(int number)
{
	status->signals[number]++;
}

static void pause_us(long us)
{
	const struct timespec time = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&time, NULL);
}

static void *open_library(const char *path, const char *name)
{
	static void *library;
	void *found;

	if (!library)
		library = dlopen(path, RTLD_NOW);
	found = library ? dlsym(library, name) : NULL;
	if (!found) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return found;
}

int main(int argc, char **argv)
{
	unsigned long most = argc > 3 ? strtoul(argv[3], NULL, 10) : ~0ul;
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*synchronize)(void *);
	int fd = open(argv[1], O_RDWR), number, patience;

	status = mmap(NULL, sizeof *status, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (status == MAP_FAILED)
		return 1;
	close(fd);
	launch = (__typeof__(launch))open_library(argv[2], "cuLaunchKernel");
	synchronize = (__typeof__(synchronize))open_library(argv[2], "cuStreamSynchronize");
	for (number = 1; number < SIGNALS; number++)
		if (number != SIGCHLD && number != SIGCONT && number != SIGTSTP && number < SIGURG)
			signal(number, count);
	status->pid = (uint64_t)getpid();
	while (!status->stop && status->requests < most) {
		char id[32];
		uint64_t request;
		int i;

		snprintf(id, sizeof id, "req-%lu", (unsigned long)status->requests + 1);
		request = fencepath_request_begin(id, NULL, NULL, 0);
		for (i = 0; i < LAUNCHES; i++) {
			launch(NULL, 1, 2, 3, 5, 7, 11, 13, NULL, NULL, NULL);
			status->launches++;
		}
		synchronize(NULL);
		status->waits++;
		fencepath_request_end(request);
		status->requests++;
		pause_us(2000);
	}
	/* The kernel takes probes away some time after their owner has died. */
	for (patience = PATIENCE; patience; patience--) {
		status->traps = (*(unsigned char *)launch == TRAP) + (*(unsigned char *)synchronize == TRAP);
		if (!status->traps || !status->stop)
			break;
		pause_us(10000);
	}
	status->done = 1;
	return CODE;
}
