// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* struct pt_regs as BPF programs of probe type see it: bpf_user_pt_regs_t of each architecture. */
#ifndef FENCEPATH_SHIM_UAPI_LINUX_PTRACE_H
#define FENCEPATH_SHIM_UAPI_LINUX_PTRACE_H

#include <linux/types.h>

#if defined(__x86_64__) || defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long r15, r14, r13, r12, bp, bx;
    unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
    unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__aarch64__) || defined(__TARGET_ARCH_arm64)
struct pt_regs {
    __u64 regs[31];
    __u64 sp, pc, pstate;
};
#else
#error "struct pt_regs of this architecture is not known here"
#endif

#endif
