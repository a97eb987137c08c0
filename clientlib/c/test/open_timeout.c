/*
 * Opens a session with the socket of the environment and a clock that runs 30 times as fast, so
 * that outrigger_open times out after 1 s instead of 30 s, also in poll. Prints the time that the call took by
 * the machine's clock, in ms, and its error.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "outrigger.h"

#define FASTER 30

/* clock_gettime replaces the C library's in the client library, because the linker finds it
 * first. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
	if (syscall(SYS_clock_gettime, clock, t) != 0)
		return -1;
	unsigned long long ns = ((unsigned long long)t->tv_sec * 1000000000u + (unsigned long long)t->tv_nsec) * FASTER;
	t->tv_sec = (time_t)(ns / 1000000000u);
	t->tv_nsec = (long)(ns % 1000000000u);
	return 0;
}

/* poll replaces the C library's in the same way. */
int poll(struct pollfd *files, nfds_t count, int timeout)
{
	long long ns = timeout * 1000000LL / FASTER;
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	return (int)syscall(SYS_ppoll, files, count, timeout < 0 ? NULL : &t, NULL, 8);
}

static long long milliseconds(void)
{
	struct timespec t;
	if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) != 0)
		return -1;
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int main(void)
{
	outrigger *s;
	char why[256] = "";
	long long begun = milliseconds();
	if (outrigger_open(&(struct outrigger_config){0}, &s, why, sizeof why) == OUTRIGGER_OK) {
		(void)outrigger_close(s);
		return 2;
	}
	printf("%lld %s\n", milliseconds() - begun, why);
	return 0;
}
