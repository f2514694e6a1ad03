// SPDX-License-Identifier: Apache-2.0
/*
 * Does a known number of things to the scheduler and says what it did, a line each: NAME VALUE...
 * Waits for a line on standard input before it begins, and for another one before it ends.
 *
 *   pingpong before|after N   two threads hand a byte to and fro N times, on one CPU; they are created before or after go
 *   sleeper N                 a thread sleeps N times on the CPU of a thread that never leaves it
 *   busy MS                   a thread runs for MS milliseconds
 *   share MS                  two threads run on one CPU for MS milliseconds
 *   tree                      processes, threads and execs
 *   send N                    a thread sends N datagrams to another one over the loopback device, on one CPU
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CPU 0

static int rounds;
static int there[2], back[2];
static volatile int stop, running;
static uint64_t until_ns;

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void say(const char *name, long a, long b)
{
	char line[80];
	int size = snprintf(line, sizeof(line), "%s %ld %ld\n", name, a, b);

	if (write(1, line, size) != size)
		abort();
}

static void wait_for_line(void)
{
	char c;

	while (read(0, &c, 1) == 1 && c != '\n')
		;
}

static void nap(long ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};

	nanosleep(&t, NULL);
}

/* One CPU, and real-time policies: nobody else decides when these threads run. */
static void settle(int policy, int priority)
{
	struct sched_param param = {.sched_priority = priority};
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(CPU, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || sched_setscheduler(0, policy, &param)) {
		perror("settle");
		exit(1);
	}
}

static void pass(int fd)
{
	if (write(fd, "x", 1) != 1)
		abort();
}

static void take(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		abort();
}

static int begin[2];

static void *ping(void *unused)
{
	say("ping", gettid(), 0);
	settle(SCHED_FIFO, 1);
	take(begin[0]);
	nap(20000000); /* pong waits by now */
	say("starts", gettid(), now(CLOCK_MONOTONIC));
	for (int i = 0; i < rounds; i++) {
		pass(there[1]);
		take(back[0]);
	}
	return NULL;
}

static void *pong(void *unused)
{
	say("pong", gettid(), 0);
	settle(SCHED_FIFO, 1);
	for (int i = 0; i < rounds; i++) {
		take(there[0]);
		pass(back[1]);
	}
	return NULL;
}

static void pingpong(int before)
{
	pthread_t a, b;

	if (pipe(there) || pipe(back) || pipe(begin))
		abort();
	if (!before)
		wait_for_line();
	pthread_create(&b, NULL, pong, NULL);
	pthread_create(&a, NULL, ping, NULL);
	if (before) {
		nap(50000000);
		say("ready", 0, 0);
		wait_for_line();
	}
	pass(begin[1]);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

/* Runs until stop, or until a time; says when it began and ended, and for how long it was on a CPU. */
static void *run(void *shares)
{
	uint64_t from, until, used;

	settle(shares ? SCHED_RR : SCHED_FIFO, 1);
	say("runs", gettid(), 0);
	while (!stop && !until_ns)
		nap(1000000);
	from = now(CLOCK_MONOTONIC);
	running = 1;
	used = now(CLOCK_THREAD_CPUTIME_ID);
	while (!stop && (!until_ns || now(CLOCK_MONOTONIC) < until_ns))
		;
	used = now(CLOCK_THREAD_CPUTIME_ID) - used;
	until = now(CLOCK_MONOTONIC);
	say("window", gettid(), from);
	say("until", gettid(), until);
	say("used", gettid(), used);
	return NULL;
}

static void *sleep_often(void *unused)
{
	settle(SCHED_FIFO, 2);
	say("sleeps", gettid(), 0);
	while (!running)
		nap(1000000);
	say("rounds", gettid(), now(CLOCK_MONOTONIC));
	for (int i = 0; i < rounds; i++)
		nap(2000000);
	stop = 1;
	return NULL;
}

static void sleeper(void)
{
	pthread_t a, b;

	pthread_create(&b, NULL, sleep_often, NULL);
	pthread_create(&a, NULL, run, NULL);
	nap(50000000);
	until_ns = UINT64_MAX;
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

static void busy(int threads, long ms)
{
	pthread_t t[2];

	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, run, threads > 1 ? (void *)t : NULL);
	nap(50000000);
	until_ns = now(CLOCK_MONOTONIC) + ms * 1000000;
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
}

static void *end_at_once(void *unused)
{
	say("thread", gettid(), getpid());
	return NULL;
}

static void *become(void *unused)
{
	say("exec", gettid(), getpid());
	execl("/bin/true", "true", NULL);
	abort();
}

static void child(int number)
{
	pthread_t t[3];

	say("process", getpid(), getppid());
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, end_at_once, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	if (number == 0)
		become(NULL);
	if (number == 1) {
		pthread_create(&t[2], NULL, become, NULL);
		for (;;)
			pause();
	}
	_exit(0);
}

static void tree(void)
{
	pthread_t t;

	for (int i = 0; i < 3; i++)
		if (fork() == 0)
			child(i);
	while (wait(NULL) > 0)
		;
	pthread_create(&t, NULL, end_at_once, NULL);
	pthread_join(t, NULL);
}

static int receiver, sender;
static struct sockaddr_in address;

static void *receive(void *unused)
{
	settle(SCHED_FIFO, 1);
	say("receives", gettid(), 0);
	for (int i = 0; i < rounds; i++)
		take(receiver);
	return NULL;
}

static void *transmit(void *unused)
{
	settle(SCHED_FIFO, 1);
	say("sends", gettid(), 0);
	nap(50000000); /* the other one waits by then */
	for (int i = 0; i < rounds; i++) {
		nap(2000000);
		if (sendto(sender, "x", 1, 0, (struct sockaddr *)&address, sizeof(address)) != 1)
			abort();
	}
	return NULL;
}

static void send_datagrams(void)
{
	socklen_t size = sizeof(address);
	pthread_t a, b;

	receiver = socket(AF_INET, SOCK_DGRAM, 0);
	sender = socket(AF_INET, SOCK_DGRAM, 0);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(receiver, (struct sockaddr *)&address, size) || getsockname(receiver, (struct sockaddr *)&address, &size))
		abort();
	pthread_create(&a, NULL, receive, NULL);
	pthread_create(&b, NULL, transmit, NULL);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

int main(int argc, char **argv)
{
	const char *what = argv[1];

	rounds = atoi(argv[argc - 1]);
	/* no thread waits for a page of this program */
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		abort();
	say("main", getpid(), 0);
	if (!strcmp(what, "pingpong")) {
		pingpong(!strcmp(argv[2], "before"));
	} else {
		wait_for_line();
		if (!strcmp(what, "sleeper"))
			sleeper();
		else if (!strcmp(what, "busy"))
			busy(1, rounds);
		else if (!strcmp(what, "share"))
			busy(2, rounds);
		else if (!strcmp(what, "tree"))
			tree();
		else if (!strcmp(what, "send"))
			send_datagrams();
	}
	say("done", 0, 0);
	wait_for_line();
	return 0;
}
