// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA driver API program in phases that do one thing each, a known number of times, and nothing else on the GPU.
 *
 *   nvidia_phases [PHASE ...]     allocations blocking spinning managed, all of them by default
 *   nvidia_phases pair            two processes at once, each with the phase blocking
 *
 * NVIDIA_PHASES_MIB: how much is filled for each wait, 512 if unset.
 *
 * Says on standard output, a line a phase: "phase NAME PID BEGIN_NS END_NS KEY=VALUE ...", times CLOCK_MONOTONIC. Numbers are prime.
 * Needs no CUDA headers: libcuda.so.1 is loaded by name.
 *
 *   cc -O1 -o nvidia_phases nvidia_phases.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ALLOCATIONS 31
#define BLOCKING 53
#define SPINNING 29
#define MANAGED 7
#define MIB (1ull << 20)
#define ROUNDS 8

#define EVENT_BLOCKING_SYNC 1u
#define EVENT_DISABLE_TIMING 2u
#define MEM_ATTACH_GLOBAL 1u
#define DEVICE_CPU (-1)

typedef int result;
typedef uint64_t address;

static struct {
    result (*init)(unsigned int);
    result (*device)(int *, int);
    result (*retain)(void **, int);
    result (*set)(void *);
    result (*wait)(void);
    result (*alloc)(address *, size_t);
    result (*alloc_managed)(address *, size_t, unsigned int);
    result (*free)(address);
    result (*fill)(address, unsigned char, size_t, void *);
    result (*prefetch)(address, size_t, int, void *);
    result (*event)(void **, unsigned int);
    result (*record)(void *, void *);
    result (*event_wait)(void *);
    result (*event_end)(void *);
} cuda;

static const struct {
    const char *name;
    void **place;
} functions[] = {
    {"cuInit", (void **)&cuda.init},
    {"cuDeviceGet", (void **)&cuda.device},
    {"cuDevicePrimaryCtxRetain", (void **)&cuda.retain},
    {"cuCtxSetCurrent", (void **)&cuda.set},
    {"cuCtxSynchronize", (void **)&cuda.wait},
    {"cuMemAlloc_v2", (void **)&cuda.alloc},
    {"cuMemAllocManaged", (void **)&cuda.alloc_managed},
    {"cuMemFree_v2", (void **)&cuda.free},
    {"cuMemsetD8Async", (void **)&cuda.fill},
    {"cuMemPrefetchAsync", (void **)&cuda.prefetch},
    {"cuEventCreate", (void **)&cuda.event},
    {"cuEventRecord", (void **)&cuda.record},
    {"cuEventSynchronize", (void **)&cuda.event_wait},
    {"cuEventDestroy_v2", (void **)&cuda.event_end},
};

static int device;

static void good(result code, const char *what)
{
    if (code) {
        fprintf(stderr, "nvidia_phases: %s: CUDA error %d\n", what, code);
        exit(1);
    }
}

#define GOOD(call) good(call, #call)

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;

    if (!library) {
        fprintf(stderr, "nvidia_phases: %s\n", dlerror());
        exit(3);
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
        *functions[i].place = dlsym(library, functions[i].name);
        if (!*functions[i].place) {
            fprintf(stderr, "nvidia_phases: libcuda has no %s\n", functions[i].name);
            exit(3);
        }
    }
    GOOD(cuda.init(0));
    GOOD(cuda.device(&device, 0));
    GOOD(cuda.retain(&context, device));
    GOOD(cuda.set(context));
}

/* Sizes from 2 MiB on, so that none of them is a piece of another. */
static void allocations(void)
{
    address at[ALLOCATIONS];
    uint64_t begin = now(), bytes = 0;

    for (int i = 0; i < ALLOCATIONS; i++) {
        size_t size = (size_t)(2 + 2 * (i % 5)) * MIB;

        GOOD(cuda.alloc(&at[i], size));
        bytes += size;
    }
    for (int i = 0; i < ALLOCATIONS; i++)
        GOOD(cuda.free(at[i]));
    printf("phase allocations %d %lu %lu calls=%d bytes=%lu\n", getpid(), begin, now(), ALLOCATIONS, bytes);
}

/* Waits for work of about a millisecond each. */
static void waits(const char *name, int count, unsigned int flags)
{
    const char *mib = getenv("NVIDIA_PHASES_MIB");
    size_t size = (mib ? strtoul(mib, 0, 10) : 512) * MIB;
    address at;
    void *event;
    uint64_t begin;

    GOOD(cuda.alloc(&at, size));
    GOOD(cuda.event(&event, flags | EVENT_DISABLE_TIMING));
    GOOD(cuda.wait());
    begin = now();
    for (int i = 0; i < count; i++) {
        for (int round = 0; round < ROUNDS; round++)
            GOOD(cuda.fill(at, (unsigned char)round, size, 0));
        GOOD(cuda.record(event, 0));
        GOOD(cuda.event_wait(event));
    }
    printf("phase %s %d %lu %lu waits=%d\n", name, getpid(), begin, now(), count);
    GOOD(cuda.event_end(event));
    GOOD(cuda.free(at));
}

/* Managed memory that is brought to the GPU and back. Faults are not counted: they are no calls. */
static void managed(void)
{
    size_t size = 32 * MIB;
    uint64_t begin = now();

    for (int i = 0; i < MANAGED; i++) {
        address at;

        GOOD(cuda.alloc_managed(&at, size, MEM_ATTACH_GLOBAL));
        memset((void *)at, i, size);
        GOOD(cuda.prefetch(at, size, device, 0));
        GOOD(cuda.wait());
        GOOD(cuda.prefetch(at, size, DEVICE_CPU, 0));
        GOOD(cuda.wait());
        GOOD(cuda.free(at));
    }
    printf("phase managed %d %lu %lu calls=%d bytes=%lu prefetches=%d\n", getpid(), begin, now(), MANAGED, MANAGED * size,
           2 * MANAGED);
}

static int wanted(int count, char **words, const char *phase)
{
    for (int i = 1; i < count; i++)
        if (!strcmp(words[i], phase))
            return 1;
    return count < 2;
}

int main(int count, char **words)
{
    int pair = count > 1 && !strcmp(words[1], "pair"), status = 0;
    pid_t other = pair ? fork() : 0;

    load();
    if (pair) {
        waits("blocking", BLOCKING, EVENT_BLOCKING_SYNC);
    } else {
        if (wanted(count, words, "allocations"))
            allocations();
        if (wanted(count, words, "blocking"))
            waits("blocking", BLOCKING, EVENT_BLOCKING_SYNC);
        if (wanted(count, words, "spinning"))
            waits("spinning", SPINNING, 0);
        if (wanted(count, words, "managed"))
            managed();
    }
    fflush(stdout);
    if (other > 0 && (waitpid(other, &status, 0) < 0 || status))
        return 1;
    return 0;
}
