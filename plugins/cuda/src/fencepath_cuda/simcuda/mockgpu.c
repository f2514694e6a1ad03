// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The mock GPU driver as backend: operations are its jobs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sync_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "backend.h"

enum { MAX_GPUS = 4, MAX_DEPENDENCIES = 2, FIRST_RENDER_NODE = 128, LAST_RENDER_NODE = 191 };
#define LONGEST_NS 10000000000ull /* that the driver takes */

/* Requests of DRM (include/uapi/drm/drm.h, which not every machine has) and of the driver (mockgpu.h). */
struct syncobj_create { uint32_t handle, flags; };
struct syncobj_destroy { uint32_t handle, pad; };
struct syncobj_handle { uint32_t handle, flags; int32_t fd; uint32_t pad; };
struct syncobj_wait { uint64_t handles; int64_t timeout_ns; uint32_t count, flags, first_signaled, pad; };
struct submission {
	uint32_t ring, flags, after[MAX_DEPENDENCIES];
	uint64_t after_point[MAX_DEPENDENCIES];
	uint32_t out, pad;
	uint64_t out_point, duration_ns, job, context, seqno;
};

#define SYNCOBJ_CREATE _IOWR('d', 0xBF, struct syncobj_create)
#define SYNCOBJ_DESTROY _IOWR('d', 0xC0, struct syncobj_destroy)
#define SYNCOBJ_HANDLE_TO_FD _IOWR('d', 0xC1, struct syncobj_handle)
#define SYNCOBJ_FD_TO_HANDLE _IOWR('d', 0xC2, struct syncobj_handle)
#define SYNCOBJ_WAIT _IOWR('d', 0xC3, struct syncobj_wait)
#define MOCKGPU_SUBMIT _IOWR('d', 0x40, struct submission)
#define EXPORT_SYNC_FILE 1

struct job {
	unsigned gpu, ring;
	uint32_t syncobj;                 /* holds its finished fence */
	uint64_t number, context, seqno; /* in the driver's truth, and of that fence */
	uint64_t *gathering;             /* numbers of jobs that only gather dependencies */
	size_t gathering_count;
};

bool backend_on;

static const char *wish;
static int files[MAX_GPUS];
static unsigned gpus, rings;

__attribute__((constructor)) static void read_wish(void)
{
	wish = getenv("SIMCUDA_BACKEND");
	backend_on = wish && *wish;
}

static void ask(int fd, unsigned long request, void *argument, const char *what)
{
	while (ioctl(fd, request, argument) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		fprintf(stderr, "simulated CUDA: the mock GPU driver refuses %s: %s\n", what, strerror(errno));
		abort();
	}
}

static uint32_t new_syncobj(int fd)
{
	struct syncobj_create create = {0};

	ask(fd, SYNCOBJ_CREATE, &create, "a syncobj");
	return create.handle;
}

static void destroy_syncobj(int fd, uint32_t handle)
{
	struct syncobj_destroy destroy = {.handle = handle};

	ask(fd, SYNCOBJ_DESTROY, &destroy, "the end of a syncobj");
}

/* The devices. */

static unsigned parameter(const char *name)
{
	char path[64];
	unsigned value = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/module/mockgpu/parameters/%s", name);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%u", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static bool is_gpu(int minor, unsigned gpu)
{
	char path[64], name[16], *device;
	bool same;

	snprintf(path, sizeof(path), "/sys/class/drm/renderD%d/device", minor);
	snprintf(name, sizeof(name), "/mockgpu.%u", gpu);
	device = realpath(path, NULL);
	same = device && strcmp(strrchr(device, '/'), name) == 0;
	free(device);
	return same;
}

static int open_gpu(unsigned gpu)
{
	char path[32];

	for (int minor = FIRST_RENDER_NODE; minor <= LAST_RENDER_NODE; minor++) {
		if (!is_gpu(minor, gpu))
			continue;
		snprintf(path, sizeof(path), "/dev/dri/renderD%d", minor);
		return open(path, O_RDWR | O_CLOEXEC);
	}
	errno = ENODEV;
	return -1;
}

bool backend_open(void)
{
	if (strcmp(wish, "mockgpu")) {
		fprintf(stderr, "simulated CUDA: SIMCUDA_BACKEND wants mockgpu, not '%s'\n", wish);
		return false;
	}
	rings = parameter("rings");
	for (unsigned wanted = parameter("gpus"); gpus < wanted && gpus < MAX_GPUS; gpus++) {
		files[gpus] = open_gpu(gpus);
		if (files[gpus] < 0) {
			fprintf(stderr, "simulated CUDA: cannot open mockgpu.%u: %s\n", gpus, strerror(errno));
			return false;
		}
	}
	if (!gpus || !rings)
		fprintf(stderr, "simulated CUDA: SIMCUDA_BACKEND=mockgpu needs the module mockgpu, which is not loaded\n");
	return gpus && rings;
}

/* Jobs. */

/* A syncobj that has to be signalled before, and whether it is there for one submission only. */
struct dependency {
	uint32_t syncobj;
	bool passing;
};

static struct submission submit_job(const struct job *job, struct dependency *after, size_t count, uint64_t duration_ns,
				    uint32_t out)
{
	struct submission submission = {.ring = job->ring, .out = out, .duration_ns = duration_ns};

	for (size_t i = 0; i < count; i++)
		submission.after[i] = after[i].syncobj;
	ask(files[job->gpu], MOCKGPU_SUBMIT, &submission, "a job");
	for (size_t i = 0; i < count; i++)
		if (after[i].passing)
			destroy_syncobj(files[job->gpu], after[i].syncobj);
	return submission;
}

/* The driver takes two dependencies: of more, two become one, that of an empty job, until two are left. */
static size_t gather(struct job *job, struct dependency *after, size_t count)
{
	size_t most = count;

	if (count > MAX_DEPENDENCIES)
		job->gathering = must(calloc(count, sizeof(*job->gathering)));
	while (count > MAX_DEPENDENCIES) {
		uint32_t out = new_syncobj(files[job->gpu]);

		count--;
		job->gathering[most - count - 1] = submit_job(job, &after[count - 1], 2, 0, out).job;
		job->gathering_count++;
		after[count - 1] = (struct dependency){out, true};
	}
	return count;
}

static struct dependency depend_on(const struct job *before, unsigned gpu)
{
	struct syncobj_handle handle = {.handle = before->syncobj};

	if (before->gpu == gpu)
		return (struct dependency){before->syncobj, false};
	ask(files[before->gpu], SYNCOBJ_HANDLE_TO_FD, &handle, "the export of a syncobj");
	ask(files[gpu], SYNCOBJ_FD_TO_HANDLE, &handle, "the import of a syncobj");
	close(handle.fd);
	return (struct dependency){handle.handle, true};
}

static bool runs_on_host(const struct op *op)
{
	return op->work.kind == HOST_FUNC || op->work.kind == WAIT_VALUE;
}

bool backend_takes(const struct op *op)
{
	for (size_t i = 0; i < op->edge_count; i++) {
		const struct op *before = op->edges[i].op;

		if (!op_done(before) && (!atomic_load(&before->job) || runs_on_host(before)))
			return false;
	}
	return true;
}

void backend_submit(struct op *op)
{
	struct dependency *after = must(calloc(op->edge_count + 1, sizeof(*after)));
	struct job *job = must(calloc(1, sizeof(*job)));
	uint64_t duration_ns = op->work.duration_ns;
	struct submission submission;
	size_t count = 0;

	job->gpu = (unsigned)op->stream->context->device % gpus;
	job->ring = op->lane->number % rings;
	job->syncobj = new_syncobj(files[job->gpu]);
	for (size_t i = 0; i < op->edge_count; i++)
		if (!op_done(op->edges[i].op))
			after[count++] = depend_on(atomic_load(&op->edges[i].op->job), job->gpu);
	count = gather(job, after, count);
	submission = submit_job(job, after, count, duration_ns < LONGEST_NS ? duration_ns : LONGEST_NS, job->syncobj);
	job->number = submission.job;
	job->context = submission.context;
	job->seqno = submission.seqno;
	free(after);
	atomic_store(&op->job, job);
}

bool backend_wait(const struct op *op)
{
	const struct job *job = atomic_load(&op->job);
	struct syncobj_wait wait = {.timeout_ns = INT64_MAX, .count = 1};

	if (!job)
		return false;
	wait.handles = (uintptr_t)&job->syncobj;
	ask(files[job->gpu], SYNCOBJ_WAIT, &wait, "a wait");
	return !runs_on_host(op);
}

uint64_t backend_end_ns(const struct op *op)
{
	const struct job *job = atomic_load(&op->job);
	struct syncobj_handle handle = {.handle = job->syncobj, .flags = EXPORT_SYNC_FILE};
	struct sync_fence_info fence = {0};
	struct sync_file_info info = {.num_fences = 1, .sync_fence_info = (uintptr_t)&fence};

	ask(files[job->gpu], SYNCOBJ_HANDLE_TO_FD, &handle, "a sync_file");
	ask(handle.fd, SYNC_IOC_FILE_INFO, &info, "a fence's time");
	close(handle.fd);
	return fence.timestamp_ns;
}

void backend_write(struct line *line, const struct op *op)
{
	const struct job *job = atomic_load(&op->job);

	line_u64(line, "gpu", job->gpu);
	line_u64(line, "ring", job->ring);
	line_u64(line, "job", job->number);
	line_ids(line, "fence", (const uint64_t[]){job->context, job->seqno}, 2);
	if (job->gathering_count)
		line_ids(line, "gathering", job->gathering, job->gathering_count);
}

void backend_forget(struct op *op)
{
	struct job *job = atomic_load(&op->job);

	if (!job)
		return;
	destroy_syncobj(files[job->gpu], job->syncobj);
	free(job->gathering);
	free(job);
}
