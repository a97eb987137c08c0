// line.c: a bare ping-pong of one cache line between two processes, the yardstick
// of `outrigger bench self`.
//
// Two processes and 128 bytes of shared memory: 60 bytes and a sequence word, as in
// a ring of LAYOUT.md, written by one side and awaited by the other, which answers
// in a line of its own. Both poll without a pause and are pinned, each to a
// processor of its own. A rank that sends to itself through its sidecar cannot be
// faster than one such round trip: its request crosses once, and the completion
// returns once. On virtual machines this alone varies from 0.15 to 2 us.
//
// Method: 100,000 round trips as warm-up, then R repetitions of N; a repetition's
// figure is its time / N, the round trip, since that is what `self` is to be compared
// with. Printed: the median and the minimum of the repetitions, in microseconds, as
// one JSON line.
//
// Usage: line [repetitions]     default 7
// Exit status: 0; 1 when something failed, or when there is only one processor.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { WARM_UP = 100000, TRIPS = 300000, REPS_MAX = 101, LIMIT_SECONDS = 60 };

struct line {
	_Alignas(64) atomic_uint sequence;
	char payload[60];
};

// pin puts this process on the n-th processor that it may use.
static void pin(int n) {
	cpu_set_t all, one;
	if (sched_getaffinity(0, sizeof all, &all) != 0)
		die("ask for the processors");
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || n-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof one, &one) != 0)
			die("pin");
		return;
	}
	fprintf(stderr, "line: two processors are needed, so that each side can poll\n");
	exit(1);
}

static void publish(struct line *l, unsigned n, const char *payload) {
	memcpy(l->payload, payload, sizeof l->payload);
	atomic_store_explicit(&l->sequence, n, memory_order_release);
}

static void await(struct line *l, unsigned n, char *payload) {
	while (atomic_load_explicit(&l->sequence, memory_order_acquire) != n) {
	}
	memcpy(payload, l->payload, sizeof l->payload);
}

// trips makes n round trips from the side that begins, after `from` earlier ones.
static void trips(struct line *there, struct line *back, unsigned from, unsigned n) {
	char payload[60] = {1};
	for (unsigned i = from + 1; i <= from + n; i++) {
		publish(there, i, payload);
		await(back, i, payload);
	}
}

int main(int argc, char **argv) {
	char *end = "";
	long reps = argc > 1 ? strtol(argv[1], &end, 10) : 7;
	if (*end != '\0' || reps < 1 || reps > REPS_MAX) {
		fprintf(stderr, "line: the repetitions must be a number from 1 to %d\n", REPS_MAX);
		return 2;
	}
	// A page each: neighbouring lines are fetched together.
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("share memory");
	struct line *there = (struct line *)memory, *back = (struct line *)(memory + 4096);
	pid_t self = getpid(), other = fork();
	if (other < 0)
		die("fork");
	alarm(LIMIT_SECONDS);
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != self)
			return 1;
		pin(1);
		char payload[60];
		for (unsigned i = 1; i <= WARM_UP + (unsigned)reps * TRIPS; i++) {
			await(there, i, payload);
			publish(back, i, payload);
		}
		return 0;
	}
	pin(0);
	double us[REPS_MAX];
	trips(there, back, 0, WARM_UP);
	for (long r = 0; r < reps; r++) {
		double start = now_us();
		trips(there, back, WARM_UP + (unsigned)r * TRIPS, TRIPS);
		us[r] = (now_us() - start) / TRIPS;
	}
	qsort(us, (size_t)reps, sizeof us[0], ascending);
	printf("{\"peer\":\"line\",\"test\":\"self\",\"bytes\":8,\"us\":%.3f,\"us_min\":%.3f}\n", us[reps / 2], us[0]);
	int status;
	if (waitpid(other, &status, 0) < 0)
		die("wait");
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
