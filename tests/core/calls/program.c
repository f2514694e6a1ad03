// SPDX-License-Identifier: Apache-2.0
/*
 * Calls the library and says on standard output what it called, one call a line:
 *
 *     FUNCTION TID BEFORE_NS AFTER_NS RESULT CALLER VALUE...
 *
 * Times are CLOCK_MONOTONIC around the call, AFTER_NS is 0 if it did not return; CALLER is the function that called.
 * "module NAME BASE" lines say where things are loaded. After each of the lines "ready", "held" and "done" it reads a
 * byte from standard input.
 */
#define _GNU_SOURCE
#include "library.h"

#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLER __attribute__((noinline, noclone)) static
#define THREADS 4

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long tid(void) { return syscall(SYS_gettid); }

static void say(const char *function, uint64_t before, uint64_t after, long result, const char *caller, int count, const long *values)
{
    char line[512];
    int used = snprintf(line, sizeof line, "%s %ld %" PRIu64 " %" PRIu64 " %ld %s", function, tid(), before, after, result, caller);
    for (int i = 0; i < count; i++)
        used += snprintf(line + used, sizeof line - used, " %ld", values[i]);
    line[used++] = '\n';
    if (write(1, line, used) != used)
        abort();
}

/* The call, with its truth. The values are what the table's columns must show, in order. */
#define TRACE(function, call, ...)                                                              \
    do {                                                                                        \
        const long values[] = {__VA_ARGS__};                                                    \
        uint64_t before = now_ns();                                                             \
        long result = (call);                                                                   \
        say(function, before, now_ns(), result, __func__, sizeof values / sizeof *values, values); \
    } while (0)

CALLER void one(long n) { TRACE("call_one", call_one(n), n); }

CALLER void six(long n)
{
    TRACE("call_six", call_six(n, n + 1, -n, n << 40, 7, n * n), n, n + 1, -n, n << 40, 7, n * n);
}

CALLER void nine(long n)
{
    TRACE("call_nine", call_nine(n, 2, 3, 4, 5, 6, n + 7, n + 8, -n), n, 2, 3, 4, 5, 6, n + 7, n + 8, -n);
}

CALLER void eleven(long n)
{
    TRACE("call_eleven", call_eleven(n, 2, 3, 4, 5, 6, 7, 8, 9, n << 33, -n), n, 2, 3, 4, 5, 6, 7, 8, 9, n << 33, -n);
}

CALLER void narrow(long n) { TRACE("call_narrow", call_narrow((int)-n, (uint8_t)(200 + n), (int16_t)-n), -n, (uint8_t)(200 + n), -n); }

CALLER void launch(long n)
{
    struct extent grid = {(uint32_t)n + 1, 65535, 3}, block = {1024, 2, (uint32_t)n + 5};
    TRACE("call_launch", call_launch((void *)0x1000, grid, block, (void **)0x2000, 48 * 1024 + n, (void *)n),
          0x1000, n + 1, 65535, 3, 1024, 2, n + 5, 48 * 1024 + n, n);
}

CALLER void launch_config(long n)
{
    struct config c = {{(uint32_t)n, 4000000000u, 6}, {7, 8, (uint32_t)n + 9}, 96 * 1024, (void *)(n + 0x7f0000000000)};
    TRACE("call_launch_config", call_launch_config(&c, (void *)(n + 1)),
          n + 1, n, 4000000000u, 6, 7, 8, n + 9, 96 * 1024, n + 0x7f0000000000);
}

CALLER void create(long n)
{
    void *handle = NULL;
    TRACE("call_create", call_create(&handle, (unsigned)n), n, (long)(0xabc0000000000000u | (unsigned)n));
}

CALLER void sizes(long n)
{
    uint32_t pair[2];
    size_t wide;
    TRACE("call_sizes", call_sizes(pair, &wide, n), n, (uint32_t)(19 * n), 23u << 29);
}

CALLER void recurse(long depth)
{
    uint64_t before = now_ns();
    long result = call_recurse(depth);
    uint64_t after = now_ns();
    say("call_recurse", before, after, result, __func__, 1, &depth);
    for (long d = depth - 1; d >= 0; d--)
        say("call_recurse", before, after, d + 1, "call_recurse", 1, &d);
}

CALLER void outer(long n)
{
    uint64_t before = now_ns();
    long result = call_outer(n);
    uint64_t after = now_ns();
    say("call_outer", before, after, result, __func__, 1, &n);
    for (long a = n; a <= n + 1; a++)
        say("call_inner", before, after, 2 * a, "call_outer", 1, &a);
}

CALLER void jump(long n)
{
    uint64_t before = now_ns();
    long result = call_jump(n);
    uint64_t after = now_ns();
    say("call_jump", before, after, result, __func__, 1, &n);
    say("call_landed", before, after, result, __func__, 1, &n);
}

CALLER void hop(long n)
{
    uint64_t before = now_ns();
    long result = call_hop(n);
    uint64_t after = now_ns();
    say("call_hop", before, after, result, __func__, 1, &n);
    say("call_hot", before, after, 0, __func__, 1, &n);
}

CALLER void hot(long n)
{
    uint64_t before = now_ns();
    call_hot(n);
    say("call_hot", before, now_ns(), 0, __func__, 1, &n);
}

CALLER void around(long n)
{
    uint64_t before = now_ns();
    long result = call_around(n);
    uint64_t after = now_ns();
    say("call_around", before, after, result, __func__, 1, &n);
    say("call_leap", before, 0, 0, "call_around", 1, &n);
}

/* A longjmp past the caller: nothing that is probed returns after it. */
CALLER void leap(long n)
{
    jmp_buf here;
    volatile uint64_t before = now_ns();
    if (!setjmp(here))
        call_leap(here, n);
    say("call_leap", before, 0, 0, __func__, 1, &n);
}

static void (*const every[])(long) = {one, six, nine, eleven, narrow, launch, launch_config, create, sizes, recurse, outer, jump, hop, hot, around};
static const int primes[] = {101, 97, 89, 83, 79, 73, 71, 67, 61, 5, 59, 53, 47, 43, 41};

static void *work(void *argument)
{
    long thread = (long)argument;
    for (int round = 0; round < 101; round++)
        for (size_t i = 0; i < sizeof every / sizeof *every; i++)
            if (round < primes[i])
                every[i](i == 9 ? round + 1 : 1000 * thread + round);
    return NULL;
}

CALLER void *hang(void *argument)
{
    long fd = (long)argument;
    TRACE("call_wait", call_wait((int)fd), fd);
    return NULL;
}

/* Memory that is not there, and none at all. The function does not look. */
CALLER void look(long n)
{
    TRACE("call_look", call_look((const struct config *)0x1000, n), n);
    TRACE("call_look", call_look(NULL, n + 1), n + 1);
    TRACE("call_give", call_give(NULL, n + 2), n + 2);
    TRACE("call_give", call_give((void **)0x1000, n + 3), n + 3);
}

#define PAGE 4096

/* Room for `bytes` that ends where nothing is mapped any more. */
static char *before_the_end(size_t bytes)
{
    char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || bytes > 2 * PAGE || munmap(pages + 2 * PAGE, PAGE))
        abort();
    return pages + 2 * PAGE - bytes;
}

/* Any bytes but NUL, others for each length. test_calls_live.py has the same. */
static void fill(char *text, long length)
{
    for (long i = 0; i < length; i++)
        text[i] = (char)(1 + (7 * i + length) % 255);
    text[length] = 0;
}

CALLER void name(long length)
{
    void *handle = NULL;
    char *text = before_the_end((size_t)length + 1);
    fill(text, length);
    TRACE("call_name", call_name(&handle, text, length), length, (long)(0xabc0000000000000u | (unsigned)length));
    TRACE("call_name_hot", call_name_hot(text, length), length);
}

CALLER void names(void)
{
    const long lengths[] = {0, 1, 2, 7, 8, 9, 31, 127, 128, 254, 255, 256, 381, 382, 383, 384, 385, 391, 4096, 5000};
    char text[] = "before";
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        name(lengths[i]);
    TRACE("call_rename", call_rename(text, 17), 17);
    /* No text, memory that is not there, and a text whose NUL would be where nothing is mapped. */
    char *endless = before_the_end(100);
    memset(endless, 'x', 100);
    TRACE("call_name_unread", call_name_unread(NULL, 1), 1);
    TRACE("call_name_unread", call_name_unread((const char *)0x1000, 2), 2);
    TRACE("call_name_unread", call_name_unread(endless, 3), 3);
    TRACE("call_name_unread", call_name_unread("fine", 4), 4);
}

/* Arrays of 0 to 7 words that end where nothing is mapped; none that is NULL is looked at. */
CALLER void nodes(void)
{
    for (long count = 0; count < 8; count++) {
        long *words = (long *)before_the_end(8 * (size_t)count);
        for (long i = 0; i < count; i++)
            words[i] = 1000 * count + i;
        TRACE("call_nodes", call_nodes(words, (size_t)count, count), count, count);
        TRACE("call_nodes_hot", call_nodes_hot(words, (size_t)count, count), count, count);
    }
    TRACE("call_nodes", call_nodes(NULL, 0, 8), 0, 8);
}

CALLER void *end(void *argument)
{
    long code = (long)argument;
    say("call_end", now_ns(), 0, 0, __func__, 1, &code);
    call_end(code);
    return NULL;
}

CALLER void *become(void *argument)
{
    char *argv[] = {"/proc/self/exe", "nothing", NULL};
    (void)argument;
    say("call_become", now_ns(), 0, 0, __func__, 0, NULL);
    call_become("/proc/self/exe", argv);
    abort();
}

static int module(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    printf("module %s %" PRIu64 "\n", info->dlpi_name[0] ? info->dlpi_name : "program", (uint64_t)info->dlpi_addr);
    return 0;
}

static void wait_for_byte(void)
{
    char byte;
    if (read(0, &byte, 1) < 0)
        abort();
}

static void start(void *(*function)(void *), long argument, pthread_t *thread)
{
    if (pthread_create(thread, NULL, function, (void *)argument))
        abort();
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], other;
    int held[2];
    const char *mode = argc > 1 ? argv[1] : "work";
    dl_iterate_phdr(module, NULL);
    printf("ready\n");
    fflush(stdout);
    wait_for_byte();
    if (!strcmp(mode, "work")) {
        for (long i = 0; i < THREADS; i++)
            start(work, i + 1, &threads[i]);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    } else if (!strcmp(mode, "hold") && !pipe(held)) {
        start(hang, held[0], &other);
        usleep(20000);
        printf("held\n");
        fflush(stdout);
        wait_for_byte();
        if (write(held[1], "x", 1) != 1)
            abort();
        pthread_join(other, NULL);
    } else if (!strcmp(mode, "leave")) {
        start(end, 11, &other);
        pthread_join(other, NULL);
        leap(13);
        leap(17);
    } else if (!strcmp(mode, "look")) {
        look(100);
    } else if (!strcmp(mode, "names")) {
        names();
        nodes();
    } else if (!strcmp(mode, "exec")) {
        start(become, 0, &other);
        pthread_join(other, NULL);
    }
    printf("done\n");
    fflush(stdout);
    wait_for_byte();
    return 0;
}
