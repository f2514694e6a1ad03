// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A driver below the simulated one. With SIMCUDA_BACKEND=mockgpu each operation is a job of the mock GPU driver
 * (tests/kernel/mockgpu), so that a kernel's GPU scheduler, its fences and its interrupts decide when a program goes on.
 *
 * An operation is submitted within the API call that makes it, unless something it depends on is not with the driver yet:
 * what comes after a host function or a wait for a value is submitted by its lane, when that is over. Dependencies are
 * syncobjs. What operations leave in memory is done by their lanes, as without a driver, once the job is done.
 *
 * A lane is on one ring of its device, by its number. Lanes that share a ring wait for each other, which the truth of the
 * simulated library does not say, but the driver's does.
 */
#ifndef SIMCUDA_BACKEND_H
#define SIMCUDA_BACKEND_H

#include "device.h"

/* Set before main() and never again. */
extern bool backend_on;

/* Opens the devices. False, said on stderr, if they are not there. */
bool backend_open(void);

/* Whether all that an operation depends on is with the driver. */
bool backend_takes(const struct op *op);
void backend_submit(struct op *op);

/* Waits in the kernel until the operation's job is done. False if it has none, or if more than its lane's book-keeping is
 * still to come. */
bool backend_wait(const struct op *op);

/* When the job was done, as its fence says. */
uint64_t backend_end_ns(const struct op *op);
void backend_write(struct line *line, const struct op *op);
void backend_forget(struct op *op);

#endif
