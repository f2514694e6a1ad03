// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Writes every call of the CUDA driver and runtime API that CUPTI reports, and when kernels, copies and sets ran.
 *
 * Loaded into a program by CUDA itself (CUDA_INJECTION64_PATH). One line a call, when it is entered:
 *     C <D or R> <tid> <CLOCK_MONOTONIC ns> <correlation> <function> <kernel or ->
 * and one an activity of the device, at the end, with times in CLOCK_MONOTONIC:
 *     A <kind> <correlation> <start ns> <end ns> <stream> <graph node or 0> <name or ->
 * into the file that CUPTI_LOG names; %p in it is the process. It shares nothing with what is tested.
 *
 *     cc -shared -fPIC -O2 -I$CUPTI/include cupti_log.c -o cupti_log.so -L$CUPTI/lib -lcupti
 */
#define _GNU_SOURCE
#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static FILE *file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t CUPTIAPI now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void CUPTIAPI on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
	const CUpti_CallbackData *call = data;

	(void)user;
	(void)id;
	if (call->callbackSite != CUPTI_API_ENTER)
		return;
	fprintf(file, "C %c %ld %llu %u %s %s\n", domain == CUPTI_CB_DOMAIN_DRIVER_API ? 'D' : 'R', syscall(SYS_gettid),
		(unsigned long long)now_ns(), call->correlationId, call->functionName,
		call->symbolName ? call->symbolName : "-");
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records)
{
	*size = 1 << 20;
	*buffer = aligned_alloc(8, *size);
	*records = 0;
}

static void write_activity(CUpti_Activity *activity)
{
	if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
		const CUpti_ActivityKernel9 *kernel = (const CUpti_ActivityKernel9 *)activity;

		fprintf(file, "A kernel %u %llu %llu %u %llu %s\n", kernel->correlationId, (unsigned long long)kernel->start,
			(unsigned long long)kernel->end, kernel->streamId, (unsigned long long)kernel->graphNodeId, kernel->name);
	} else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
		const CUpti_ActivityMemcpy5 *copy = (const CUpti_ActivityMemcpy5 *)activity;

		fprintf(file, "A memcpy %u %llu %llu %u %llu -\n", copy->correlationId, (unsigned long long)copy->start,
			(unsigned long long)copy->end, copy->streamId, (unsigned long long)copy->graphNodeId);
	} else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
		const CUpti_ActivityMemset4 *set = (const CUpti_ActivityMemset4 *)activity;

		fprintf(file, "A memset %u %llu %llu %u %llu -\n", set->correlationId, (unsigned long long)set->start,
			(unsigned long long)set->end, set->streamId, (unsigned long long)set->graphNodeId);
	}
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	CUpti_Activity *activity = NULL;

	(void)context;
	(void)stream;
	(void)size;
	pthread_mutex_lock(&lock);
	while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS)
		write_activity(activity);
	pthread_mutex_unlock(&lock);
	free(buffer);
}

static void at_end(void)
{
	cuptiActivityFlushAll(1);
	fclose(file);
}

static void open_log(const char *name)
{
	char path[4096];
	const char *pid = strstr(name, "%p");

	if (pid)
		snprintf(path, sizeof(path), "%.*s%d%s", (int)(pid - name), name, getpid(), pid + 2);
	file = fopen(pid ? path : name, "w");
	if (!file) {
		perror(name);
		exit(1);
	}
	setvbuf(file, NULL, _IOFBF, 1 << 20);
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
	CUpti_SubscriberHandle subscriber;
	const char *name = getenv("CUPTI_LOG");

	if (!name)
		return 1;
	open_log(name);
	cuptiSubscribe(&subscriber, on_call, NULL);
	cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
	cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);
	if (getenv("CUPTI_LOG_ACTIVITY")) {
		cuptiActivityRegisterTimestampCallback(now_ns);
		cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
		cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
		cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
		cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
	}
	atexit(at_end);
	return 1;
}
