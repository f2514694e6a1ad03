// SPDX-License-Identifier: Apache-2.0
/* A library whose functions are recorded: it is called, hands out functions by name, and has others registered with it. */
#pragma once

typedef int (*work)(long mark, long times);

int give_work(long mark, long times);
int give_rest(long mark, long times);
int give_launch(const void *stub, long times);
int give_address(const char *name, work *out, long version);
void give_register(void **handle, const char *stub, char *device, const char *name, int limit, void *a, void *b, void *c,
		   void *d, int *e);
