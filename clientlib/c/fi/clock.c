/* Clocks, and a short sleep. */
#include <time.h>

#include "provider.h"

/* reading returns the time of a clock in ns. */
static uint64_t reading(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t nanoseconds(void) { return reading(CLOCK_MONOTONIC); }
uint64_t processor_time(void) { return reading(CLOCK_THREAD_CPUTIME_ID); }

void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }
