// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* BCC includes this file and uses nothing of it. */
