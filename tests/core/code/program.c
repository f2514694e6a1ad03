// SPDX-License-Identifier: Apache-2.0
/*
 * Calls from one place after the other; each step waits for a line, so that what it has mapped can be looked at.
 * Each caller gives a mark of its own.
 */
#define _GNU_SOURCE
#include "giving.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[4096];

static void step(const char *name)
{
	printf("%s %d\n", name, (int)getpid());
	fflush(stdout);
	if (getchar() != '\n')
		exit(9);
}

static void *load(const char *file)
{
	char path[8192];
	void *library;

	snprintf(path, sizeof path, "%s/%s", folder, file);
	library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(8);
	}
	return library;
}

static void call(void *library, long mark, long times)
{
	((work)dlsym(library, "call_it"))(mark, times);
}

/* push %rbp; mov $give_work, %rax; call *%rax; pop %rbp; ret */
static work make_code(int flags, int fd)
{
	unsigned char code[] = { 0x55, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x5d, 0xc3 };
	work called = give_work;
	unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, flags, fd, 0);

	memcpy(code + 3, &called, 8);
	memcpy(page, code, sizeof code);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	return (work)page;
}

static void call_code(work code, long mark, long times)
{
	for (long i = 0; i < times; i++)
		code(mark, i);
}

static void addresses(void)
{
	work by_name, hidden, jumping, rest, other;

	give_address("work", &by_name, 1);
	give_address("work", &hidden, 2);
	give_address("work", &jumping, 3);
	give_address("rest", &rest, 1);
	give_address("other", &other, 1);
	give_address("nothing", &other, 1);
	printf("hidden %lx %lx %lx\n", (long)hidden, (long)rest, (long)jumping);
	step("handed_out");
	for (long i = 0; i < 3; i++)
		by_name(41, i);
	for (long i = 0; i < 5; i++)
		hidden(43, i);
	for (long i = 0; i < 7; i++)
		jumping(47, i);
	for (long i = 0; i < 11; i++)
		rest(53, i);
	for (long i = 0; i < 13; i++)
		other(59, i);
}

int main(int argc, char **argv)
{
	void *first, *second, *kernels;
	work compiled, in_memory;
	char path[8192];
	int fd, status;

	snprintf(folder, sizeof folder, "%s", argv[1]);
	if (argc > 2) {
		call(load("libfirst.so"), 37, 29);
		step("again");
		return 0;
	}
	step("begin");
	for (long i = 0; i < 7; i++)
		give_work(1, i);
	compiled = make_code(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	fd = memfd_create("code", 0);
	ftruncate(fd, 4096);
	in_memory = make_code(MAP_SHARED, fd);
	call_code(compiled, 2, 13);
	call_code(in_memory, 3, 17);
	first = load("libfirst.so");
	call(first, 5, 11);
	step("first");
	dlclose(first);
	second = load("libsecond.so");
	call(second, 7, 19);
	step("second");
	if (!fork()) {
		call(second, 11, 23);
		_exit(0);
	}
	wait(&status);
	kernels = load("libkernels.so");
	snprintf(path, sizeof path, "%s/libkernels.so", folder);
	unlink(path);
	((void (*)(void))dlsym(kernels, "run_kernels"))();
	step("kernels");
	addresses();
	step("worked");
	execl("/proc/self/exe", argv[0], argv[1], "again", (char *)0);
	return 7;
}
