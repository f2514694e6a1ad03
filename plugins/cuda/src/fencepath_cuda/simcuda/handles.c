// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

/* Adaptive: a launching thread that meets a lane's thread spins for the moment it takes instead of sleeping. */
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
pthread_mutex_t device_lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#else
pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
#endif

TABLE(contexts, 1024);
TABLE(streams, 4096);
TABLE(events, 65536);

void *must(void *memory)
{
	if (!memory) {
		fprintf(stderr, "simulated CUDA: out of memory\n");
		abort();
	}
	return memory;
}

void *grown(void *items, size_t count, size_t *size, size_t item_bytes)
{
	if (count < *size)
		return items;
	*size = 2 * count + 4;
	return must(realloc(items, *size * item_bytes));
}

void *table_put(struct table *table, void *object)
{
	size_t at;

	if (!table->free_count && table->used == table->size)
		return NULL;
	at = table->free_count ? table->free[--table->free_count] : table->used++;
	table->objects[at] = object;
	return &table->objects[at];
}

void *table_get(const struct table *table, const void *handle)
{
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)table->objects;

	if (offset >= table->used * sizeof(void *) || offset % sizeof(void *))
		return NULL;
	return table->objects[offset / sizeof(void *)];
}

static void *take_at(struct table *table, size_t at)
{
	void *object = table->objects[at];

	if (object) {
		table->objects[at] = NULL;
		table->free[table->free_count++] = (uint32_t)at;
	}
	return object;
}

void *table_take(struct table *table, const void *handle)
{
	if (!table_get(table, handle))
		return NULL;
	return take_at(table, ((uintptr_t)handle - (uintptr_t)table->objects) / sizeof(void *));
}

void table_purge(struct table *table, bool (*is_of)(const void *object, const void *owner), const void *owner)
{
	for (size_t at = 0; at < table->used; at++)
		if (table->objects[at] && is_of(table->objects[at], owner))
			take_at(table, at);
}
