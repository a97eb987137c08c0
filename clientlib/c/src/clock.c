/* The monotonic clock. The Go client uses package time. */
#include <time.h>

#include "session.h"

uint64_t or_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
