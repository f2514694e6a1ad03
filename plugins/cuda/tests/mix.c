// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A mix of every kind of CUDA call, from several threads on shared and own streams: `mix THREADS STEPS SEED [serial]`.
 * Serial means that no two calls overlap, though any thread may make the next one.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "include/cuda.h"

enum { STREAMS = 6, EVENTS = 3, BYTES = 4096 };

static CUcontext context;
static CUfunction kernel;
static CUstream streams[STREAMS];
static CUevent events[EVENTS];
static CUdeviceptr memory;
static void *pinned;
static unsigned long steps;
static bool serial;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void host_function(void *data)
{
	(void)data;
}

static void launch(CUstream stream, uint64_t ns)
{
	void *params[] = {&ns};
	CUlaunchConfig config = {
		.gridDimX = 2, .gridDimY = 3, .gridDimZ = 5, .blockDimX = 7, .blockDimY = 11, .blockDimZ = 13,
		.sharedMemBytes = 17, .hStream = stream,
	};

	if (ns & 1)
		cuLaunchKernelEx(&config, kernel, params, NULL);
	else
		cuLaunchKernel(kernel, 19, 23, 29, 31, 4, 2, 41, stream, params, NULL);
}

static void own_stream(uint64_t ns)
{
	CUstream stream;
	CUevent event;

	cuStreamCreate(&stream, ns & 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
	cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	launch(stream, ns);
	cuEventRecord(event, stream);
	cuStreamWaitEvent(streams[0], event, 0);
	launch(streams[0], ns);
	cuEventSynchronize(event);
	cuEventDestroy_v2(event);
	cuStreamDestroy_v2(stream);
}

static void graph(CUstream stream, uint64_t ns)
{
	CUgraphExec exec;
	CUgraph made;

	cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	launch(stream, ns);
	cuMemsetD8Async(memory, 1, 64, stream);
	if (cuStreamEndCapture(stream, &made))
		return;
	cuGraphInstantiateWithFlags(&exec, made, 0);
	cuGraphLaunch(exec, stream);
	cuGraphLaunch(exec, stream);
	cuStreamSynchronize(stream);
	cuGraphExecDestroy(exec);
	cuGraphDestroy(made);
}

static void step(unsigned *seed)
{
	CUstream stream = streams[rand_r(seed) % STREAMS];
	CUevent event = events[rand_r(seed) % EVENTS];
	uint64_t ns = 1000 + rand_r(seed) % 40000;
	CUdeviceptr fresh;

	switch (rand_r(seed) % 18) {
	case 0:
		cuMemcpyHtoD_v2(memory, pinned, BYTES);
		break;
	case 1:
		cuMemcpyDtoH_v2(pinned, memory, BYTES / 2);
		break;
	case 2:
		cuMemcpyHtoDAsync_v2(memory, pinned, BYTES / 4, stream);
		break;
	case 3:
		cuMemcpyDtoHAsync_v2(pinned, memory, BYTES / 8, stream);
		break;
	case 4:
		cuMemsetD8Async(memory, 3, BYTES / 16, stream);
		break;
	case 5:
		cuLaunchHostFunc(stream, host_function, NULL);
		break;
	case 6:
	case 7:
		cuEventRecord(event, stream);
		break;
	case 8:
	case 9:
		cuStreamWaitEvent(stream, event, 0);
		break;
	case 10:
		cuEventSynchronize(event);
		break;
	case 11:
		cuStreamSynchronize(stream);
		break;
	case 12:
		cuCtxSynchronize();
		break;
	case 13:
		cuStreamQuery(stream);
		cuEventQuery(event);
		break;
	case 14:
		cuMemAlloc_v2(&fresh, 1000 + ns);
		cuMemFree_v2(fresh);
		break;
	case 15:
		own_stream(ns);
		break;
	case 16:
		if (serial)
			graph(streams[1], ns);
		break;
	default:
		launch(stream, ns);
	}
}

static void *work(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;

	cuCtxSetCurrent(context);
	for (unsigned long i = 0; i < steps; i++) {
		if (serial)
			pthread_mutex_lock(&turn);
		step(&seed);
		if (serial)
			pthread_mutex_unlock(&turn);
	}
	return NULL;
}

static void prepare(void)
{
	CUmodule module;
	CUdevice device;

	cuInit(0);
	cuDeviceGet(&device, 0);
	cuCtxCreate_v2(&context, CU_CTX_SCHED_BLOCKING_SYNC, device);
	cuModuleLoadData(&module, "");
	cuModuleGetFunction(&kernel, module, "mix");
	cuMemAlloc_v2(&memory, BYTES);
	cuMemHostAlloc(&pinned, BYTES, 0);
	cuStreamCreate(&streams[0], CU_STREAM_DEFAULT);
	cuStreamCreateWithPriority(&streams[1], CU_STREAM_NON_BLOCKING, -1);
	streams[2] = NULL;
	streams[3] = CU_STREAM_LEGACY;
	streams[4] = CU_STREAM_PER_THREAD;
	cuStreamCreate(&streams[5], CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < EVENTS; i++)
		cuEventCreate(&events[i], CU_EVENT_DEFAULT);
}

int main(int argc, char **argv)
{
	unsigned long threads = argc > 3 ? strtoul(argv[1], NULL, 10) : 0;
	pthread_t others[16];

	if (threads < 1 || threads > 16) {
		fprintf(stderr, "usage: %s THREADS STEPS SEED [serial]\n", argv[0]);
		return 2;
	}
	steps = strtoul(argv[2], NULL, 10);
	serial = argc > 4;
	prepare();
	for (unsigned long i = 0; i < threads; i++)
		pthread_create(&others[i], NULL, work, (void *)(strtoul(argv[3], NULL, 10) + 7919 * i));
	for (unsigned long i = 0; i < threads; i++)
		pthread_join(others[i], NULL);
	cuCtxSynchronize();
	return 0;
}
