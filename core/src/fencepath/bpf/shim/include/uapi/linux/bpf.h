// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* BCC puts its own copy in front of every program. */
