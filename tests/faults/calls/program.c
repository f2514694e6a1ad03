// SPDX-License-Identifier: Apache-2.0
/*
 * Calls the library under every fault that a program can bring about, and writes down what it did:
 *
 *     LABEL PID TID FUNCTION COUNT BEGIN_NS END_NS
 *
 * a line to the file TRUTH, CLOCK_MONOTONIC around the calls; END_NS is 0 for one that did not return.
 * Usage: program TRUTH LIBRARY MODE [ARGUMENT...]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fencepath_mark.h>

struct act {
	void (*run)(void *argument);
	void *argument;
};

static struct {
	int (*allocate)(uint64_t *, size_t);
	int (*release)(uint64_t);
	int (*wait)(const struct act *);
	int (*outer)(const struct act *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
} cuda;

static char *own_path, *truth_path, *library_path;
static int truth_fd = -1;

/* Words that run this program again, in the mode plain: so many calls. */
#define AGAIN(label, count) {own_path, truth_path, library_path, "plain", label, count, NULL}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(99);
}

static void say(const char *label, const char *function, unsigned long count, uint64_t begin_ns, uint64_t end_ns)
{
	dprintf(truth_fd, "%s %d %ld %s %lu %" PRIu64 " %" PRIu64 "\n", label, getpid(), syscall(SYS_gettid), function, count,
		begin_ns, end_ns);
}

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		_exit(98);
	}
	*(void **)&cuda.allocate = dlsym(library, "cuMemAlloc_v2");
	*(void **)&cuda.release = dlsym(library, "cuMemFree_v2");
	*(void **)&cuda.wait = dlsym(library, "cuStreamSynchronize");
	*(void **)&cuda.outer = dlsym(library, "cuEventSynchronize");
	*(void **)&cuda.launch = dlsym(library, "cuLaunchKernel");
	return library;
}

/* So many short calls, told as one line. */
static void calls(const char *label, unsigned long count)
{
	uint64_t address, begin_ns = now_ns();

	for (unsigned long i = 0; i < count; i++)
		cuda.allocate(&address, 1);
	say(label, "cuMemAlloc_v2", count, begin_ns, now_ns());
}

static void wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid");
	printf("child %d %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	fflush(stdout);
}

/* Run a mode in a child and print how it ended. */
static void in_child(int (*run)(void))
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (!pid)
		exit(run());
	wait_for(pid);
}

/* Processes. */

static int family(void)
{
	calls("parent", 7);
	pid_t child = fork();
	if (!child) {
		calls("child", 11);
		pid_t grandchild = fork();
		if (!grandchild) {
			calls("grandchild", 13);
			_exit(3);
		}
		wait_for(grandchild);
		_exit(2);
	}
	wait_for(child);
	calls("parent", 17);
	return 1;
}

static int spawns(void)
{
	char *spawned[] = AGAIN("spawned", "19"), *vforked[] = AGAIN("vforked", "23");
	extern char **environ;
	pid_t pid;

	if (posix_spawn(&pid, own_path, NULL, NULL, spawned, environ))
		fail("posix_spawn");
	wait_for(pid);
	pid = vfork();
	if (!pid) {
		execv(own_path, vforked);
		_exit(97);
	}
	wait_for(pid);
	calls("spawner", 29);
	return 0;
}

static int becomes(void)
{
	char *next[] = AGAIN("leader_after", "31");

	calls("leader_before", 5);
	execv(own_path, next);
	return fail("execv");
}

static void become(void *unused)
{
	char *next[] = AGAIN("thread_after", "37");

	execv(own_path, next);
	fail("execv");
}

static void *becoming_thread(void *unused)
{
	const struct act act = {become, NULL};

	calls("thread_before", 3);
	say("thread_before", "cuStreamSynchronize", 1, now_ns(), 0);
	cuda.wait(&act);
	return NULL;
}

/* execve by a thread that is not the leader, from inside a call. */
static int thread_becomes(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, becoming_thread, NULL);
	pthread_join(thread, NULL);
	return fail("execve returned");
}

/* Two processes with one number, one after the other. */
static int reuse(void)
{
	pid_t first = fork();

	if (!first) {
		calls("first_life", 41);
		_exit(0);
	}
	wait_for(first);
	sleep_ms(50);
	struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&first, .set_tid_size = 1};
	long second = syscall(SYS_clone3, &args, sizeof(args));
	if (second < 0)
		fail("clone3");
	if (!second) {
		calls("second_life", 43);
		_exit(0);
	}
	wait_for((pid_t)second);
	return second != first;
}

/* Threads and jumps. */

static void end_thread(void *unused) { pthread_exit(NULL); }

static void *ending_thread(void *unused)
{
	const struct act act = {end_thread, NULL};

	calls("ending", 3);
	say("ending", "cuStreamSynchronize", 1, now_ns(), 0);
	cuda.wait(&act);
	return NULL;
}

static int ends_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, ending_thread, NULL);
	pthread_join(thread, NULL);
	calls("ending", 5);
	return 4;
}

static int inside[2];

static void sleep_inside(void *unused)
{
	char byte = 1;

	if (write(inside[1], &byte, 1) == 1)
		pause();
}

static void *sleeping_thread(void *label)
{
	const struct act act = {sleep_inside, NULL};

	say(label, "cuStreamSynchronize", 1, now_ns(), 0);
	cuda.wait(&act);
	return NULL;
}

static void start_sleeper(const char *label)
{
	pthread_t thread;
	char byte;

	if (pipe(inside) || pthread_create(&thread, NULL, sleeping_thread, (void *)(uintptr_t)label))
		fail("sleeper");
	if (read(inside[0], &byte, 1) != 1)
		fail("read");
}

static int exits_around(void)
{
	start_sleeper("exit_around");
	exit(23);
}

static jmp_buf leap_to;

static void leap(void *unused) { longjmp(leap_to, 1); }

static int leaps(void)
{
	const struct act act = {leap, NULL};

	for (volatile int i = 0; i < 3; i++) {
		if (setjmp(leap_to))
			continue;
		say("leap", "cuStreamSynchronize", 1, now_ns(), 0);
		cuda.wait(&act);
	}
	calls("leap", 7);
	/* They are found when their thread is seen above them. */
	sleep_ms(1500);
	calls("leap", 11);
	return 0;
}

static void recurse(void *depth)
{
	const struct act act = {recurse, (void *)((uintptr_t)depth - 1)};

	if (depth)
		cuda.wait(&act);
}

static int recursion(void)
{
	uint64_t begin_ns = now_ns();

	for (int i = 0; i < 3; i++)
		recurse((void *)(uintptr_t)13);
	say("recursion", "cuStreamSynchronize", 39, begin_ns, now_ns());
	return 0;
}

static void three_calls(void *unused) { calls("nested", 3); }

static int nested(void)
{
	const struct act act = {three_calls, NULL};
	uint64_t begin_ns = now_ns();

	for (int i = 0; i < 5; i++)
		cuda.outer(&act);
	say("nested", "cuEventSynchronize", 5, begin_ns, now_ns());
	return 0;
}

#define THREADS 200

static pthread_barrier_t together;

static void *one_of_many(void *unused)
{
	pthread_barrier_wait(&together);
	calls("many", 53);
	return NULL;
}

static int many(void)
{
	pthread_t threads[THREADS];

	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, one_of_many, NULL))
			fail("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static int suite(void)
{
	load(library_path);
	in_child(family);
	in_child(spawns);
	in_child(becomes);
	in_child(thread_becomes);
	in_child(reuse);
	in_child(ends_thread);
	in_child(exits_around);
	in_child(leaps);
	in_child(recursion);
	in_child(nested);
	in_child(many);
	return 41;
}

/* Calls from the moment on at which the library is there. */
static int first(long ms)
{
	uint64_t begin_ns = now_ns(), end_ns = begin_ns + (uint64_t)ms * 1000000;
	size_t room = 1 << 20, count = 0;
	uint64_t *times = calloc(room, sizeof(*times)), address;

	load(library_path);
	for (uint64_t at = now_ns(); at < end_ns && count < room; at = now_ns()) {
		times[count++] = at;
		cuda.allocate(&address, 1);
		while (now_ns() < at + 20000)
			;
	}
	FILE *out = fdopen(dup(truth_fd), "a");
	for (size_t i = 0; i < count; i++)
		fprintf(out, "first %d %d cuMemAlloc_v2 1 %" PRIu64 " %" PRIu64 "\n", getpid(), getpid(), times[i], times[i]);
	fclose(out);
	return 5;
}

static unsigned long storm_calls, storm_each_ms;

/* So many launches, in bursts if there is to be a rate. */
static void *storming(void *unused)
{
	uint64_t begin_ns;

	pthread_barrier_wait(&together);
	begin_ns = now_ns();
	for (unsigned long i = 0; i < storm_calls; i++) {
		if (storm_each_ms && i % storm_each_ms == 0)
			while (now_ns() < begin_ns + i / storm_each_ms * 1000000)
				usleep(100);
		cuda.launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	}
	say("storm", "cuLaunchKernel", storm_calls, begin_ns, now_ns());
	begin_ns = now_ns();
	for (unsigned long i = 0; i < storm_calls / 8; i++)
		cuda.release(2);
	say("storm", "cuMemFree_v2", storm_calls / 8, begin_ns, now_ns());
	return NULL;
}

static int storm(int threads, unsigned long each, unsigned long each_ms)
{
	pthread_t ids[64];

	load(library_path);
	storm_calls = each, storm_each_ms = each_ms;
	pthread_barrier_init(&together, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++)
		pthread_create(&ids[i], NULL, storming, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}

/* A request whose third call never returns. */
static int hang(void)
{
	load(library_path);
	uint64_t request = fencepath_request_begin("hanging", NULL, NULL, 0);

	fencepath_bind_thread(request);
	calls("hang", 2);
	puts("hanging");
	fflush(stdout);
	inside[1] = open("/dev/null", O_WRONLY);
	sleeping_thread("hang");
	return 0;
}

/* The command ends at once; what it leaves behind is inside a call, and comes back when the file is there. */
static const char *until_file;

static void until_it_is_there(void *unused)
{
	while (access(until_file, F_OK))
		sleep_ms(10);
}

static int daemonize(const char *file)
{
	const struct act act = {until_it_is_there, NULL};

	load(library_path);
	until_file = file;
	if (pipe(inside))
		fail("pipe");
	pid_t middle = fork();
	if (!middle) {
		setsid();
		if (fork())
			_exit(0);
		calls("daemon", 47);
		say("daemon", "cuStreamSynchronize", 1, now_ns(), 0);
		if (write(inside[1], "", 1) != 1)
			fail("write");
		close(1), close(2);
		cuda.wait(&act);
		unlink(file);
		_exit(0);
	}
	wait_for(middle);
	char byte;
	if (read(inside[0], &byte, 1) != 1)
		fail("read");
	calls("command", 3);
	sleep_ms(100);
	return 6;
}

/* Filters. */

static void set_filter(unsigned number, unsigned action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		fail("seccomp");
}

#define URETPROBE 335

static int killed_if_seen(void)
{
	set_filter(URETPROBE, SECCOMP_RET_KILL_PROCESS);
	calls("kill_filter", 59);
	return 0;
}

static int refused_if_seen(void)
{
	set_filter(URETPROBE, SECCOMP_RET_ERRNO | EPERM);
	calls("errno_filter", 61);
	return 0;
}

static int strict(void)
{
	uint64_t address, begin_ns = now_ns();

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		fail("strict");
	for (int i = 0; i < 67; i++)
		cuda.allocate(&address, 1);
	char line[128];
	int size = sprintf(line, "strict 0 0 cuMemAlloc_v2 67 %" PRIu64 " 1\n", begin_ns);
	if (write(truth_fd, line, (size_t)size) != size)
		syscall(SYS_exit, 1);
	syscall(SYS_exit, 8);
	return 0;
}

static int silent(void)
{
	set_filter(SYS_prctl, SECCOMP_RET_ERRNO | EPERM);
	calls("silent", 71);
	for (int i = 0; i < 3; i++) {
		uint64_t request = fencepath_request_begin("silent", NULL, NULL, 0);

		fencepath_request_end(request);
	}
	return 0;
}

static int marked(void)
{
	uint64_t request = fencepath_request_begin("heard", NULL, NULL, 0);

	fencepath_bind_thread(request);
	calls("heard", 73);
	fencepath_request_end(request);
	return 0;
}

static int filters(void)
{
	load(library_path);
	in_child(killed_if_seen);
	in_child(refused_if_seen);
	in_child(strict);
	in_child(silent);
	in_child(marked);
	return 9;
}

/* Wait for a line, then call: what is recorded by its number while it runs. */

static void *until_told(void *label)
{
	pthread_barrier_wait(&together);
	calls(label, 79);
	return NULL;
}

static int attended(const char *label, int threads)
{
	pthread_t ids[THREADS];
	char byte;

	load(library_path);
	pthread_barrier_init(&together, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&ids[i], NULL, until_told, (void *)(uintptr_t)label);
	printf("ready %s\n", label);
	fflush(stdout);
	if (read(0, &byte, 1) < 0)
		fail("read");
	calls(label, 83);
	pthread_barrier_wait(&together);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}

static bool has_probe(void *function) { return *(volatile unsigned char *)function == 0xcc; }

/* Calls from when the library must have all its probes: a breakpoint is in each function, and some time has passed. */
static int patient(const char *label, unsigned long count, bool with_request)
{
	load(library_path);
	while (!has_probe(*(void **)&cuda.allocate) || !has_probe(*(void **)&cuda.release))
		sleep_ms(5);
	sleep_ms(700);
	uint64_t request = with_request ? fencepath_request_begin(label, NULL, NULL, 0) : 0;
	calls(label, count);
	if (with_request)
		fencepath_request_end(request);
	return 0;
}

/* A library that is in no folder: it is copied into memory and loaded from there. */
static int in_memory(void)
{
	static char path[64], buffer[1 << 16];
	int from = open(library_path, O_RDONLY), to = memfd_create("libcuda.so.1", 0);
	ssize_t size;

	while ((size = read(from, buffer, sizeof(buffer))) > 0)
		if (write(to, buffer, (size_t)size) != size)
			fail("write");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	library_path = path;
	return attended("memory", 0);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 96;
	own_path = argv[0], truth_path = argv[1], library_path = argv[2];
	truth_fd = open(truth_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	const char *mode = argv[3];
	char **arguments = argv + 4;

	if (!strcmp(mode, "suite"))
		return suite();
	if (!strcmp(mode, "filters"))
		return filters();
	if (!strcmp(mode, "hang"))
		return hang();
	if (!strcmp(mode, "memory"))
		return in_memory();
	if (argc >= 5 && !strcmp(mode, "first"))
		return first(atol(arguments[0]));
	if (argc >= 5 && !strcmp(mode, "daemon"))
		return daemonize(arguments[0]);
	if (argc >= 7 && !strcmp(mode, "storm"))
		return storm(atoi(arguments[0]), strtoul(arguments[1], NULL, 10), strtoul(arguments[2], NULL, 10));
	if (argc >= 6 && !strcmp(mode, "attended"))
		return attended(arguments[0], atoi(arguments[1]));
	if (argc >= 6 && !strcmp(mode, "patient"))
		return patient(arguments[0], strtoul(arguments[1], NULL, 10), argc > 6);
	if (argc >= 6 && !strcmp(mode, "plain")) {
		load(library_path);
		calls(arguments[0], strtoul(arguments[1], NULL, 10));
		return 0;
	}
	return 96;
}
