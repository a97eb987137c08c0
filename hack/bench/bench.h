// bench.h: functions that the programs of this folder share.
#ifndef OUTRIGGER_BENCH_H
#define OUTRIGGER_BENCH_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// die prints the program, the step that failed and errno, and exits with 1.
static inline void die(const char *what) {
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline double now_us(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

// ascending orders doubles for qsort.
static inline int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

#endif
