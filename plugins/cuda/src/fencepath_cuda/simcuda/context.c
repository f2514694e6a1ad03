// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: contexts. */
#include <stdlib.h>

#include "device.h"

#define CONTEXT_STACK 16
#define MAX_DEVICES 8

/* A primary context is the same, with the same handle, however often it is given up and retained again. */
static struct {
	struct context *context;
	unsigned retained;
} primaries[MAX_DEVICES];

static __thread struct context *context_stack[CONTEXT_STACK];
static __thread int context_depth;

unsigned thread_number(void)
{
	static _Atomic unsigned last;
	static __thread unsigned own;

	if (!own)
		own = atomic_fetch_add(&last, 1) + 1;
	return own;
}

void say_context(struct call *call, const struct context *context)
{
	call->context = context->index;
	call->context_handle = (uintptr_t)context->handle;
}

struct context *current_context(struct call *call, CUresult *error)
{
	struct context *context = context_depth ? context_stack[context_depth - 1] : NULL;

	if (!driver_ready(error))
		return NULL;
	*error = !context ? CUDA_ERROR_INVALID_CONTEXT : context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (*error != CUDA_SUCCESS)
		return NULL;
	say_context(call, context);
	return context;
}

struct context *find_context(CUcontext handle)
{
	struct context *context;

	pthread_mutex_lock(&device_lock);
	context = table_get(&contexts, handle);
	pthread_mutex_unlock(&device_lock);
	return context;
}

/* The lock is held. */
static void start_life(struct context *context)
{
	static unsigned last_index;

	context->index = ++last_index;
	context->alive = true;
}

/* The lock is held. NULL: too many. */
static struct context *context_open(CUdevice device, unsigned flags, bool primary)
{
	struct context *context = must(calloc(1, sizeof(*context)));

	*context = (struct context){.flags = flags, .device = device, .primary = primary};
	context->handle = table_put(&contexts, context);
	if (!context->handle) {
		free(context);
		return NULL;
	}
	start_life(context);
	return context;
}

/* Waits for what is in progress, as a driver does, and gives up all that lies in the context. What operations refer to
 * stays with them, and the context itself with the threads it is current for. */
static void context_close(struct call *call, struct context *context)
{
	struct ops ops = {0};

	pthread_mutex_lock(&device_lock);
	context->alive = false;
	if (!context->primary)
		table_take(&contexts, context->handle);
	last_ops(context, NULL, &ops);
	for (struct stream *stream = context->streams; stream; stream = stream->next) {
		table_take(&streams, stream->handle);
		stream_close(stream);
	}
	forget_events(context);
	forget_modules(context);
	pthread_mutex_unlock(&device_lock);
	wait_and_clear(call, &ops, choose_wait(context, false));
	forget_memory(context);
	pthread_mutex_lock(&device_lock);
	for (struct stream *stream = context->streams; stream; stream = stream->next)
		ops_clear(&stream->last);
	context->streams = context->legacy = NULL;
	pthread_mutex_unlock(&device_lock);
}

static CUresult make_current(struct context *context, bool push)
{
	if (push && context_depth == CONTEXT_STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (push || !context_depth)
		context_depth++;
	context_stack[context_depth - 1] = context;
	if (!context)
		context_depth--;
	return CUDA_SUCCESS;
}

static CUresult check_device(CUdevice device)
{
	CUresult error;

	if (!driver_ready(&error))
		return error;
	return device >= 0 && device < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult create(struct call *call, CUcontext *out, unsigned int flags, CUdevice device)
{
	CUresult error = check_device(device);
	struct context *context;

	say_u64(call, "flags", flags);
	say_u64(call, "device", (uint64_t)device);
	if (error != CUDA_SUCCESS)
		return error;
	pthread_mutex_lock(&device_lock);
	context = context_open(device, flags, false);
	pthread_mutex_unlock(&device_lock);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = context->handle;
	say_context(call, context);
	return make_current(context, true);
}

static CUresult create_with_params(struct call *call, CUcontext *out, CUctxCreateParams *params, unsigned int flags,
				   CUdevice device)
{
	say_handle(call, "params", params);
	return create(call, out, flags, device);
}

EXPORT(cuCtxCreate_v2, create, (CUcontext *out, unsigned int flags, CUdevice device), out, flags, device)
EXPORT(cuCtxCreate_v4, create_with_params,
       (CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice device), out, params, flags, device)

static CUresult destroy(struct call *call, CUcontext handle)
{
	struct context *context = find_context(handle);

	if (!context || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	say_context(call, context);
	context_close(call, context);
	if (context_depth && context_stack[context_depth - 1] == context)
		context_depth--;
	return CUDA_SUCCESS;
}

EXPORT(cuCtxDestroy_v2, destroy, (CUcontext context), context)

/* The primary contexts. */

static CUresult retain(struct call *call, CUcontext *out, CUdevice device)
{
	CUresult error = check_device(device);
	struct context *context;

	say_u64(call, "device", (uint64_t)device);
	if (error != CUDA_SUCCESS)
		return error;
	pthread_mutex_lock(&device_lock);
	context = primaries[device].context;
	if (!context)
		context = primaries[device].context = must(context_open(device, 0, true));
	if (!context->alive)
		start_life(context);
	primaries[device].retained++;
	pthread_mutex_unlock(&device_lock);
	*out = context->handle;
	say_context(call, context);
	return CUDA_SUCCESS;
}

static CUresult give_up(struct call *call, CUdevice device, bool reset)
{
	CUresult error = check_device(device);
	struct context *closed = NULL;

	say_u64(call, "device", (uint64_t)device);
	if (error != CUDA_SUCCESS)
		return error;
	pthread_mutex_lock(&device_lock);
	if (!primaries[device].retained && !reset)
		error = CUDA_ERROR_INVALID_CONTEXT;
	else if (reset || !--primaries[device].retained)
		closed = primaries[device].context;
	pthread_mutex_unlock(&device_lock);
	if (closed && closed->alive) {
		say_context(call, closed);
		context_close(call, closed);
	}
	return error;
}

static CUresult release(struct call *call, CUdevice device)
{
	return give_up(call, device, false);
}

static CUresult reset(struct call *call, CUdevice device)
{
	return give_up(call, device, true);
}

static CUresult get_state(struct call *call, CUdevice device, unsigned int *flags, int *active)
{
	CUresult error = check_device(device);

	say_u64(call, "device", (uint64_t)device);
	if (error != CUDA_SUCCESS)
		return error;
	pthread_mutex_lock(&device_lock);
	*flags = 0;
	*active = primaries[device].context && primaries[device].context->alive;
	pthread_mutex_unlock(&device_lock);
	return CUDA_SUCCESS;
}

EXPORT(cuDevicePrimaryCtxRetain, retain, (CUcontext *out, CUdevice device), out, device)
EXPORT(cuDevicePrimaryCtxRelease_v2, release, (CUdevice device), device)
EXPORT(cuDevicePrimaryCtxReset_v2, reset, (CUdevice device), device)
EXPORT(cuDevicePrimaryCtxGetState, get_state, (CUdevice device, unsigned int *flags, int *active), device, flags, active)

/* The current context. */

static CUresult get_current(struct call *call, CUcontext *out)
{
	CUresult error;

	if (!driver_ready(&error))
		return error;
	*out = context_depth ? context_stack[context_depth - 1]->handle : NULL;
	if (context_depth)
		say_context(call, context_stack[context_depth - 1]);
	return CUDA_SUCCESS;
}

static CUresult set_current(struct call *call, CUcontext handle)
{
	struct context *context = find_context(handle);
	CUresult error;

	if (!driver_ready(&error))
		return error;
	if (handle && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context)
		say_context(call, context);
	return make_current(context, false);
}

static CUresult push_current(struct call *call, CUcontext handle)
{
	struct context *context = find_context(handle);
	CUresult error;

	if (!driver_ready(&error))
		return error;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	say_context(call, context);
	return make_current(context, true);
}

static CUresult pop_current(struct call *call, CUcontext *out)
{
	if (!context_depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	context_depth--;
	say_context(call, context_stack[context_depth]);
	if (out)
		*out = context_stack[context_depth]->handle;
	return CUDA_SUCCESS;
}

static CUresult get_device(struct call *call, CUdevice *device)
{
	CUresult error;
	const struct context *context = current_context(call, &error);

	if (context)
		*device = context->device;
	return error;
}

static CUresult get_flags(struct call *call, unsigned int *flags)
{
	CUresult error;
	const struct context *context = current_context(call, &error);

	if (context)
		*flags = context->flags;
	return error;
}

EXPORT(cuCtxGetCurrent, get_current, (CUcontext *out), out)
EXPORT(cuCtxSetCurrent, set_current, (CUcontext context), context)
EXPORT(cuCtxPushCurrent_v2, push_current, (CUcontext context), context)
EXPORT(cuCtxPopCurrent_v2, pop_current, (CUcontext *out), out)
EXPORT(cuCtxGetDevice, get_device, (CUdevice *device), device)
EXPORT(cuCtxGetFlags, get_flags, (unsigned int *flags), flags)

static CUresult wait_for_all(struct call *call, struct context *context)
{
	struct ops ops = {0};
	CUresult error;

	pthread_mutex_lock(&device_lock);
	error = capture_permits_wait(context, NULL);
	if (error == CUDA_SUCCESS)
		last_ops(context, NULL, &ops);
	pthread_mutex_unlock(&device_lock);
	if (error == CUDA_SUCCESS)
		wait_and_clear(call, &ops, choose_wait(context, false));
	return error;
}

static CUresult synchronize(struct call *call)
{
	CUresult error;
	struct context *context = current_context(call, &error);

	return context ? wait_for_all(call, context) : error;
}

static CUresult synchronize_context(struct call *call, CUcontext handle)
{
	struct context *context = handle ? find_context(handle) : NULL;
	CUresult error;

	if (!handle)
		return synchronize(call);
	if (!driver_ready(&error))
		return error;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	say_context(call, context);
	return wait_for_all(call, context);
}

EXPORT(cuCtxSynchronize, synchronize, (void))
EXPORT(cuCtxSynchronize_v2, synchronize_context, (CUcontext context), context)

/* Every simulated device can reach the others' memory; this is checked and otherwise of no effect. */
static CUresult enable_peer(struct call *call, CUcontext peer, unsigned int flags)
{
	CUresult error;

	say_u64(call, "flags", flags);
	if (!current_context(call, &error))
		return error;
	return flags ? CUDA_ERROR_INVALID_VALUE : find_context(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT(cuCtxEnablePeerAccess, enable_peer, (CUcontext peer, unsigned int flags), peer, flags)
