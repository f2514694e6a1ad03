// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* No kernel's version: programs are compiled once for every kernel. It is high so that BCC offers all its helpers. */
#define LINUX_VERSION_CODE KERNEL_VERSION(6, 18, 0)
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
