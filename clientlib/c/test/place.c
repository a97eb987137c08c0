/* What a process tells of its waits (src/activity.c), without a sidecar. */
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
	fprintf(stderr, "place: %s: %#x, want %#x\n", when, is, want);
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

static void look(outrigger *s, unsigned came)
{
	or_activity_begin_poll(s);
	or_activity_end_poll(s, came);
}

static void look_in_vain(outrigger *s, uint64_t ns)
{
	for (uint64_t end = processor_time() + ns; processor_time() < end;)
		look(s, 0);
}

static void *hog(void *stop)
{
	while (!atomic_load((_Atomic int *)stop))
		;
	return NULL;
}

/* put_off has the caller look in vain while another thread wants its processor. */
static void put_off(outrigger *s)
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
		look_in_vain(s, 1000000);
	atomic_store(&stop, 1);
	pthread_join(other, NULL);
	sched_setaffinity(0, sizeof before, &before);
	look_in_vain(s, 400000); /* joining may have slept */
}

static void pause_for(long us)
{
	nanosleep(&(struct timespec){0, us * 1000}, NULL);
}

/* pauses: a program that looks in vain and sleeps between does not wait, however often it looks;
 * one that sleeps within the library does. */
static void pauses(outrigger *s)
{
	look(s, 1);
	for (int i = 0; i < 50; i++) {
		pause_for(i % 2 == 0 ? 500 : 3000);
		look(s, 0);
		expect(s, "a look after each pause", 0);
	}
	look_in_vain(s, 400000);
	expect(s, "looks in vain after pauses", OR_PLACE_WAITS);
	pause_for(2000);
	look(s, 0);
	expect(s, "a pause after looks in vain", 0);
	look_in_vain(s, 400000);
	for (int i = 0; i < 10; i++) {
		pause_for(2000);
		or_activity_slept(s);
		look(s, 0);
	}
	expect(s, "sleeps within the library", OR_PLACE_WAITS);
	look(s, 1);
}

int main(void)
{
	outrigger *s = calloc(1, sizeof *s);
	if (s == NULL)
		return 1;
	s->control = control;
	s->activity.watched = true;
	look(s, 0);
	expect(s, "at first", 0);

	or_activity_copied(s, 1 << 20);
	look_in_vain(s, 1000000);
	expect(s, "who waits for a message", OR_PLACE_WAITS);
	/* What a host takes of this machine's processor counts as the thread's own time: then
	 * it has computed, for all that can be known. */
	put_off(s);
	expect(s, "who was put off while it waits", OR_PLACE_WAITS);
	look(s, 1);
	expect(s, "whose message has come", 0);
	pauses(s);

	look_in_vain(s, 1000000);
	expect(s, "who waits again", OR_PLACE_WAITS);
	compute(1000000);
	look(s, 0);
	expect(s, "who computes between its looks", 0);

	or_activity_waits(s); /* it goes to sleep */
	expect(s, "who sleeps", OR_PLACE_WAITS);
	or_activity_yielded(s);
	look(s, 1);
	expect(s, "who was woken", 0);
	free(s);
	if (failures == 0)
		puts("place: ok");
	return failures != 0;
}
