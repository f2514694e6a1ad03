// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The simulated driver: start-up, devices, entry points, errors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "simcuda_tables.h"

#define MAX_DEVICES 8

static bool initialized, forked;

/* A child of a process that has started the driver has none. */
static void stop_in_child(void)
{
	forked = initialized;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, stop_in_child);
}

bool driver_ready(CUresult *error)
{
	*error = CUDA_ERROR_NOT_INITIALIZED;
	return initialized && !forked;
}

int device_count(void)
{
	static int count;

	if (!count) {
		const char *wish = getenv("SIMCUDA_DEVICES");
		int asked = wish ? atoi(wish) : 2;

		count = asked < 1 ? 1 : asked > MAX_DEVICES ? MAX_DEVICES : asked;
	}
	return count;
}

static bool is_device(CUdevice device)
{
	return device >= 0 && device < device_count();
}

static CUresult init(struct call *call, unsigned int flags)
{
	say_u64(call, "flags", flags);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (backend_on && !initialized && !backend_open())
		return CUDA_ERROR_NO_DEVICE;
	initialized = true;
	return CUDA_SUCCESS;
}

EXPORT(cuInit, init, (unsigned int flags), flags)

SIMCUDA_API CUresult cuDriverGetVersion(int *version)
{
	ENTER(cuDriverGetVersion);
	*version = CUDA_VERSION;
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult error;

	ENTER(cuDeviceGet);
	say_u64(&call, "ordinal", (uint64_t)ordinal);
	if (!driver_ready(&error))
		LEAVE(error);
	if (!is_device(ordinal))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*device = ordinal;
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuDeviceGetCount(int *count)
{
	CUresult error;

	ENTER(cuDeviceGetCount);
	*count = device_count();
	LEAVE(driver_ready(&error) ? CUDA_SUCCESS : error);
}

SIMCUDA_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	ENTER(cuDeviceGetName);
	if (!is_device(device))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	snprintf(name, (size_t)length, "fencepath simulated GPU");
	LEAVE(CUDA_SUCCESS);
}

/* What is not known is 0. */
SIMCUDA_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ENTER(cuDeviceGetAttribute);
	say_u64(&call, "attribute", attribute);
	if (!is_device(device))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*value = attribute == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING ||
		 attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED ||
		 attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
	LEAVE(CUDA_SUCCESS);
}

SIMCUDA_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER(cuDeviceCanAccessPeer);
	if (!is_device(device) || !is_device(peer))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*can = device != peer;
	LEAVE(CUDA_SUCCESS);
}

static const struct result {
	CUresult value;
	const char *name;
} results[] = {
#define ROW(name, value) {value, #name},
	SIMCUDA_RESULTS(ROW)
#undef ROW
};

static const char *name_of(CUresult error)
{
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i].value == error)
			return results[i].name;
	return NULL;
}

SIMCUDA_API CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = name_of(error);
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMCUDA_API CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = !name_of(error) ? NULL : error == CUDA_SUCCESS ? "no error" : "error of the simulated CUDA library";
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static const struct entry_point {
	const char *name;
	void *plain, *per_thread;
} entry_points[] = {
#define ROW(name, exported, variant) {#name, (void *)exported, (void *)variant},
	SIMCUDA_DRIVER_FUNCTIONS(ROW)
#undef ROW
};

SIMCUDA_API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version, cuuint64_t flags,
					 CUdriverProcAddressQueryResult *status)
{
	const struct entry_point *found = NULL;

	ENTER(cuGetProcAddress_v2);
	say_text(&call, "symbol", symbol);
	say_u64(&call, "cuda_version", (uint64_t)cuda_version);
	say_u64(&call, "flags", flags);
	for (size_t i = 0; i < sizeof(entry_points) / sizeof(entry_points[0]) && !found; i++)
		if (strcmp(entry_points[i].name, symbol) == 0)
			found = &entry_points[i];
	*function = !found ? NULL :
		    flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? found->per_thread : found->plain;
	if (status)
		*status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	LEAVE(found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}
