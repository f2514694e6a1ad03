// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: start-up, contexts, modules, errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

#define DEVICES 1
#define DRIVER_VERSION 12090
#define CONTEXT_STACK 16
#define MAX_FUNCTIONS 4096

static bool initialized;
static struct context *contexts, *primary;
static __thread struct context *context_stack[CONTEXT_STACK];
static __thread int context_depth;
static pid_t owner;

static bool is_context(const struct context *wanted)
{
	bool found = false;

	pthread_mutex_lock(&device_lock);
	for (const struct context *context = contexts; context; context = context->next)
		found |= context == wanted && context->alive;
	pthread_mutex_unlock(&device_lock);
	return found;
}

struct context *current_context(CUresult *error)
{
	struct context *context = context_depth ? context_stack[context_depth - 1] : NULL;

	*error = !initialized ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_CONTEXT;
	return initialized && context && context->alive && owner == getpid() ? context : NULL;
}

static struct context *context_open(unsigned flags)
{
	static unsigned last_index;
	struct context *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	pthread_mutex_lock(&device_lock);
	*context = (struct context){.next = contexts, .index = ++last_index, .flags = flags, .alive = true};
	contexts = context;
	pthread_mutex_unlock(&device_lock);
	return context;
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

SIMCUDA_API CUresult cuInit(unsigned int flags)
{
	ENTER(cuInit);
	ARG_U64("flags", flags);
	initialized = true;
	owner = getpid();
	LEAVE(flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuDriverGetVersion(int *version)
{
	ENTER(cuDriverGetVersion);
	*version = DRIVER_VERSION;
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER(cuDeviceGet);
	ARG_U64("ordinal", ordinal);
	if (!initialized)
		LEAVE(CUDA_ERROR_NOT_INITIALIZED);
	if (ordinal < 0 || ordinal >= DEVICES)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*device = ordinal;
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuDeviceGetCount(int *count)
{
	ENTER(cuDeviceGetCount);
	*count = DEVICES;
	LEAVE(initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED);
}

SIMCUDA_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	ENTER(cuDeviceGetName);
	if (device < 0 || device >= DEVICES)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	snprintf(name, (size_t)length, "fencepath simulated GPU");
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuGetErrorName(CUresult error, const char **name)
{
	static __thread char text[32];

	if (error == CUDA_SUCCESS) {
		*name = "CUDA_SUCCESS";
	} else {
		snprintf(text, sizeof(text), "CUDA_ERROR_%d", (int)error);
		*name = text;
	}
	return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = error == CUDA_SUCCESS ? "no error" : "error of the simulated CUDA library";
	return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version, cuuint64_t flags,
					 CUdriverProcAddressQueryResult *status)
{
	static const struct {
		const char *name;
		void *function;
	} table[] = {
#define ROW(name, exported) {#name, (void *)exported},
		SIMCUDA_DRIVER_FUNCTIONS(ROW)
#undef ROW
	};
	bool found = false;

	ENTER(cuGetProcAddress_v2);
	ARG_TEXT("symbol", symbol);
	ARG_U64("cuda_version", cuda_version);
	ARG_U64("flags", flags);
	*function = NULL;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]) && !found; i++)
		if (strcmp(table[i].name, symbol) == 0) {
			*function = table[i].function;
			found = true;
		}
	if (status)
		*status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	LEAVE(found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

/* Contexts. */

SIMCUDA_API CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	struct context *context;

	ENTER(cuCtxCreate_v2);
	ARG_U64("flags", flags);
	ARG_U64("device", device);
	if (!initialized)
		LEAVE(CUDA_ERROR_NOT_INITIALIZED);
	if (device < 0 || device >= DEVICES)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	context = context_open(flags);
	if (!context)
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	*out = (CUcontext)context;
	ARG_U64("context", context->index);
	ARG_HEX("handle", context);
	LEAVE(make_current(context, true));
}

SIMCUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	ENTER(cuDevicePrimaryCtxRetain);
	ARG_U64("device", device);
	if (!initialized)
		LEAVE(CUDA_ERROR_NOT_INITIALIZED);
	if (device < 0 || device >= DEVICES)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	if (!primary)
		primary = context_open(0);
	if (!primary)
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	*out = (CUcontext)primary;
	ARG_U64("context", primary->index);
	ARG_HEX("handle", primary);
	LEAVE(CUDA_SUCCESS);
}

/* Work in progress is waited for, as a driver does. */
SIMCUDA_API CUresult cuCtxDestroy_v2(CUcontext handle)
{
	struct context *context = (struct context *)handle;
	struct op **ops;
	size_t count;

	ENTER(cuCtxDestroy_v2);
	ARG_HEX("handle", handle);
	if (!is_context(context))
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	pthread_mutex_lock(&device_lock);
	context->alive = false;
	count = last_ops(context, NULL, &ops);
	for (struct stream *stream = context->streams; stream; stream = stream->next) {
		table_take(&streams, stream->handle);
		stream_close(stream);
	}
	pthread_mutex_unlock(&device_lock);
	wait_and_put(&call, ops, count, choose_wait(context, false));
	if (context_depth && context_stack[context_depth - 1] == context)
		context_depth--;
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuCtxGetCurrent(CUcontext *out)
{
	ENTER(cuCtxGetCurrent);
	*out = context_depth ? (CUcontext)context_stack[context_depth - 1] : NULL;
	LEAVE(initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED);
}

SIMCUDA_API CUresult cuCtxSetCurrent(CUcontext handle)
{
	ENTER(cuCtxSetCurrent);
	ARG_HEX("handle", handle);
	if (handle && !is_context((struct context *)handle))
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	LEAVE(make_current((struct context *)handle, false));
}

SIMCUDA_API CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
	ENTER(cuCtxPushCurrent_v2);
	ARG_HEX("handle", handle);
	if (!is_context((struct context *)handle))
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	LEAVE(make_current((struct context *)handle, true));
}

SIMCUDA_API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	ENTER(cuCtxPopCurrent_v2);
	if (!context_depth)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	context_depth--;
	if (out)
		*out = (CUcontext)context_stack[context_depth];
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuCtxGetDevice(CUdevice *device)
{
	CUresult error;

	ENTER(cuCtxGetDevice);
	if (!current_context(&error))
		LEAVE(error);
	*device = 0;
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuCtxSynchronize(void)
{
	struct context *context;
	struct op **ops;
	size_t count;
	CUresult error;

	ENTER(cuCtxSynchronize);
	context = current_context(&error);
	if (!context)
		LEAVE(error);
	pthread_mutex_lock(&device_lock);
	count = last_ops(context, NULL, &ops);
	pthread_mutex_unlock(&device_lock);
	wait_and_put(&call, ops, count, choose_wait(context, false));
	LEAVE(CUDA_SUCCESS);
}

/*
 * Modules. An image is text: names of kernels, each `name` or `name:nanoseconds`, with white space between. An image
 * without a name has every kernel that is asked for.
 */

struct module {
	char *image;
};

struct function {
	char *name;
	uint64_t default_ns;
};

TABLE(modules, 256);
TABLE(functions, MAX_FUNCTIONS);

/* Whether an image has a kernel, and its time. */
static bool image_has(const char *image, const char *name, uint64_t *default_ns)
{
	size_t length = strlen(name);
	bool empty = true;

	*default_ns = 0;
	while (*(image += strspn(image, " \t\n"))) {
		size_t word = strcspn(image, " \t\n");

		empty = false;
		if (word >= length && strncmp(image, name, length) == 0 && (word == length || image[length] == ':')) {
			*default_ns = word > length ? strtoull(image + length + 1, NULL, 10) : 0;
			return true;
		}
		image += word;
	}
	return empty;
}

SIMCUDA_API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	struct module *module;
	CUresult error;

	ENTER(cuModuleLoadData);
	if (!current_context(&error))
		LEAVE(error);
	module = calloc(1, sizeof(*module));
	if (module)
		module->image = strdup(image ? image : "");
	pthread_mutex_lock(&device_lock);
	*out = module && module->image ? table_put(&modules, module) : NULL;
	pthread_mutex_unlock(&device_lock);
	ARG_HEX("module", *out);
	LEAVE(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* Its functions stay valid: operations in progress name them. */
SIMCUDA_API CUresult cuModuleUnload(CUmodule handle)
{
	struct module *module;

	ENTER(cuModuleUnload);
	ARG_HEX("module", handle);
	pthread_mutex_lock(&device_lock);
	module = table_take(&modules, handle);
	pthread_mutex_unlock(&device_lock);
	if (!module)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	free(module->image);
	free(module);
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
	struct function *function;
	struct module *module;
	uint64_t default_ns = 0;

	ENTER(cuModuleGetFunction);
	ARG_HEX("module", handle);
	ARG_TEXT("name_asked", name);
	pthread_mutex_lock(&device_lock);
	module = table_get(&modules, handle);
	pthread_mutex_unlock(&device_lock);
	if (!module)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	if (!image_has(module->image, name, &default_ns))
		LEAVE(CUDA_ERROR_NOT_FOUND);
	function = calloc(1, sizeof(*function));
	if (function)
		*function = (struct function){strdup(name), default_ns};
	pthread_mutex_lock(&device_lock);
	*out = function && function->name ? table_put(&functions, function) : NULL;
	pthread_mutex_unlock(&device_lock);
	ARG_HEX("function", *out);
	LEAVE(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

const char *find_function(CUfunction handle, uint64_t *default_ns)
{
	const struct function *function = table_get(&functions, handle);

	if (!function)
		return NULL;
	*default_ns = function->default_ns;
	return function->name;
}

SIMCUDA_API CUresult cuFuncGetName(const char **name, CUfunction handle)
{
	uint64_t ignored;

	ENTER(cuFuncGetName);
	ARG_HEX("function", handle);
	pthread_mutex_lock(&device_lock);
	*name = find_function(handle, &ignored);
	pthread_mutex_unlock(&device_lock);
	LEAVE(*name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
