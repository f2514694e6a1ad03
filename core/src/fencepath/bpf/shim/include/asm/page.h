// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* BCC sizes its perf buffers by it; no program here does. */
#define PAGE_SIZE 4096
