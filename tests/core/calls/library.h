// SPDX-License-Identifier: Apache-2.0
/* Functions in every shape that a call table can declare. */
#ifndef FENCEPATH_TEST_CALLS_LIBRARY_H
#define FENCEPATH_TEST_CALLS_LIBRARY_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

/* A struct passed by value in two words: (x | y << 32), z. */
struct extent {
    uint32_t x, y, z;
};

struct config {
    uint32_t grid[3], block[3];
    uint32_t shared;
    void *stream;
};

long call_one(long a);
long call_six(long a, long b, long c, long d, long e, long f);
long call_nine(long a, long b, long c, long d, long e, long f, long g, long h, long i);
long call_eleven(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k);
long call_narrow(int32_t a, uint8_t b, int16_t c);
int call_launch(const void *function, struct extent grid, struct extent block, void **args, size_t shared, void *stream);
int call_launch_config(const struct config *config, const void *function);
int call_create(void **handle, unsigned flags);
int call_sizes(uint32_t *narrow, size_t *wide, long fail);
long call_recurse(long depth);
long call_outer(long a);
long call_inner(long a);
/* Tail jumps: `jump` and `hop` go on in the other without a frame of their own. */
long call_jump(long a);
long call_landed(long a);
long call_hop(long a);
long call_hot(long a);
/* Leave through the frame of a probed function. */
void call_leap(jmp_buf where, long value);
long call_around(long value);
/* Reads one byte from `fd`. */
long call_wait(int fd);
/* Do nothing with the pointer. */
long call_look(const struct config *config, long a);
long call_give(void **handle, long a);
/* Read the text, up to its NUL; `rename` has changed the first byte when it returns. */
long call_name(void **handle, const char *name, long a);
long call_name_hot(const char *name, long a);
long call_rename(char *name, long a);
/* Does nothing with what the pointer leads to. */
long call_name_unread(const char *name, long a);
/* Adds up what the array has. */
long call_nodes(const long *nodes, size_t count, long a);
long call_nodes_hot(const long *nodes, size_t count, long a);
/* Ends the thread, or becomes another program. */
void call_end(long code);
void call_become(const char *path, char *const argv[]);

#endif
