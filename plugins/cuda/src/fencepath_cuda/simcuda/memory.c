// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: memory, which is all host memory, 0 at first. What an operation touches stays until it is done,
 * whoever frees it, so that a wrong program does no harm.
 */
#include <stdlib.h>

#include "device.h"

#define ALIGNMENT 512
#define MEMORY_BYTES (64ull << 30) /* the most that there is at once */

struct allocation {
	atomic_int references;
	struct allocation *next;
	void *block;
	char *memory; /* aligned, within the block */
	size_t bytes;
	enum memory kind;
	unsigned graph;
	const struct context *context; /* NULL of host memory, which is every context's */
};

static struct allocation *allocations;

struct allocation *allocation_get(struct allocation *allocation)
{
	atomic_fetch_add(&allocation->references, 1);
	return allocation;
}

void allocation_put(struct allocation *allocation)
{
	if (atomic_fetch_sub(&allocation->references, 1) != 1)
		return;
	values_forget(allocation->memory, allocation->bytes);
	free(allocation->block);
	free(allocation);
}

const void *allocation_memory(const struct allocation *allocation)
{
	return allocation->memory;
}

/* The lock is held. NULL: no memory. */
struct allocation *allocate(size_t bytes, enum memory kind, const struct context *context)
{
	struct allocation *allocation = must(calloc(1, sizeof(*allocation)));

	*allocation = (struct allocation){.bytes = bytes, .kind = kind, .context = context};
	atomic_init(&allocation->references, 1);
	allocation->block = bytes <= MEMORY_BYTES ? calloc(1, bytes + ALIGNMENT) : NULL;
	if (!allocation->block) {
		free(allocation);
		return NULL;
	}
	allocation->memory = (char *)(((uintptr_t)allocation->block + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	allocation->next = allocations;
	allocations = allocation;
	return allocation;
}

void allocation_set_graph(struct allocation *allocation, unsigned graph)
{
	allocation->graph = graph;
}

unsigned allocation_graph(const struct allocation *allocation)
{
	return allocation->graph;
}

bool allocation_is_listed(const struct allocation *allocation)
{
	const struct allocation *at = allocations;

	while (at && at != allocation)
		at = at->next;
	return at;
}

void allocation_list(struct allocation *allocation)
{
	allocation_get(allocation)->next = allocations;
	allocations = allocation;
}

struct allocation *forget_allocation(const void *memory, unsigned kinds)
{
	struct allocation **at, *found;

	for (at = &allocations; *at && ((*at)->memory != memory || !((*at)->kind & kinds)); at = &(*at)->next)
		;
	found = *at;
	if (found)
		*at = found->next;
	return found;
}

struct allocation *find_allocation(const void *memory, size_t bytes, unsigned kinds)
{
	for (struct allocation *at = allocations; at; at = at->next)
		if (at->kind & kinds && (const char *)memory >= at->memory &&
		    (const char *)memory + bytes <= at->memory + at->bytes)
			return at;
	return NULL;
}

void forget_memory(const struct context *context)
{
	pthread_mutex_lock(&device_lock);
	for (struct allocation **at = &allocations; *at;) {
		struct allocation *allocation = *at;

		if (allocation->context == context) {
			*at = allocation->next;
			allocation_put(allocation);
		} else {
			at = &allocation->next;
		}
	}
	pthread_mutex_unlock(&device_lock);
}

/* The API. */

static CUresult obtain(struct call *call, void **out, size_t bytes, enum memory kind)
{
	struct allocation *allocation;
	CUresult error;
	const struct context *context = current_context(call, &error);

	say_u64(call, "bytes", bytes);
	if (!context)
		return error;
	pthread_mutex_lock(&device_lock);
	error = capture_permits();
	allocation = error == CUDA_SUCCESS && bytes ? allocate(bytes, kind, kind == HOST_MEMORY ? NULL : context) : NULL;
	pthread_mutex_unlock(&device_lock);
	if (error != CUDA_SUCCESS)
		return error;
	if (!bytes) {
		*out = NULL;
		return kind == HOST_MEMORY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = allocation->memory;
	say_handle(call, kind == HOST_MEMORY ? "host" : "device", *out);
	return CUDA_SUCCESS;
}

static CUresult obtain_device(struct call *call, CUdeviceptr *device, size_t bytes, enum memory kind)
{
	void *memory = NULL;
	CUresult error = obtain(call, &memory, bytes, kind);

	if (error == CUDA_SUCCESS)
		*device = (CUdeviceptr)(uintptr_t)memory;
	return error;
}

static CUresult obtain_managed(struct call *call, CUdeviceptr *device, size_t bytes, unsigned int flags)
{
	say_u64(call, "flags", flags);
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return obtain_device(call, device, bytes, MANAGED_MEMORY);
}

static CUresult obtain_host(struct call *call, void **host, size_t bytes, unsigned int flags)
{
	say_u64(call, "flags", flags);
	return obtain(call, host, bytes, HOST_MEMORY);
}

EXPORT(cuMemAlloc_v2, obtain_device, (CUdeviceptr *device, size_t bytes), device, bytes, DEVICE_MEMORY)
EXPORT(cuMemAllocManaged, obtain_managed, (CUdeviceptr *device, size_t bytes, unsigned int flags), device, bytes, flags)
EXPORT(cuMemAllocHost_v2, obtain, (void **host, size_t bytes), host, bytes, HOST_MEMORY)
EXPORT_NOP(cuMemHostAlloc, obtain_host, (void **host, size_t bytes, unsigned int flags), host, bytes, flags)

static CUresult give_back(struct call *call, const void *memory, unsigned kinds)
{
	struct allocation *allocation = NULL;
	struct ops ops = {0};
	CUresult error;
	struct context *context = current_context(call, &error);

	say_handle(call, kinds == HOST_MEMORY ? "host" : "device", memory);
	if (!context || !memory)
		return error;
	pthread_mutex_lock(&device_lock);
	error = capture_permits();
	if (error == CUDA_SUCCESS)
		allocation = forget_allocation(memory, kinds);
	if (allocation)
		last_ops(context, NULL, &ops);
	pthread_mutex_unlock(&device_lock);
	if (!allocation)
		return error == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : error;
	/* For everything that runs, as a driver does. */
	wait_and_clear(call, &ops, choose_wait(context, false));
	allocation_put(allocation);
	return CUDA_SUCCESS;
}

EXPORT(cuMemFree_v2, give_back, (CUdeviceptr device), (void *)(uintptr_t)device, DEVICE_MEMORY | MANAGED_MEMORY)
EXPORT(cuMemFreeHost, give_back, (void *host), host, HOST_MEMORY)
