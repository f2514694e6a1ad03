// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The interpreter of programs: how a text becomes steps. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

struct thread threads[MAX_THREADS];
int thread_count;
unsigned barrier_threads[MAX_BARRIERS];
bool leave;

/* A slot is a number from 0, or one of these. */
const struct special specials[] = {
	{'s', "null", NULL},
	{'s', "legacy", (void *)1},
	{'s', "own", (void *)2},
	{'h', "pageable", pageable},
	{'c', "none", NULL},
	{0},
};

static void wrong(int line, const char *what, const char *word)
{
	fprintf(stderr, "line %d of the program: %s: %s\n", line, what, word ? word : "nothing");
	exit(2);
}

static int read_slot(char kind, const char *word, int line)
{
	char *end = NULL;
	long slot = -1;

	for (int i = 0; word && specials[i].name; i++)
		if (specials[i].kind == kind && strcmp(specials[i].name, word) == 0)
			return -1 - i;
	if (word && word[0] == tolower((unsigned char)kind))
		slot = strtol(word + 1, &end, 10);
	if (slot < 0 || slot >= MAX_SLOTS || *end)
		wrong(line, "not a slot of this kind", word);
	return (int)slot;
}

static uint64_t read_number(const char *word, int line)
{
	char *end;
	uint64_t number = word ? strtoull(word, &end, 0) : 0;

	if (!word || *end)
		wrong(line, "not a number", word);
	return number;
}

static const struct operation *find_step(const struct operation *table, const char *name, int line)
{
	for (; table->name; table++)
		if (strcmp(table->name, name) == 0)
			return table;
	wrong(line, "no such step", name);
	return NULL;
}

/* These have no function. */
const struct operation barrier_step = {"barrier", "u", NULL}, sleep_step = {"sleep", "u", NULL};

static struct step *add_step(struct thread *thread, const struct operation *operation, int line)
{
	if (thread->count == thread->size) {
		thread->size = 2 * thread->size + 16;
		thread->steps = realloc(thread->steps, thread->size * sizeof(*thread->steps));
		if (!thread->steps)
			abort();
	}
	thread->steps[thread->count] = (struct step){.operation = operation, .line = line, .result = PASSED_OVER};
	return &thread->steps[thread->count++];
}

static void read_arguments(struct step *step, char **rest)
{
	int i = 0;

	for (const char *kind = step->operation->takes; *kind; kind++) {
		if (*kind == '-')
			continue;
		if (*kind == '*') {
			for (char *word; (word = strtok_r(NULL, " \t", rest));) {
				if (step->after_count == MAX_AFTER)
					wrong(step->line, "too many nodes", word);
				step->after_slots[step->after_count++] = read_slot('n', word, step->line);
			}
		} else if (*kind == 'u') {
			step->numbers[i++] = read_number(strtok_r(NULL, " \t", rest), step->line);
		} else {
			step->slots[i++] = read_slot(*kind, strtok_r(NULL, " \t", rest), step->line);
		}
	}
	if (strtok_r(NULL, " \t", rest))
		wrong(step->line, "more than it takes", step->operation->name);
}

static void read_step(int thread, const char *name, char **rest, int line)
{
	bool per_thread = strcmp(name, "ptsz") == 0;
	const struct operation *operation;
	struct step *step;

	if (per_thread)
		name = strtok_r(NULL, " \t", rest);
	if (!name)
		wrong(line, "no such step", name);
	operation = strcmp(name, "barrier") == 0 ? &barrier_step :
		    strcmp(name, "sleep") == 0	 ? &sleep_step :
						   find_step(per_thread ? per_thread_steps : steps, name, line);
	step = add_step(&threads[thread], operation, line);
	read_arguments(step, rest);
	if (operation == &barrier_step) {
		if (step->numbers[0] >= MAX_BARRIERS)
			wrong(line, "too high a barrier", name);
		barrier_threads[step->numbers[0]] |= 1u << thread;
	}
}

static void read_line(char *text, int line)
{
	static int thread;
	char *rest, *name = strtok_r(text, " \t", &rest);

	if (strcmp(name, "leave") == 0) {
		leave = true;
	} else if (strcmp(name, "thread") == 0) {
		thread = (int)read_number(strtok_r(NULL, " \t", &rest), line);
		if (thread >= MAX_THREADS)
			wrong(line, "too many threads", name);
	} else {
		if (thread >= thread_count)
			thread_count = thread + 1;
		read_step(thread, name, &rest, line);
	}
}

int read_programs(FILE *file, int wanted)
{
	char *text = NULL;
	size_t size = 0;
	int line = 0, program = -1;

	while (getline(&text, &size, file) >= 0) {
		text[strcspn(text, "#\r\n")] = 0;
		line++;
		if (strncmp(text, "program", 7) == 0) {
			program++;
		} else if (text[strspn(text, " \t")]) {
			program += program < 0; /* one without such a line */
			if (program == wanted)
				read_line(text, line);
		}
	}
	free(text);
	return program + 1;
}
