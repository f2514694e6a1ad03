// SPDX-License-Identifier: Apache-2.0
/* Prints everything that a process inherits from whoever started it. One fact a line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

static void print_text(const char *title, const char *text)
{
	printf("%s ", title);
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			printf("\\x%02x", (unsigned char)*text);
		else
			putchar(*text);
	putchar('\n');
}

static void print_file(const char *path, int size)
{
	char text[4096];
	int fd = open(path, O_RDONLY), length = fd < 0 ? -1 : (int)read(fd, text, sizeof text - 1);

	text[length < 0 ? 0 : length] = 0;
	print_text(path, size ? text : "");
	if (fd >= 0)
		close(fd);
}

static void print_link(const char *title, const char *path)
{
	char text[4096];
	int length = (int)readlink(path, text, sizeof text - 1);

	text[length < 0 ? 0 : length] = 0;
	print_text(title, text);
}

/* Before anything else is opened. */
static void print_open_files(void)
{
	int fd;

	for (fd = 0; fd < 64; fd++) {
		char path[64], title[64];
		int flags = fcntl(fd, F_GETFL);

		if (flags < 0)
			continue;
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		snprintf(title, sizeof title, "fd %d flags %o fdflags %d tty %d at %ld", fd, flags, fcntl(fd, F_GETFD), isatty(fd),
			 (long)lseek(fd, 0, SEEK_CUR));
		print_link(title, path);
	}
}

static void print_signals(void)
{
	sigset_t blocked, pending;
	int number;

	sigprocmask(SIG_BLOCK, NULL, &blocked);
	sigpending(&pending);
	for (number = 1; number < NSIG; number++) {
		struct sigaction action;

		if (sigaction(number, NULL, &action))
			continue;
		printf("signal %d %s blocked %d pending %d\n", number,
		       action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "handled",
		       sigismember(&blocked, number), sigismember(&pending, number));
	}
}

static void print_limits(void)
{
	int which;

	for (which = 0; which < RLIM_NLIMITS; which++) {
		struct rlimit limit;

		if (!getrlimit(which, &limit))
			printf("limit %d %llu %llu\n", which, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
	}
}

static void print_terminal(void)
{
	struct winsize size = {0};
	struct termios modes = {0};
	int fd = open("/dev/tty", O_RDWR), i;

	printf("controlling terminal %d\n", fd >= 0);
	if (fd < 0)
		return;
	ioctl(fd, TIOCGWINSZ, &size);
	tcgetattr(fd, &modes);
	printf("foreground %d size %dx%d modes %o %o %o %o ", tcgetpgrp(fd) == getpgrp(), size.ws_row, size.ws_col, modes.c_iflag,
	       modes.c_oflag, modes.c_cflag, modes.c_lflag);
	for (i = 0; i < NCCS; i++)
		printf("%02x", modes.c_cc[i]);
	putchar('\n');
	close(fd);
}

static void print_status(void)
{
	static const char *const wanted[] = {"Name",	   "Umask",	  "Uid",	"Gid",	  "Groups",  "CapInh",	   "CapPrm",
					     "CapEff",	   "CapBnd",	  "CapAmb",	"Seccomp", "NoNewPrivs", "Threads",  "SigBlk",
					     "SigIgn",	   "SigCgt",	  "SigPnd",	"ShdPnd", "Cpus_allowed", "Mems_allowed"};
	char line[4096];
	FILE *file = fopen("/proc/self/status", "r");

	while (file && fgets(line, sizeof line, file)) {
		size_t i;

		for (i = 0; i < sizeof wanted / sizeof *wanted; i++)
			if (!strncmp(line, wanted[i], strlen(wanted[i])) && line[strlen(wanted[i])] == ':')
				print_text("status", line);
	}
	if (file)
		fclose(file);
}

static void print_namespaces(void)
{
	static const char *const names[] = {"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "user", "uts"};
	size_t i;

	for (i = 0; i < sizeof names / sizeof *names; i++) {
		char path[64];

		snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
		print_link("namespace", path);
	}
}

int main(int argc, char **argv)
{
	char text[4096], **variable;
	int i, subreaper = 0, death = 0;
	mode_t mask = umask(0);
	ssize_t length;

	umask(mask);
	print_open_files();
	for (i = 0; i < argc; i++)
		print_text("argument", argv[i]);
	for (variable = environ; *variable; variable++)
		if (strncmp(*variable, "_=", 2)) /* the shell's own, the path of what it started */
			print_text("variable", *variable);
	print_text("folder", getcwd(text, sizeof text) ? text : strerror(errno));
	printf("umask %o\n", mask);
	print_signals();
	print_limits();
	print_terminal();
	print_status();
	print_namespaces();
	print_file("/proc/self/oom_score_adj", 1);
	print_file("/proc/self/timerslack_ns", 1);
	print_file("/proc/self/coredump_filter", 1);
	print_file("/proc/self/cgroup", 1);
	print_file("/proc/self/task/self/children", 1);
	print_link("executable", "/proc/self/exe");
	prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
	prctl(PR_GET_PDEATHSIG, &death);
	printf("subreaper %d death signal %d dumpable %d\n", subreaper, death, prctl(PR_GET_DUMPABLE));
	printf("nice %d policy %d personality %x secure %lu\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
	       (unsigned)personality(0xffffffff), getauxval(AT_SECURE));
	printf("session is shell's %d group is shell's %d\n", getsid(0) == getsid(getppid()), getpgrp() == getpgid(getppid()));
	fflush(stdout);
	while ((length = read(0, text, sizeof text - 1)) > 0) {
		text[length] = 0;
		print_text("input", text);
	}
	return 7;
}
