/* A library that is preloaded after the launcher's libraries. It prints the calls of a process that
 * sleep for 500 ms or more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LONG_NS 500000000LL

static void note(const char *call, long long ns)
{
	if (ns >= LONG_NS)
		fprintf(stderr, "slept: %s of %lld ms\n", call, ns / 1000000);
}

unsigned sleep(unsigned seconds)
{
	struct timespec t = {.tv_sec = seconds};
	return (unsigned)nanosleep(&t, NULL);
}

int usleep(useconds_t us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L};
	return nanosleep(&t, NULL);
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
	return clock_nanosleep(CLOCK_REALTIME, 0, t, left) == 0 ? 0 : -1;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *left)
{
	int (*next)(clockid_t, int, const struct timespec *, struct timespec *);
	void *symbol = dlsym(RTLD_NEXT, "clock_nanosleep");
	memcpy(&next, &symbol, sizeof next);
	if ((flags & TIMER_ABSTIME) == 0)
		note("nanosleep", t->tv_sec * 1000000000LL + t->tv_nsec);
	return next(clock, flags, t, left);
}
