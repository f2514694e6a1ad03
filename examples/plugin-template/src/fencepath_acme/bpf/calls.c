// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The programs of the call table (functions.py): an entry and a return program for each distinct way to copy a call. */
#include "fp_calls.h"
