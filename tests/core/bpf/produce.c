// SPDX-License-Identifier: Apache-2.0
/* A library to put uprobes on. Each function begins with an instruction that the kernel emulates (push %rbp). */
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define API __attribute__((noinline, visibility("default")))

API uint64_t first(uint64_t number) {
    __asm__ volatile("" ::: "memory");
    return number + 1;
}

API uint64_t second(uint64_t number) {
    __asm__ volatile("" ::: "memory");
    return number * 3;
}

/* The system call that test programs record; the kernel refuses it. */
API uint64_t refused(uint64_t number) {
    return (uint64_t)syscall(SYS_prctl, 0x46505453, number, 0, 0, 0);
}

API void many(uint64_t (*function)(uint64_t), uint64_t count) {
    for (uint64_t number = 0; number < count; number++)
        function(number);
}

API void many_first(uint64_t count) {
    many(first, count);
}

API void many_refused(uint64_t count) {
    many(refused, count);
}
