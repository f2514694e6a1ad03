// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * An LLM inference server with continuous batching, as far as CUDA and threads are concerned; nothing is inferred.
 *
 * A handler thread for each request puts it into the queue and waits for its answer. The scheduler thread plans steps: in
 * each, all running requests decode one token and as many waiting ones as there is room for are prefilled. The launching
 * thread carries a step out: copies and kernels of the prefill, one launch of the graph for the number of requests that
 * decode, a copy of the tokens to the host and a wait for it. Requests, phases, steps with their members, tokens and
 * hand-overs between the threads are marked.
 *
 * Prints what it did as one JSON object; times are CLOCK_MONOTONIC. On a real GPU it is the same: compile it with -lcuda.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fencepath_mark.h>

#include "spin.h"

enum { MAX_REQUESTS = 1000, MAX_BATCH = 32, PROMPT_BYTES = 1 << 20 };

static unsigned long requests = 7, batch = 4, tokens = 5, layers = 4, gap_us = 2000, prefill_us = 1103, decode_us = 31;

struct request {
	pthread_t thread;
	char id[32];
	uint64_t mark, begin_ns, first_token_ns, end_ns;
	unsigned long number, tokens;
	bool prefilled, finished;
	struct request *next;
};

/* One step: what the scheduler gives the launching thread. */
struct plan {
	unsigned long number, prefills, decodes;
	struct request *members[MAX_BATCH]; /* those that decode first */
	bool ready, last;
};

static struct request all[MAX_REQUESTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct request *waiting, **waiting_end = &waiting;
static struct plan plan;
static unsigned long finished_requests, kernel_launches, graph_launches;

static CUcontext context;
static CUfunction prefill_attention, decode_gemm;
static CUstream compute, side, copies;
static CUevent forked, joined, copied, done;
static CUgraphExec decode_graphs[MAX_BATCH + 1];
static CUdeviceptr prompt, answer;
static void *host_prompt, *host_answer;
static char device_name[64];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void check(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "%s failed with %d\n", what, (int)result);
		exit(1);
	}
}
#define CHECK(call) check(call, #call)

static uint64_t handover_of(const struct request *request, unsigned step)
{
	return request->number << 32 | step;
}

/* The device. */

static void launch(CUfunction kernel, CUstream stream, uint64_t ns)
{
	void *params[] = {&ns};

	CHECK(cuLaunchKernel(kernel, 7, 5, 3, 64, 1, 1, 0, stream, params, NULL));
	kernel_launches++;
}

/* Decoding: in each layer two kernels side by side, and one after them. */
static CUgraphExec capture_decode(unsigned long size)
{
	CUgraphExec exec;
	CUgraph graph;

	CHECK(cuStreamBeginCapture(compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (unsigned long layer = 0; layer < layers; layer++) {
		CHECK(cuEventRecord(forked, compute));
		CHECK(cuStreamWaitEvent(side, forked, 0));
		launch(decode_gemm, compute, decode_us * 1000);
		launch(decode_gemm, side, decode_us * 500 + size * 100);
		CHECK(cuEventRecord(joined, side));
		CHECK(cuStreamWaitEvent(compute, joined, 0));
		launch(decode_gemm, compute, decode_us * 1000);
	}
	CHECK(cuStreamEndCapture(compute, &graph));
	CHECK(cuGraphInstantiate(&exec, graph, 0));
	CHECK(cuGraphDestroy(graph));
	return exec;
}

static void start_device(void)
{
	static const char ptx[] = SPIN_HEAD SPIN_ENTRY("prefill_attention") SPIN_ENTRY("decode_gemm");
	CUmodule module;
	CUdevice device;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetName(device_name, sizeof(device_name), device));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuModuleGetFunction(&prefill_attention, module, "prefill_attention"));
	CHECK(cuModuleGetFunction(&decode_gemm, module, "decode_gemm"));
	CHECK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreateWithPriority(&copies, CU_STREAM_NON_BLOCKING, -1));
	CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	CHECK(cuMemAlloc(&prompt, PROMPT_BYTES));
	CHECK(cuMemAlloc(&answer, 4096));
	CHECK(cuMemHostAlloc(&host_prompt, PROMPT_BYTES, 0));
	CHECK(cuMemHostAlloc(&host_answer, 4096, 0));
	for (unsigned long size = 1; size <= batch; size++)
		decode_graphs[size] = capture_decode(size);
	kernel_launches = 0; /* those were captured */
}

static void stop_device(void)
{
	CUevent events[] = {forked, joined, copied, done};
	CUstream streams[] = {compute, side, copies};

	CHECK(cuCtxSynchronize());
	for (unsigned long size = 1; size <= batch; size++)
		CHECK(cuGraphExecDestroy(decode_graphs[size]));
	for (int i = 0; i < 4; i++)
		CHECK(cuEventDestroy(events[i]));
	for (int i = 0; i < 3; i++)
		CHECK(cuStreamDestroy(streams[i]));
	CHECK(cuMemFree(prompt));
	CHECK(cuMemFree(answer));
	CHECK(cuMemFreeHost(host_prompt));
	CHECK(cuMemFreeHost(host_answer));
	CHECK(cuDevicePrimaryCtxRelease(0));
}

/* The launching thread. */

static void prefill(void)
{
	CHECK(cuMemcpyHtoDAsync(prompt, host_prompt, PROMPT_BYTES, copies));
	CHECK(cuEventRecord(copied, copies));
	CHECK(cuStreamWaitEvent(compute, copied, 0));
	for (unsigned long layer = 0; layer < layers; layer++)
		launch(prefill_attention, compute, prefill_us * 1000);
}

static void begin_step(const struct plan *step)
{
	struct fencepath_member members[MAX_BATCH];
	unsigned long count = step->decodes + step->prefills;

	memset(members, 0, sizeof(members));
	for (unsigned long i = 0; i < count; i++) {
		const struct request *request = step->members[i];

		members[i].request = request->mark;
		members[i].tokens = request->prefilled ? 1 : 101 + 2 * (uint32_t)request->number;
		members[i].phase = request->prefilled ? FENCEPATH_PHASE_DECODE : FENCEPATH_PHASE_PREFILL;
		fencepath_receive(handover_of(request, (unsigned)step->number), request->mark);
		if (!request->prefilled) {
			fencepath_phase_end(request->mark, FENCEPATH_PHASE_QUEUE);
			fencepath_phase_begin(request->mark, FENCEPATH_PHASE_PREFILL);
		}
	}
	fencepath_step_begin(step->number, members, count);
}

static void give_token(struct request *request)
{
	fencepath_token(request->mark, (uint32_t)++request->tokens);
	if (!request->prefilled) {
		request->first_token_ns = now_ns();
		fencepath_phase_end(request->mark, FENCEPATH_PHASE_PREFILL);
		fencepath_phase_begin(request->mark, FENCEPATH_PHASE_DECODE);
		request->prefilled = true;
	}
}

static void carry_out(const struct plan *step)
{
	unsigned long count = step->decodes + step->prefills;

	begin_step(step);
	for (unsigned long i = 0; i < step->prefills; i++)
		prefill();
	if (step->decodes) {
		CHECK(cuGraphLaunch(decode_graphs[step->decodes], compute));
		graph_launches++;
	}
	CHECK(cuMemcpyDtoHAsync(host_answer, answer, 4 * count, compute));
	CHECK(cuEventRecord(done, compute));
	CHECK(cuEventSynchronize(done));
	for (unsigned long i = 0; i < count; i++)
		give_token(step->members[i]);
	fencepath_step_end(step->number);
}

static void *launch_all(void *unused)
{
	CHECK(cuCtxSetCurrent(context));
	for (;;) {
		struct plan step;

		pthread_mutex_lock(&lock);
		while (!plan.ready)
			pthread_cond_wait(&changed, &lock);
		step = plan;
		pthread_mutex_unlock(&lock);
		if (step.last)
			return unused;
		carry_out(&step);
		pthread_mutex_lock(&lock);
		plan.ready = false;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
}

/* The scheduler. The lock is held. */

static void retire(void)
{
	unsigned long kept = 0, count = plan.decodes + plan.prefills;

	for (unsigned long i = 0; i < count; i++) {
		struct request *request = plan.members[i];

		if (request->tokens < tokens) {
			plan.members[kept++] = request;
			continue;
		}
		fencepath_phase_end(request->mark, FENCEPATH_PHASE_DECODE);
		fencepath_send(handover_of(request, 0), request->mark);
		request->finished = true;
		finished_requests++;
	}
	plan.decodes = kept;
	plan.prefills = 0;
	pthread_cond_broadcast(&changed);
}

static void admit(void)
{
	while (waiting && plan.decodes + plan.prefills < batch) {
		struct request *request = waiting;

		waiting = request->next;
		if (!waiting)
			waiting_end = &waiting;
		fencepath_receive(handover_of(request, UINT32_MAX), request->mark);
		plan.members[plan.decodes + plan.prefills++] = request;
	}
}

static void *schedule_all(void *unused)
{
	pthread_mutex_lock(&lock);
	while (finished_requests < requests) {
		while (!waiting && !plan.decodes)
			pthread_cond_wait(&changed, &lock);
		admit();
		plan.number++;
		for (unsigned long i = 0; i < plan.decodes + plan.prefills; i++)
			fencepath_send(handover_of(plan.members[i], (unsigned)plan.number), plan.members[i]->mark);
		plan.ready = true;
		pthread_cond_broadcast(&changed);
		while (plan.ready)
			pthread_cond_wait(&changed, &lock);
		retire();
	}
	plan.ready = plan.last = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return unused;
}

/* The handlers. */

static void *handle(void *argument)
{
	struct request *request = argument;

	request->begin_ns = now_ns();
	request->mark = fencepath_request_begin(request->id, NULL, NULL, 0);
	fencepath_bind_thread(request->mark);
	fencepath_phase_begin(request->mark, FENCEPATH_PHASE_QUEUE);
	fencepath_send(handover_of(request, UINT32_MAX), request->mark);
	pthread_mutex_lock(&lock);
	*waiting_end = request;
	waiting_end = &request->next;
	pthread_cond_broadcast(&changed);
	while (!request->finished)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	fencepath_receive(handover_of(request, 0), request->mark);
	fencepath_unbind_thread(request->mark);
	fencepath_request_end(request->mark);
	request->end_ns = now_ns();
	return NULL;
}

static void serve(void)
{
	const struct timespec gap = {.tv_sec = (time_t)(gap_us / 1000000), .tv_nsec = (long)(gap_us % 1000000 * 1000)};
	pthread_t scheduler, launcher;

	pthread_create(&scheduler, NULL, schedule_all, NULL);
	pthread_setname_np(scheduler, "scheduler");
	pthread_create(&launcher, NULL, launch_all, NULL);
	pthread_setname_np(launcher, "launcher");
	for (unsigned long i = 0; i < requests; i++) {
		all[i].number = i + 1;
		snprintf(all[i].id, sizeof(all[i].id), "req-%lu", i + 1);
		pthread_create(&all[i].thread, NULL, handle, &all[i]);
		nanosleep(&gap, NULL);
	}
	for (unsigned long i = 0; i < requests; i++)
		pthread_join(all[i].thread, NULL);
	pthread_join(scheduler, NULL);
	pthread_join(launcher, NULL);
}

static void report(void)
{
	printf("{\"device\":\"%s\",\"steps\":%lu,\"kernel_launches\":%lu,\"graph_launches\":%lu,\"requests\":[", device_name,
	       plan.number, kernel_launches, graph_launches);
	for (unsigned long i = 0; i < requests; i++)
		printf("%s{\"id\":\"%s\",\"tokens\":%lu,\"begin_ns\":%llu,\"first_token_ns\":%llu,\"end_ns\":%llu}",
		       i ? "," : "", all[i].id, all[i].tokens, (unsigned long long)all[i].begin_ns,
		       (unsigned long long)all[i].first_token_ns, (unsigned long long)all[i].end_ns);
	printf("]}\n");
}

static const struct {
	const char *name;
	unsigned long *value;
	const char *text;
} settings[] = {
	{"requests", &requests, "how many requests"},	       {"batch", &batch, "how many run at once"},
	{"tokens", &tokens, "tokens of each answer"},	       {"layers", &layers, "of the model that is not there"},
	{"gap-us", &gap_us, "time between arrivals"},	       {"prefill-us", &prefill_us, "duration of a kernel"},
	{"decode-us", &decode_us, "duration of a kernel"},
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static void parse(int argc, char **argv)
{
	struct option options[SETTINGS + 1] = {0};
	int option;

	for (int i = 0; i < SETTINGS; i++)
		options[i] = (struct option){settings[i].name, required_argument, NULL, i};
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0 && option < SETTINGS)
		*settings[option].value = strtoul(optarg, NULL, 10);
	if (option < 0 && optind == argc && requests <= MAX_REQUESTS && batch && batch <= MAX_BATCH && tokens)
		return;
	fprintf(stderr, "usage: %s", argv[0]);
	for (int i = 0; i < SETTINGS; i++)
		fprintf(stderr, "\n  --%s N  %s (%lu)", settings[i].name, settings[i].text, *settings[i].value);
	fprintf(stderr, "\n");
	exit(2);
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	start_device();
	serve();
	stop_device();
	report();
	return 0;
}
