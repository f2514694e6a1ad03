// SPDX-License-Identifier: Apache-2.0
/*
 * Counts what a program asks of NVIDIA's driver, from inside the program: to be compared with what was recorded.
 *
 *   cc -O1 -shared -fPIC -o ioctl_counter.so ioctl_counter.c -ldl
 *   IOCTL_COUNTER_OUT=counts LD_PRELOAD=./ioctl_counter.so program
 *
 * Writes, when the process ends, a line for each different thing: "rm TYPE NUMBER COUNT" (numbers as in the command, or inside of
 * NV_ESC_IOCTL_XFER_CMD), "uvm 0 NUMBER COUNT" and "poll 0 0 COUNT". %p in the name of the file is the process id.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define RM_MAJOR 195
#define MODESET_MINOR 254
#define XFER_CMD 211
#define KINDS 4096

enum device { NONE, RM, UVM, POLL };
static const char *const names[] = {"none", "rm", "uvm", "poll"};

static struct {
    enum device device;
    unsigned int type, number;
    unsigned long count;
} counts[KINDS];
static int used;
static unsigned int uvm_major;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(enum device device, unsigned int type, unsigned int number)
{
    int i;

    pthread_mutex_lock(&lock);
    for (i = 0; i < used; i++)
        if (counts[i].device == device && counts[i].type == type && counts[i].number == number)
            break;
    if (i < KINDS) {
        counts[i].device = device;
        counts[i].type = type;
        counts[i].number = number;
        counts[i].count++;
        used = i < used ? used : i + 1;
    }
    pthread_mutex_unlock(&lock);
}

/* nvidia-uvm's major number is handed out when its module is loaded, which the program itself may bring about. */
static unsigned int find_uvm_major(void)
{
    FILE *file = fopen("/proc/devices", "re");
    char line[128];
    unsigned int major, found = 0;

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "%u", &major) == 1 && strstr(line, " nvidia-uvm\n"))
            found = major;
    if (file)
        fclose(file);
    return found;
}

static enum device device_of(int fd)
{
    struct stat status;

    if (fstat(fd, &status) || !S_ISCHR(status.st_mode))
        return NONE;
    if (major(status.st_rdev) == RM_MAJOR)
        return minor(status.st_rdev) == MODESET_MINOR ? NONE : RM;
    if (!uvm_major)
        uvm_major = find_uvm_major();
    return uvm_major && major(status.st_rdev) == uvm_major ? UVM : NONE;
}

int ioctl(int fd, unsigned long command, ...)
{
    static int (*next)(int, unsigned long, ...);
    enum device device = device_of(fd);
    va_list rest;
    void *argument;

    va_start(rest, command);
    argument = va_arg(rest, void *);
    va_end(rest);
    if (!next)
        next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    if (device == RM)
        add(RM, _IOC_TYPE(command), _IOC_NR(command) == XFER_CMD ? *(uint32_t *)argument : _IOC_NR(command));
    else if (device == UVM)
        add(UVM, 0, (unsigned int)command);
    return next(fd, command, argument);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    static int (*next)(struct pollfd *, nfds_t, int);

    if (!next)
        next = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    for (nfds_t i = 0; i < count; i++)
        if (fds[i].fd >= 0 && device_of(fds[i].fd) == RM) {
            add(POLL, 0, 0);
            break;
        }
    return next(fds, count, timeout);
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *name = getenv("IOCTL_COUNTER_OUT"), *mark = name ? strstr(name, "%p") : 0;
    char path[4096];
    FILE *file;

    if (!name || !used)
        return;
    if (mark)
        snprintf(path, sizeof(path), "%.*s%d%s", (int)(mark - name), name, getpid(), mark + 2);
    else
        snprintf(path, sizeof(path), "%s", name);
    file = fopen(path, "we");
    for (int i = 0; file && i < used; i++)
        fprintf(file, "%s %u %u %lu\n", names[counts[i].device], counts[i].type, counts[i].number, counts[i].count);
    if (file)
        fclose(file);
}
