// SPDX-License-Identifier: Apache-2.0
/*
 * Says ready, waits for a line on standard input, then makes processes and threads and says what, a line each: WHAT TID PROCESS.
 *
 *   tree            processes, threads and execs, from leaders and from other threads
 *   tree marks N    N processes, one after the other, whose first act is a mark
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../core/src/fencepath/include/fencepath_mark.h"

static void say(const char *what, long tid, long process)
{
	char line[80];
	int size = snprintf(line, sizeof(line), "%s %ld %ld\n", what, tid, process);

	if (write(1, line, size) != size)
		abort();
}

static void *end_at_once(void *unused)
{
	(void)unused;
	say("thread", gettid(), getpid());
	return NULL;
}

static void *become(void *what)
{
	say(what, gettid(), getpid());
	execl("/bin/true", "true", NULL);
	abort();
}

static void *make_process(void *unused)
{
	pid_t pid;

	(void)unused;
	say("thread", gettid(), getpid());
	pid = fork();
	if (pid == 0) {
		say("process", getpid(), getppid());
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	return NULL;
}

static void child(int number)
{
	pthread_t threads[3];

	say("process", getpid(), getppid());
	pthread_create(&threads[0], NULL, end_at_once, NULL);
	pthread_create(&threads[1], NULL, number == 2 ? make_process : end_at_once, NULL);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	if (number == 0)
		become("exec");
	if (number == 1) {
		pthread_create(&threads[2], NULL, become, "exec_thread");
		for (;;)
			pause();
	}
	_exit(0);
}

static void tree(void)
{
	pthread_t thread;

	for (int i = 0; i < 3; i++)
		if (fork() == 0)
			child(i);
	while (wait(NULL) > 0)
		;
	pthread_create(&thread, NULL, end_at_once, NULL);
	pthread_join(thread, NULL);
}

static void marks(int count)
{
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			fencepath_token(i, 1);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		say("process", pid, getpid());
	}
}

int main(int argc, char **argv)
{
	char c;

	say("ready", 0, 0);
	while (read(0, &c, 1) == 1 && c != '\n')
		;
	if (argc > 2)
		marks(atoi(argv[2]));
	else
		tree();
	return 0;
}
