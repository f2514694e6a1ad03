// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The simulated driver: modules, libraries and their kernels.
 *
 * An image is PTX, whose entries are its kernels, or names of kernels, each `name` or `name:nanoseconds`, with white space
 * between. An image without any has every kernel that is asked for.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

struct module {
	const struct context *context; /* NULL of a library */
	char *image;
};

struct function {
	const struct context *context; /* NULL of a library's kernel, which is every context's */
	const struct function *kernel; /* what it was got from, or NULL */
	char *name;
	uint64_t default_ns;
};

TABLE(modules, 1024);
TABLE(libraries, 1024);
TABLE(functions, 4096);
TABLE(kernels, 4096);

static bool ptx_has(const char *image, const char *name)
{
	size_t length = strlen(name);

	while ((image = strstr(image, ".entry"))) {
		image += strlen(".entry");
		image += strspn(image, " \t\n");
		if (strncmp(image, name, length) == 0 && !isalnum((unsigned char)image[length]) && image[length] != '_' &&
		    image[length] != '$')
			return true;
	}
	return false;
}

/* Whether an image has a kernel, and its time. */
static bool image_has(const char *image, const char *name, uint64_t *default_ns)
{
	size_t length = strlen(name);
	bool empty = true;

	*default_ns = 0;
	if (strstr(image, ".version"))
		return ptx_has(image, name);
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

/* With the lock held: a handle for a kernel of an image. */
static CUresult add_function(struct table *table, const struct module *module, const char *name, void **out)
{
	struct function *function;
	uint64_t default_ns;

	*out = NULL;
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!image_has(module->image, name, &default_ns))
		return CUDA_ERROR_NOT_FOUND;
	function = must(calloc(1, sizeof(*function)));
	*function = (struct function){module->context, NULL, must(strdup(name)), default_ns};
	*out = table_put(table, function);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load(struct table *table, const struct context *context, const void *image, void **out)
{
	struct module *module = must(calloc(1, sizeof(*module)));

	*module = (struct module){context, must(strdup(image ? image : ""))};
	pthread_mutex_lock(&device_lock);
	*out = table_put(table, module);
	pthread_mutex_unlock(&device_lock);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Its functions stay valid: operations in progress name them. */
static CUresult unload(struct table *table, const void *handle)
{
	struct module *module;

	pthread_mutex_lock(&device_lock);
	module = table_take(table, handle);
	pthread_mutex_unlock(&device_lock);
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	free(module->image);
	free(module);
	return CUDA_SUCCESS;
}

const char *find_kernel(CUkernel handle, uint64_t *default_ns)
{
	const struct function *kernel = table_get(&kernels, handle);

	if (kernel)
		*default_ns = kernel->default_ns;
	return kernel ? kernel->name : NULL;
}

const char *find_function(const struct context *context, CUfunction handle, uint64_t *default_ns)
{
	const struct function *function = table_get(&functions, handle);

	if (!function || function->context != context)
		return NULL;
	*default_ns = function->default_ns;
	return function->name;
}

static bool function_is_of(const void *function, const void *context)
{
	return ((const struct function *)function)->context == context;
}

static bool module_is_of(const void *module, const void *context)
{
	return ((const struct module *)module)->context == context;
}

void forget_modules(const struct context *context)
{
	table_purge(&functions, function_is_of, context);
	table_purge(&modules, module_is_of, context);
}

/* The API. */

static CUresult load_module(struct call *call, CUmodule *out, const void *image)
{
	CUresult error;
	const struct context *context = current_context(call, &error);

	if (!context)
		return error;
	pthread_mutex_lock(&device_lock);
	error = capture_permits();
	pthread_mutex_unlock(&device_lock);
	if (error == CUDA_SUCCESS)
		error = load(&modules, context, image, (void **)out);
	if (error == CUDA_SUCCESS)
		say_handle(call, "module", *out);
	return error;
}

static CUresult unload_module(struct call *call, CUmodule handle)
{
	say_handle(call, "module", handle);
	return unload(&modules, handle);
}

static CUresult get_function(struct call *call, CUfunction *out, CUmodule handle, const char *name)
{
	CUresult error;

	say_handle(call, "module", handle);
	say_text(call, "name_asked", name);
	if (!current_context(call, &error))
		return error;
	pthread_mutex_lock(&device_lock);
	error = add_function(&functions, table_get(&modules, handle), name, (void **)out);
	pthread_mutex_unlock(&device_lock);
	say_handle(call, "function", *out);
	return error;
}

static CUresult get_name(struct call *call, const char **name, const struct table *table, const void *handle)
{
	const struct function *function;

	say_handle(call, "function", handle);
	pthread_mutex_lock(&device_lock);
	function = table_get(table, handle);
	*name = function ? function->name : NULL;
	pthread_mutex_unlock(&device_lock);
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT(cuModuleLoadData, load_module, (CUmodule *out, const void *image), out, image)
EXPORT(cuModuleUnload, unload_module, (CUmodule module), module)
EXPORT(cuModuleGetFunction, get_function, (CUfunction *out, CUmodule module, const char *name), out, module, name)
EXPORT(cuFuncGetName, get_name, (const char **name, CUfunction function), name, &functions, function)

static CUresult load_library(struct call *call, CUlibrary *out, const void *code)
{
	CUresult error;

	if (!driver_ready(&error))
		return error;
	error = load(&libraries, NULL, code, (void **)out);
	say_handle(call, "library", *out);
	return error;
}

static CUresult unload_library(struct call *call, CUlibrary handle)
{
	say_handle(call, "library", handle);
	return unload(&libraries, handle);
}

static CUresult get_kernel(struct call *call, CUkernel *out, CUlibrary handle, const char *name)
{
	CUresult error;

	say_handle(call, "library", handle);
	say_text(call, "name_asked", name);
	pthread_mutex_lock(&device_lock);
	error = add_function(&kernels, table_get(&libraries, handle), name, (void **)out);
	pthread_mutex_unlock(&device_lock);
	say_handle(call, "kernel_handle", *out);
	return error;
}

/* With the lock held: the function of a kernel in a context, the same each time. */
static void *function_of(const struct context *context, const struct function *kernel)
{
	struct function *function;

	for (size_t at = 0; at < functions.used; at++) {
		function = functions.objects[at];
		if (function && function->kernel == kernel && function->context == context)
			return &functions.objects[at];
	}
	function = must(calloc(1, sizeof(*function)));
	*function = (struct function){context, kernel, kernel->name, kernel->default_ns};
	return table_put(&functions, function);
}

static CUresult get_kernel_function(struct call *call, CUfunction *out, CUkernel handle)
{
	const struct function *kernel;
	CUresult error;
	const struct context *context = current_context(call, &error);

	say_handle(call, "kernel_handle", handle);
	if (!context)
		return error;
	pthread_mutex_lock(&device_lock);
	kernel = table_get(&kernels, handle);
	*out = kernel ? function_of(context, kernel) : NULL;
	pthread_mutex_unlock(&device_lock);
	say_handle(call, "function", *out);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Without what only a compiler in the driver would read. */
SIMCUDA_API CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit_options, void **jit_values,
				       unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
	(void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	ENTER(cuLibraryLoadData);
	LEAVE(load_library(&call, out, code));
}

EXPORT(cuLibraryUnload, unload_library, (CUlibrary library), library)
EXPORT(cuLibraryGetKernel, get_kernel, (CUkernel *out, CUlibrary library, const char *name), out, library, name)
EXPORT(cuKernelGetFunction, get_kernel_function, (CUfunction *out, CUkernel kernel), out, kernel)
EXPORT(cuKernelGetName, get_name, (const char **name, CUkernel kernel), name, &kernels, kernel)
