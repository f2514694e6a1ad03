// SPDX-License-Identifier: Apache-2.0
/* A library that calls give_work, to be told from others that do. */
#include "giving.h"

int call_it(long mark, long times)
{
	int sum = 0;
	for (long i = 0; i < times; i++)
		sum += give_work(mark, i);
	return sum;
}
