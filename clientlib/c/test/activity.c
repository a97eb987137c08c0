/* Tests the activity that a process reports to its sidecar (src/activity.c), without one. */
#define _GNU_SOURCE /* sched_getcpu, cpu_set_t */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "session.h"

static _Alignas(64) unsigned char control[4096];
static int failures;

static void expect(outrigger *s, const char *when, uint32_t want)
{
	uint32_t is = atomic_load(or_word(s, OR_SEG_OFF_PLACE));
	if (is == want)
		return;
	fprintf(stderr, "activity: %s: %#x, want %#x\n", when, is, want);
	failures++;
}

static uint64_t processor_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void compute(uint64_t ns)
{
	for (uint64_t end = processor_time() + ns; processor_time() < end;)
		;
}

static void poll_once(outrigger *s, unsigned completions)
{
	or_activity_begin_poll(s);
	or_activity_end_poll(s, completions);
}

/* poll_empty polls without completions for ns of CPU time. */
static void poll_empty(outrigger *s, uint64_t ns)
{
	for (uint64_t end = processor_time() + ns; processor_time() < end;)
		poll_once(s, 0);
}

static void *hog(void *stop)
{
	while (!atomic_load((_Atomic int *)stop))
		;
	return NULL;
}

/* be_preempted polls without completions while another thread computes on the same CPU. */
static void be_preempted(outrigger *s)
{
	_Atomic int stop = 0;
	pthread_t other;
	cpu_set_t before, one;
	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof before, &before) == 0) {
		CPU_SET(sched_getcpu(), &one);
		sched_setaffinity(0, sizeof one, &one);
	}
	if (pthread_create(&other, NULL, hog, &stop) != 0)
		return;
	for (int i = 0; i < 20; i++)
		poll_empty(s, 1000000);
	atomic_store(&stop, 1);
	pthread_join(other, NULL);
	sched_setaffinity(0, sizeof before, &before);
	poll_empty(s, 400000); /* pthread_join may have slept */
}

static void pause_for(long us)
{
	nanosleep(&(struct timespec){0, us * 1000}, NULL);
}

/* pauses checks that a program that sleeps between empty polls does not count as waiting, and
 * that one that sleeps within the library does. */
static void pauses(outrigger *s)
{
	poll_once(s, 1);
	for (int i = 0; i < 50; i++) {
		pause_for(i % 2 == 0 ? 500 : 3000);
		poll_once(s, 0);
		expect(s, "a poll after each pause", 0);
	}
	poll_empty(s, 400000);
	expect(s, "empty polls after pauses", OR_PLACE_WAITS);
	pause_for(2000);
	poll_once(s, 0);
	expect(s, "a pause after empty polls", 0);
	poll_empty(s, 400000);
	for (int i = 0; i < 10; i++) {
		pause_for(2000);
		or_activity_slept(s);
		poll_once(s, 0);
	}
	expect(s, "sleeps within the library", OR_PLACE_WAITS);
	poll_once(s, 1);
}

static uint32_t acted(void)
{
	uint32_t word;
	memcpy(&word, control + OR_SEG_OFF_ACTED, sizeof word);
	return word;
}

/* probe_in_vain does what a probe that finds nothing does. */
static void probe_in_vain(outrigger *s)
{
	or_activity_probes(s);
	poll_once(s, 0);
	s->in_vain++;
	poll_once(s, 1);
}

/* compute_between probes in vain for 10 ms of CPU time, and computes for ns between two probes, all of
 * which has to count. */
static void compute_between(outrigger *s, uint64_t ns)
{
	uint32_t before = acted();
	for (uint64_t end = processor_time() + 10000000; processor_time() < end;) {
		probe_in_vain(s);
		compute(ns);
	}
	if (acted() == before) {
		fprintf(stderr, "activity: computations of %lu ns between probes do not count\n", (unsigned long)ns);
		failures++;
	}
}

/* probes checks that a program that only repeats probes in vain counts as waiting, and that one which
 * sleeps or computes between them does not. */
static void probes(outrigger *s)
{
	poll_once(s, 1);
	for (uint64_t end = processor_time() + 1000000; processor_time() < end;)
		probe_in_vain(s);
	expect(s, "probes in vain", OR_PLACE_WAITS);
	uint32_t before = acted();
	for (uint64_t end = processor_time() + 5000000; processor_time() < end;)
		probe_in_vain(s);
	expect(s, "many probes in vain", OR_PLACE_WAITS);
	if (before == 0 || acted() != before) {
		fputs("activity: probes in vain count as something else\n", stderr);
		failures++;
	}
	pause_for(5000);
	probe_in_vain(s);
	for (int i = 0; i < 20; i++) {
		before = acted();
		pause_for(2500); /* the word has another value afterwards */
		probe_in_vain(s);
		expect(s, "a probe after each pause", 0);
		if (acted() == before) {
			fprintf(stderr, "activity: pauses between probes do not count\n");
			failures++;
		}
	}
	compute_between(s, 10000);
	expect(s, "probes between short computations", 0);
	compute_between(s, 200000);
	expect(s, "probes between longer computations", 0);
	poll_once(s, 1);
}

int main(void)
{
	outrigger *s = calloc(1, sizeof *s);
	if (s == NULL)
		return 1;
	s->control = control;
	or_activity_begin(s, true);
	poll_once(s, 0);
	expect(s, "at first", 0);

	or_activity_copied(s, 1 << 20);
	poll_empty(s, 1000000);
	expect(s, "waits for a message", OR_PLACE_WAITS);
	/* In a virtual machine, time that the host steals counts as CPU time of the thread, which
	 * looks like computation: the Go test repeats a failed run for that reason. */
	be_preempted(s);
	expect(s, "preempted while it waits", OR_PLACE_WAITS);
	poll_once(s, 1);
	expect(s, "its message has arrived", 0);
	pauses(s);
	probes(s);

	poll_empty(s, 1000000);
	expect(s, "waits again", OR_PLACE_WAITS);
	compute(1000000);
	poll_once(s, 0);
	expect(s, "computes between its polls", 0);

	or_activity_waits(s); /* before it sleeps */
	expect(s, "sleeps", OR_PLACE_WAITS);
	or_activity_yielded(s);
	poll_once(s, 1);
	expect(s, "was woken", 0);
	free(s);
	if (failures == 0)
		puts("activity: ok");
	return failures != 0;
}
