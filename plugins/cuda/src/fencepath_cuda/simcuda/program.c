// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Runs programs of CUDA calls that somebody made up: see program.h for what they look like.
 *
 * Each program of a file runs in a process of its own, so that a hundred of them can be recorded in one go. Which was which
 * is printed, a line of JSON each. On a real GPU it is the same: compile program*.c with -lcuda (program_steps.c twice) or
 * take it as it was linked here, away from the simulated library.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

struct options {
	const char *file;
	int only, jobs;
	unsigned timeout_s;
	bool results;
};

static pid_t run_in_child(const struct options *options, int program)
{
	char only[16], timeout[16];
	pid_t pid;

	snprintf(only, sizeof(only), "%d", program);
	snprintf(timeout, sizeof(timeout), "%u", options->timeout_s);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "simcuda-program", "--only", only, "--timeout", timeout, options->file,
		      options->results ? "--results" : NULL, NULL);
		_exit(127);
	}
	return pid;
}

static bool await_child(pid_t *pids, int count)
{
	int status;
	pid_t pid = wait(&status);

	for (int i = 0; i < count; i++)
		if (pids[i] == pid)
			printf("{\"program\":%d,\"pid\":%d,\"status\":%d}\n", i, (int)pid,
			       WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	fflush(stdout);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run_all(const struct options *options, int count)
{
	pid_t *pids = calloc((size_t)count + 1, sizeof(*pids));
	int running = 0;
	bool good = true;

	for (int i = 0; pids && i < count; i++) {
		pids[i] = run_in_child(options, i);
		if (++running == options->jobs) {
			good &= await_child(pids, count);
			running--;
		}
	}
	while (running--)
		good &= await_child(pids, count);
	free(pids);
	return good ? 0 : 1;
}

/* The children read it again: what comes from a pipe is kept. */
static void keep_input(struct options *options)
{
	static char path[32];
	char buffer[4096];
	ssize_t n;
	int fd;

	if (strcmp(options->file, "-"))
		return;
	fd = memfd_create("programs", 0);
	while ((n = read(0, buffer, sizeof(buffer))) > 0)
		if (write(fd, buffer, (size_t)n) != n)
			abort();
	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	options->file = path;
}

static void usage(const char *name)
{
	fprintf(stderr,
		"usage: %s [--jobs N] [--timeout SECONDS] [--results] FILE|-\n"
		"Runs programs of CUDA calls, each in a process of its own, and prints which was which; with --results also\n"
		"what each step returned (-1: it was passed over).\n",
		name);
	exit(2);
}

static struct options parse(int argc, char **argv)
{
	static const struct option names[] = {
		{"jobs", required_argument, NULL, 'j'},	   {"only", required_argument, NULL, 'o'},
		{"timeout", required_argument, NULL, 't'}, {"results", no_argument, NULL, 'r'},
		{0},
	};
	struct options options = {.only = -1, .jobs = 1, .timeout_s = 30};
	int option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
		switch (option) {
		case 'j': options.jobs = atoi(optarg); break;
		case 'o': options.only = atoi(optarg); break;
		case 't': options.timeout_s = (unsigned)atoi(optarg); break;
		case 'r': options.results = true; break;
		default: usage(argv[0]);
		}
	if (optind + 1 != argc || options.jobs < 1)
		usage(argv[0]);
	options.file = argv[optind];
	return options;
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	FILE *file;
	int count;

	keep_input(&options);
	file = fopen(options.file, "re");
	if (!file) {
		perror(options.file);
		return 2;
	}
	count = read_programs(file, options.only);
	fclose(file);
	if (options.only < 0)
		return run_all(&options, count);
	alarm(options.timeout_s);
	run_program();
	if (options.results)
		print_results(options.only);
	return 0;
}
