// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The part of calls.h that copies a call's machine words, as ordinary C: -U__x86_64__ -D__TARGET_ARCH_arm64 for the other
 * architecture. User memory is this process's own.
 */
#define bpf_pseudo_fd(type, fd) ((void *)0)
#define BPF_NOEXIST 1
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
#define FP_LOSSES_FD 0
#define FP_ROWS 1
#define FP_TGIDS_FD 0
#define FP_TIDS_FD 0
#define FP_ALL_PROCESSES 1
#define FP_SELF_TGID 0
#define FP_ENTRIES_FD 0
#define FP_ENTRIES_KEPT 0
#define FP_ENTRIES_STATE_FD 0

static long bpf_probe_read_user(void *to, unsigned int bytes, const void *from) {
    __builtin_memcpy(to, from, bytes);
    return 0;
}

#include "calls.h"

/* Return the flags; args has room for 14 words. */
u32 copy_words(struct pt_regs *registers, u64 *args, u32 words, u64 *caller_ip) {
    struct fp_call_head head = {};

    fp_call_words(registers, &head, args, words);
    *caller_ip = head.caller_ip;
    return head.h.flags;
}
