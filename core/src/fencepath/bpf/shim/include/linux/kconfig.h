// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What BCC's helpers.h asks of a kernel configuration. */
#define CONFIG_BPF_SYSCALL 1
