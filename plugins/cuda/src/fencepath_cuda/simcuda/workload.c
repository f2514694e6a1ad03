// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Launches, exactly as many and from as many threads as asked for.
 *
 * Each thread has a stream of its own (and so one queue of the device), is one marked request, and launches one kernel after
 * the other. Prints what it did as one JSON object; times are CLOCK_MONOTONIC. On a real GPU it is the same: compile it with
 * -DWITHOUT_RUNTIME and -lcuda. (A kernel for the runtime API would need NVIDIA's compiler there.)
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>
#ifndef WITHOUT_RUNTIME
#include <cuda_runtime_api.h>
#endif

#include <fencepath_mark.h>

#include "spin.h"

static unsigned long threads = 1, launches = 1009, sync_every = 101, rate_hz;
static uint64_t kernel_ns = 1000;
static bool runtime_api;
static pthread_barrier_t together;
static CUcontext context;
static CUfunction kernel;
static char device_name[64];

struct worker {
	pthread_t thread;
	unsigned long number, done;
	int tid;
	uint64_t begin_ns, end_ns, cpu_ns;
};

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void check(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "%s failed with %d\n", what, result);
		exit(1);
	}
}

/* The runtime API. */

#ifdef WITHOUT_RUNTIME

static void no_runtime(void)
{
	fprintf(stderr, "compiled without the runtime API\n");
	exit(2);
}
#define register_kernel no_runtime
#define runtime_launch(stream, params) no_runtime()
#define runtime_synchronize(stream) no_runtime()

#else

static char kernel_stub; /* the host function that stands for the kernel */

void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name, int thread_limit, void *tid,
			    void *bid, void *block, void *grid, int *warp_size);

static void register_kernel(void)
{
	__cudaRegisterFunction(__cudaRegisterFatBinary(NULL), &kernel_stub, NULL, "workload_kernel", -1, NULL, NULL, NULL,
			       NULL, NULL);
}

static void runtime_launch(CUstream stream, void **params)
{
	const dim3 grid = {7, 5, 3}, block = {128, 1, 1};

	check((int)cudaLaunchKernel(&kernel_stub, grid, block, params, 0, stream), "cudaLaunchKernel");
}

static void runtime_synchronize(CUstream stream)
{
	check((int)cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

#endif

static void launch(CUstream stream)
{
	void *params[] = {&kernel_ns};

	if (runtime_api)
		runtime_launch(stream, params);
	else
		check((int)cuLaunchKernel(kernel, 7, 5, 3, 128, 1, 1, 0, stream, params, NULL), "cuLaunchKernel");
}

static void synchronize(CUstream stream)
{
	if (runtime_api)
		runtime_synchronize(stream);
	else
		check((int)cuStreamSynchronize(stream), "cuStreamSynchronize");
}

/* Sleeps until it is time for launch number n, about once per millisecond. */
static void keep_rate(uint64_t begin_ns, unsigned long n)
{
	uint64_t due_ns = begin_ns + n * 1000000000 / rate_hz;
	struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000), .tv_nsec = (long)(due_ns % 1000000000)};

	if (n % (rate_hz / 1000 + 1) == 0)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

static void *work(void *argument)
{
	struct worker *self = argument;
	uint64_t request, cpu_ns;
	CUstream stream;
	char id[32];

	snprintf(id, sizeof(id), "worker-%lu", self->number);
	self->tid = (int)syscall(SYS_gettid);
	check((int)cuCtxSetCurrent(context), "cuCtxSetCurrent");
	check((int)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	pthread_barrier_wait(&together);
	request = fencepath_request_begin(id, NULL, NULL, 0);
	fencepath_bind_thread(request);
	cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
	self->begin_ns = read_clock(CLOCK_MONOTONIC);
	while (self->done < launches) {
		launch(stream);
		if (++self->done % sync_every == 0)
			synchronize(stream);
		if (rate_hz)
			keep_rate(self->begin_ns, self->done);
	}
	synchronize(stream);
	self->end_ns = read_clock(CLOCK_MONOTONIC);
	self->cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	fencepath_unbind_thread(request);
	fencepath_request_end(request);
	check((int)cuStreamDestroy(stream), "cuStreamDestroy");
	return NULL;
}

static void start(void)
{
	static const char ptx[] = SPIN_HEAD SPIN_ENTRY("workload_kernel");
	CUmodule module;
	CUdevice device;

	check((int)cuInit(0), "cuInit");
	check((int)cuDeviceGet(&device, 0), "cuDeviceGet");
	check((int)cuDeviceGetName(device_name, sizeof(device_name), device), "cuDeviceGetName");
	check((int)cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	check((int)cuCtxSetCurrent(context), "cuCtxSetCurrent");
	check((int)cuModuleLoadData(&module, ptx), "cuModuleLoadData");
	check((int)cuModuleGetFunction(&kernel, module, "workload_kernel"), "cuModuleGetFunction");
	if (runtime_api)
		register_kernel();
}

static void usage(const char *name)
{
	fprintf(stderr,
		"usage: %s [--threads N] [--launches N] [--sync-every N] [--rate N] [--kernel-ns N] [--runtime]\n"
		"Launches CUDA kernels that do nothing. Counts are per thread; a rate of 0 is as fast as it goes.\n",
		name);
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"threads", required_argument, NULL, 't'},    {"launches", required_argument, NULL, 'n'},
		{"sync-every", required_argument, NULL, 's'}, {"rate", required_argument, NULL, 'r'},
		{"kernel-ns", required_argument, NULL, 'k'},  {"runtime", no_argument, NULL, 'R'},
		{0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 10) : 0;

		switch (option) {
		case 't': threads = value; break;
		case 'n': launches = value; break;
		case 's': sync_every = value; break;
		case 'r': rate_hz = value; break;
		case 'k': kernel_ns = value; break;
		case 'R': runtime_api = true; break;
		default: usage(argv[0]);
		}
	}
	if (optind != argc || !threads || !sync_every)
		usage(argv[0]);
}

int main(int argc, char **argv)
{
	struct worker *workers;

	parse(argc, argv);
	start();
	workers = calloc(threads, sizeof(*workers));
	if (!workers)
		return 1;
	pthread_barrier_init(&together, NULL, (unsigned)threads);
	for (unsigned long i = 0; i < threads; i++) {
		workers[i].number = i;
		check(pthread_create(&workers[i].thread, NULL, work, &workers[i]), "pthread_create");
	}
	for (unsigned long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	printf("{\"simulated\":%s,\"device\":\"%s\",\"api\":\"%s\",\"kernel_ns\":%llu,\"threads\":[",
	       strstr(device_name, "simulated") ? "true" : "false", device_name, runtime_api ? "runtime" : "driver",
	       (unsigned long long)kernel_ns);
	for (unsigned long i = 0; i < threads; i++)
		printf("%s{\"tid\":%d,\"launches\":%lu,\"begin_ns\":%llu,\"end_ns\":%llu,\"cpu_ns\":%llu}", i ? "," : "",
		       workers[i].tid, workers[i].done, (unsigned long long)workers[i].begin_ns,
		       (unsigned long long)workers[i].end_ns, (unsigned long long)workers[i].cpu_ns);
	printf("]}\n");
	return 0;
}
