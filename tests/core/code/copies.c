// SPDX-License-Identifier: Apache-2.0
/* Loads copies of the library one after the other, all in one process, and calls each as often as its place says. */
#include "giving.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int step(const char *name)
{
	printf("%s %d\n", name, (int)getpid());
	fflush(stdout);
	return getchar() == '\n';
}

int main(int argc, char **argv)
{
	if (!step("begin"))
		return 9;
	for (int copy = 1; copy < argc; copy++) {
		void *library = dlopen(argv[copy], RTLD_NOW | RTLD_LOCAL);
		work called = library ? (work)dlsym(library, "give_work") : 0;

		if (!called) {
			fprintf(stderr, "%s\n", dlerror());
			return 8;
		}
		if (!step("loaded"))
			return 9;
		for (long i = 0; i < 3 + 2 * copy; i++)
			called(copy, i);
	}
#ifdef LINKED_IN
	for (long i = 0; i < 17; i++)
		give_work(100, i);
#endif
	return step("worked") ? 0 : 9;
}
