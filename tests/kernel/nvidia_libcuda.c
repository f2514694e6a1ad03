// SPDX-License-Identifier: Apache-2.0
/*
 * A libcuda.so.1 of the few functions that plugins/nvidia/tests/gpu/nvidia_phases.c calls, above the stand-in for NVIDIA's driver: an
 * allocation is a request, a blocking wait is a poll that an interrupt ends, a spinning one is neither. It computes nothing.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#define REQUEST(number, size) (3u << 30 | (unsigned int)(size) << 16 | 'F' << 8 | (number))
#define CHECK_VERSION 0xd2
#define RM_FREE 0x29
#define RM_CONTROL 0x2a
#define RM_ALLOC 0x2b
#define UVM_INITIALIZE 0x30000001
#define UVM_FREE 34
#define UVM_MIGRATE 51
#define UVM_CREATE_EXTERNAL_RANGE 73
#define STANDIN_WORK 0xf00d0001u
#define WORK_NS 30000000 /* a poll took up to 7 ms in an emulated machine until its thread slept, and before that nothing wakes it */
#define BLOCKING_SYNC 1u
#define DEVICE_ADDRESSES 0x700000000000ull
#define LIVE 64
#define ERROR 999

typedef uint32_t u32;
typedef uint64_t u64;

struct event {
    unsigned int flags;
};

/* NVOS64_PARAMETERS and NVOS54_PARAMETERS of driver 580, as in data/rm.csv. */
struct alloc {
    u32 client, parent, object, class;
    u64 parameters, rights;
    u32 parameters_bytes, flags, status, reserved;
};
struct control {
    u32 client, object, command, flags;
    u64 parameters;
    u32 parameters_bytes, status;
};

static int ctl, gpu, uvm;
static u32 objects = 0x5c000000;
static struct {
    u64 address;
    size_t bytes;
    u32 object; /* 0: managed memory */
} live[LIVE];

static int keep(u64 address, size_t bytes, u32 object)
{
    for (int i = 0; i < LIVE; i++) {
        if (live[i].address)
            continue;
        live[i].address = address;
        live[i].bytes = bytes;
        live[i].object = object;
        return 0;
    }
    return ERROR;
}

static int alloc(u32 class, void *parameters, u32 bytes, u32 *object)
{
    struct alloc a = {.client = 0xc1d00007, .parent = 0xde01, .class = class, .parameters = (u64)parameters, .parameters_bytes = bytes};

    a.object = *object = ++objects;
    return ioctl(ctl, REQUEST(RM_ALLOC, sizeof(a)), &a) || a.status ? ERROR : 0;
}

static int range(unsigned int command, u64 address, u64 bytes)
{
    u64 a[16] = {address, bytes};

    return ioctl(uvm, command, a) ? ERROR : 0;
}

int cuInit(unsigned int flags)
{
    char version[72] = "";

    ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    strcpy(version + 8, "580.159.04");
    return flags || ctl < 0 || ioctl(ctl, REQUEST(CHECK_VERSION, sizeof(version)), version) ? ERROR : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    return *device = ordinal;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    u64 parameters[64] = {(u64)device};
    u32 object;

    gpu = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
    uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
    *context = &live;
    return gpu < 0 || uvm < 0 || range(UVM_INITIALIZE, 0, 0) ? ERROR : alloc(0x80, parameters, sizeof(parameters), &object);
}

int cuCtxSetCurrent(void *context)
{
    return context ? 0 : ERROR;
}

int cuCtxSynchronize(void)
{
    return 0;
}

int cuMemAlloc_v2(u64 *address, size_t bytes)
{
    static u64 next = DEVICE_ADDRESSES;
    u64 parameters[64] = {[8] = bytes};
    u32 object;

    *address = next;
    next += bytes;
    return alloc(0x40, parameters, sizeof(parameters), &object) ?: keep(*address, bytes, object);
}

int cuMemAllocManaged(u64 *address, size_t bytes, unsigned int flags)
{
    void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    *address = (u64)at;
    if (!flags || at == MAP_FAILED)
        return ERROR;
    return range(UVM_CREATE_EXTERNAL_RANGE, *address, bytes) ?: keep(*address, bytes, 0);
}

int cuMemFree_v2(u64 address)
{
    for (int i = 0; i < LIVE; i++) {
        u32 a[4] = {0xc1d00007, 0xde01, live[i].object};

        if (live[i].address != address)
            continue;
        live[i].address = 0;
        if (live[i].object)
            return ioctl(ctl, REQUEST(RM_FREE, sizeof(a)), a) ? ERROR : 0;
        return munmap((void *)address, live[i].bytes) ? ERROR : range(UVM_FREE, address, live[i].bytes);
    }
    return ERROR;
}

int cuMemsetD8Async(u64 address, unsigned char value, size_t bytes, void *stream)
{
    (void)value, (void)bytes, (void)stream;
    return address ? 0 : ERROR;
}

int cuMemPrefetchAsync(u64 address, size_t bytes, int device, void *stream)
{
    (void)device, (void)stream;
    return range(UVM_MIGRATE, address, bytes);
}

int cuEventCreate(void **event, unsigned int flags)
{
    struct event *made = calloc(1, sizeof(*made));

    *event = made;
    if (!made)
        return ERROR;
    made->flags = flags;
    return 0;
}

int cuEventRecord(void *event, void *stream)
{
    (void)stream;
    return event ? 0 : ERROR;
}

static int wait_blocking(void)
{
    u64 work[2] = {WORK_NS, 1};
    struct control a = {.client = 0xc1d00007, .command = STANDIN_WORK, .parameters = (u64)work, .parameters_bytes = sizeof(work)};
    struct pollfd file = {.fd = gpu, .events = POLLIN | POLLPRI};

    if (ioctl(gpu, REQUEST(RM_CONTROL, sizeof(a)), &a) || a.status)
        return ERROR;
    return poll(&file, 1, -1) == 1 ? 0 : ERROR;
}

static int wait_spinning(void)
{
    struct timespec begin, now;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < WORK_NS);
    return 0;
}

int cuEventSynchronize(void *event)
{
    return ((struct event *)event)->flags & BLOCKING_SYNC ? wait_blocking() : wait_spinning();
}

int cuEventDestroy_v2(void *event)
{
    free(event);
    return 0;
}
