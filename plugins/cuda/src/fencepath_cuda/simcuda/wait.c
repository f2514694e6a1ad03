// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* How threads wait for operations. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"

static void wake(struct lane *lane)
{
	if (lane->rest != AWAKE)
		pthread_cond_signal(&lane->work);
}

static void op_block(struct op *op)
{
	struct lane *lane = op->lane;

	pthread_mutex_lock(&device_lock);
	wake(lane);
	atomic_fetch_add(&lane->waiters, 1);
	while (!op_done(op))
		pthread_cond_wait(&lane->finished, &device_lock);
	atomic_fetch_sub(&lane->waiters, 1);
	pthread_mutex_unlock(&device_lock);
}

static void op_poll(struct op *op, bool yield)
{
	pthread_mutex_lock(&device_lock);
	wake(op->lane);
	pthread_mutex_unlock(&device_lock);
	while (!op_done(op)) {
		if (yield)
			sched_yield();
#if defined(__x86_64__)
		else
			__builtin_ia32_pause();
#endif
	}
}

/* The thread sleeps in the driver. What the lane has left to do then is little, and is waited for without sleeping: it is
 * the driver's fence that wakes who waits. */
static void op_block_below(struct op *op)
{
	if (backend_wait(op))
		op_poll(op, true);
	else
		op_block(op);
}

void op_wait(struct op *op, enum wait_mode mode)
{
	if (op_done(op))
		return;
	if (mode == WAIT_BLOCK && backend_on)
		op_block_below(op);
	else if (mode == WAIT_BLOCK)
		op_block(op);
	else
		op_poll(op, mode == WAIT_YIELD);
}

static int asked_wait_mode(void)
{
	const char *wish = getenv("SIMCUDA_WAIT");

	if (!wish || !*wish)
		return -1;
	if (strcmp(wish, "block") == 0)
		return WAIT_BLOCK;
	return strcmp(wish, "yield") == 0 ? WAIT_YIELD : WAIT_SPIN;
}

enum wait_mode choose_wait(const struct context *context, bool blocking_event)
{
	static _Atomic int asked = -2;

	if (asked == -2)
		asked = asked_wait_mode();
	if (asked >= 0)
		return (enum wait_mode)asked;
	if (blocking_event || context->flags & CU_CTX_SCHED_BLOCKING_SYNC)
		return WAIT_BLOCK;
	return context->flags & CU_CTX_SCHED_YIELD ? WAIT_YIELD : WAIT_SPIN;
}

void wait_and_clear(struct call *call, struct ops *ops, enum wait_mode mode)
{
	static const char *const names[] = {"spin", "yield", "block"};
	uint64_t *ids = must(malloc((ops->count + 1) * sizeof(*ids)));

	for (size_t i = 0; i < ops->count; i++) {
		op_wait(ops->items[i], mode);
		ids[i] = ops->items[i]->id;
	}
	if (call->written) {
		line_ids(&call->line, "waited_for", ids, ops->count);
		line_text(&call->line, "wait", names[mode]);
	}
	free(ids);
	ops_clear(ops);
}
