// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "library.h"

#include <sys/syscall.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

KEEP long call_one(long a) { return a + 1; }

KEEP long call_six(long a, long b, long c, long d, long e, long f) { return a + b + c + d + e + f; }

KEEP long call_nine(long a, long b, long c, long d, long e, long f, long g, long h, long i)
{
    return a - b + c - d + e - f + g - h + i;
}

KEEP long call_eleven(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k)
{
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k;
}

KEEP long call_narrow(int32_t a, uint8_t b, int16_t c) { return a + b + c; }

KEEP int call_launch(const void *function, struct extent grid, struct extent block, void **args, size_t shared, void *stream)
{
    (void)function, (void)args, (void)stream;
    return (int)(grid.x + grid.y + grid.z + block.x + block.y + block.z + shared);
}

KEEP int call_launch_config(const struct config *config, const void *function)
{
    (void)function;
    return (int)(config->grid[2] + config->block[0]);
}

KEEP int call_create(void **handle, unsigned flags)
{
    *handle = (void *)(0xabc0000000000000u | flags);
    return 0;
}

KEEP int call_sizes(uint32_t *narrow, size_t *wide, long fail)
{
    narrow[0] = 17 * (uint32_t)fail;
    narrow[1] = 19 * (uint32_t)fail;
    *wide = 23u << 29;
    return fail ? -7 : 0;
}

KEEP long call_recurse(long depth)
{
    long below = depth ? call_recurse(depth - 1) : 0;
    __asm__ volatile("" : "+r"(below)); /* not a tail call */
    return below + 1;
}

KEEP long call_inner(long a) { return 2 * a; }

KEEP long call_outer(long a)
{
    long first = call_inner(a);
    __asm__ volatile("" : "+r"(first));
    long second = call_inner(a + 1);
    __asm__ volatile("" : "+r"(second));
    return first + second;
}

/* In assembly, as a compiler is free not to make a sibling call a jump. */
#if defined(__x86_64__)
#define JUMP(from, to) __asm__(".globl " #from "\n.type " #from ",@function\n" #from ":\n push %rbp\n pop %rbp\n jmp " #to "@PLT\n.size " #from ", .-" #from "\n")
#else
#define JUMP(from, to) __asm__(".globl " #from "\n.type " #from ",%function\n" #from ":\n nop\n b " #to "\n.size " #from ", .-" #from "\n")
#endif
JUMP(call_jump, call_landed);
JUMP(call_hop, call_hot);

KEEP long call_landed(long a) { return 3 * a; }

KEEP long call_hot(long a) { return 5 * a; }

KEEP void call_leap(jmp_buf where, long value) { longjmp(where, (int)value); }

KEEP long call_around(long value)
{
    jmp_buf here;
    int came = setjmp(here);
    if (came)
        return came;
    call_leap(here, value);
    return -1;
}

KEEP long call_wait(int fd)
{
    char byte;
    return read(fd, &byte, 1);
}

KEEP long call_look(const struct config *config, long a)
{
    (void)config;
    return 7 * a;
}

KEEP long call_give(void **handle, long a)
{
    (void)handle;
    return 11 * a;
}

static long length(const char *name)
{
    long count = 0;
    while (name[count])
        count++;
    return count;
}

KEEP long call_name(void **handle, const char *name, long a)
{
    *handle = (void *)(0xabc0000000000000u | (unsigned)a);
    return length(name);
}

KEEP long call_name_hot(const char *name, long a) { return length(name) + a; }

KEEP long call_rename(char *name, long a)
{
    name[0] = 'X';
    return a;
}

KEEP long call_name_unread(const char *name, long a)
{
    (void)name;
    return 13 * a;
}

static long sum(const long *nodes, size_t count)
{
    long total = 0;
    for (size_t i = 0; i < count; i++)
        total += nodes[i];
    return total;
}

KEEP long call_nodes(const long *nodes, size_t count, long a) { return sum(nodes, count) + a; }

KEEP long call_nodes_hot(const long *nodes, size_t count, long a) { return sum(nodes, count) + 2 * a; }

/* The system call, as pthread_exit would unwind through a return probe. */
KEEP void call_end(long code) { syscall(SYS_exit, code); }

KEEP void call_become(const char *path, char *const argv[]) { execv(path, argv); }
