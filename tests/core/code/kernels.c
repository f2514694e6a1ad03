// SPDX-License-Identifier: Apache-2.0
/*
 * Host stubs and their registration as nvcc has them made: the stub's address and twice the same name, from a constructor.
 * SHOWN has a symbol; the others are hidden, and in a stripped library have none.
 */
#include "giving.h"

#define STUB(name, value) \
	int name(long times) { return give_launch((const void *)name, times + 0 * value); }

#define HIDDEN __attribute__((visibility("hidden"), noinline, noclone))

__attribute__((noinline, noclone)) STUB(shown_kernel, 1)
HIDDEN STUB(_Z12hidden_firstPfi, 2)
HIDDEN STUB(_Z13hidden_secondv, 3)
HIDDEN STUB(never_registered, 4)
HIDDEN STUB(registered_twice, 5)

static void *handle;

static void register_all(void **made)
{
#define REGISTER(stub, name) give_register(made, (const char *)stub, (char *)name, name, -1, 0, 0, 0, 0, 0)
	REGISTER(shown_kernel, "shown_kernel");
	REGISTER(_Z12hidden_firstPfi, "_Z12hidden_firstPfi");
	REGISTER(_Z13hidden_secondv, "__nv_static_7__file__Z13hidden_secondv");
	REGISTER(registered_twice, "one");
	REGISTER(registered_twice, "two");
}

__attribute__((constructor)) static void register_kernels(void)
{
	register_all(&handle);
}

/* The same shape, another function: not a registration. */
__attribute__((noinline, noclone)) void describe(void **made, const char *stub, char *device, const char *name)
{
	__asm__ volatile("" : : "r"(made), "r"(stub), "r"(device), "r"(name));
}

void run_kernels(void)
{
	describe(&handle, (const char *)never_registered, "not_a_name", "not_a_name");
	shown_kernel(2);
	_Z12hidden_firstPfi(3);
	_Z13hidden_secondv(5);
	never_registered(7);
	registered_twice(11);
}
