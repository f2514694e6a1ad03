// SPDX-License-Identifier: Apache-2.0
#include "giving.h"

#include <string.h>

#define KEEP __attribute__((noinline, noclone))

KEEP int give_work(long mark, long times) { return (int)(mark + times); }

KEEP int give_rest(long mark, long times) { return (int)(mark - times); }

KEEP int give_launch(const void *stub, long times) { return stub ? (int)times : -1; }

static KEEP int hidden_work(long mark, long times) { return (int)(3 * mark + times); }

static KEEP int hidden_rest(long mark, long times) { return (int)(5 * mark + times); }

static KEEP int hidden_other(long mark, long times) { return (int)(7 * mark + times); }

/* Only a jump to a function that has a symbol. */
__asm__(".text\n.type jump_to_work,@function\njump_to_work:\n endbr64\n jmp give_work_here\n.size jump_to_work,.-jump_to_work\n"
	".set give_work_here, give_work\n");
int jump_to_work(long mark, long times);

KEEP int give_address(const char *name, work *out, long version)
{
	if (!strcmp(name, "work"))
		*out = version == 1 ? give_work : version == 2 ? hidden_work : jump_to_work;
	else if (!strcmp(name, "rest"))
		*out = hidden_rest;
	else if (!strcmp(name, "other"))
		*out = hidden_other;
	else
		return 1;
	return 0;
}

static void *kept[8];

KEEP void give_register(void **handle, const char *stub, char *device, const char *name, int limit, void *a, void *b, void *c,
			void *d, int *e)
{
	kept[limit & 7] = handle ? (void *)stub : (void *)name;
	(void)device, (void)a, (void)b, (void)c, (void)d, (void)e;
}
