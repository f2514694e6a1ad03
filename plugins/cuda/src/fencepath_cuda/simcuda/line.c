// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Lines of JSON. Numbers are written by hand: a launch's line must not cost more than the launch. */
#include "line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 20
#define KEY_BYTES 4 /* ,"": */

static void reserve(struct line *line, size_t size)
{
	char *heap;

	if (line->used + size <= line->size)
		return;
	line->size = 2 * (line->used + size);
	heap = realloc(line->heap, line->size);
	if (!heap)
		abort();
	if (!line->heap)
		memcpy(heap, line->text, line->used);
	line->text = line->heap = heap;
}

static void add(struct line *line, const char *text, size_t size)
{
	memcpy(line->text + line->used, text, size);
	line->used += size;
}

static void add_key(struct line *line, const char *key)
{
	add(line, ",\"", 2);
	add(line, key, strlen(key));
	add(line, "\":", 2);
}

static void add_u64(struct line *line, uint64_t value)
{
	char digits[DIGITS];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	add(line, digits + at, sizeof(digits) - at);
}

void line_start(struct line *line, char *text, size_t size, const char *type)
{
	*line = (struct line){.text = text, .size = size};
	reserve(line, 10 + strlen(type));
	add(line, "{\"type\":\"", 9);
	add(line, type, strlen(type));
	add(line, "\"", 1);
}

void line_raw(struct line *line, const char *text)
{
	reserve(line, strlen(text));
	add(line, text, strlen(text));
}

void line_u64(struct line *line, const char *key, uint64_t value)
{
	reserve(line, strlen(key) + KEY_BYTES + DIGITS);
	add_key(line, key);
	add_u64(line, value);
}

void line_hex(struct line *line, const char *key, uint64_t value)
{
	char digits[16];
	size_t at = sizeof(digits);

	reserve(line, strlen(key) + KEY_BYTES + 4 + sizeof(digits));
	do
		digits[--at] = "0123456789abcdef"[value & 15];
	while (value >>= 4);
	add_key(line, key);
	add(line, "\"0x", 3);
	add(line, digits + at, sizeof(digits) - at);
	add(line, "\"", 1);
}

void line_text(struct line *line, const char *key, const char *value)
{
	reserve(line, strlen(key) + KEY_BYTES + 2 + 6 * strlen(value));
	add_key(line, key);
	add(line, "\"", 1);
	for (; *value; value++) {
		char escaped[8];

		if (*value == '"' || *value == '\\' || (unsigned char)*value < ' ' || (unsigned char)*value > '~')
			add(line, escaped, (size_t)snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned char)*value));
		else
			add(line, value, 1);
	}
	add(line, "\"", 1);
}

void line_ids(struct line *line, const char *key, const uint64_t *ids, size_t count)
{
	reserve(line, strlen(key) + KEY_BYTES + 2 + (DIGITS + 1) * count);
	add_key(line, key);
	add(line, "[", 1);
	for (size_t i = 0; i < count; i++) {
		if (i)
			add(line, ",", 1);
		add_u64(line, ids[i]);
	}
	add(line, "]", 1);
}

void line_edge(struct line *line, bool first, uint64_t op, const char *why)
{
	reserve(line, strlen(why) + 6 + DIGITS);
	add(line, first ? "[" : ",[", first ? 1 : 2);
	add_u64(line, op);
	add(line, ",\"", 2);
	add(line, why, strlen(why));
	add(line, "\"]", 2);
}
