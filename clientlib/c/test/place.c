/* What a process tells of where it is (src/place.c), without a sidecar. */
#define _GNU_SOURCE /* sched_getcpu, cpu_set_t */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
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
	uint32_t is = atomic_load(or_word(s, OR_SEG_OFF_PLACE)) & (OR_PLACE_COMPUTES | OR_PLACE_WAITS);
	if (is == want)
		return;
	fprintf(stderr, "place: %s: computes %d, waits %d\n", when, (is & OR_PLACE_COMPUTES) != 0, (is & OR_PLACE_WAITS) != 0);
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
	or_place_back(s);
	or_place_looks(s, came);
}

static void look_in_vain(outrigger *s, uint64_t ns)
{
	for (uint64_t end = processor_time() + ns; processor_time() < end;)
		look(s, 0);
}

/* wait_for_many waits for more large messages than show that it does not compute. */
static void wait_for_many(outrigger *s)
{
	for (int i = 0; i < 40; i++) {
		or_place_leaves(s, 1 << 20);
		look_in_vain(s, 300000);
		look(s, 1);
	}
}

/* compute_once computes beside one large message. */
static void compute_once(outrigger *s)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* where it is was found out before */
	or_place_leaves(s, 1 << 20);
	compute(1000000);
	look(s, 1);
}

/* seldom is who computes once and not again before many messages have come and gone. */
static void seldom(outrigger *s)
{
	for (int i = 0; i < 3; i++) {
		do /* a timer's interrupt looks like computing, too */
			wait_for_many(s);
		while (!or_place_idles(s));
		compute_once(s);
		expect(s, "who computed once after many messages", 0);
	}
	compute_once(s);
	expect(s, "who has begun to compute", OR_PLACE_COMPUTES);
	wait_for_many(s);
	compute_once(s);
}

/* beside has so many stretches of computing, of so many ns each, beside a message of 32 KiB,
 * and sleeps between them. */
static void beside(outrigger *s, int stretches, uint64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* where it is was found out before */
	look(s, 0);
	or_place_leaves(s, 32 * 1024);
	for (int i = 0; i < stretches; i++) {
		if (i > 0)
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
		compute(ns);
	}
	look(s, 1);
}

static void *attends(void *session)
{
	outrigger *s = session;
	s->watch.thread = pthread_self();
	atomic_store(&s->watch.there, true);
	or_place_beside(s);
	return NULL;
}

static void *submits(void *session)
{
	outrigger *s = session;
	s->watch.thread = pthread_self();
	atomic_store(&s->watch.there, true);
	or_place_leaves(s, 1 << 20);
	return NULL;
}

static int yields;

int sched_yield(void) { return yields++, 0; } /* instead of libc's */

/* lets expects so many yields of a program that goes on after a message of so many bytes. */
static void lets(outrigger *s, const char *who, uint64_t bytes, int want)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* where it is was found out before */
	or_place_leaves(s, bytes);
	for (int i = yields = 0; i < 3; i++)
		outrigger_let_others(s);
	look(s, 1);
	if (yields != want)
		failures++, fprintf(stderr, "place: %s yields %d times, want %d\n", who, yields, want);
}

/* let_others is who lets others run before it goes on. */
static void let_others(outrigger *s)
{
	wait_for_many(s);
	lets(s, "who computes beside no message", 1 << 20, 0);
	compute_once(s);
	compute_once(s);
	lets(s, "who computes beside its messages", 1 << 20, 1);
	lets(s, "who has sent a small message", 1024, 0);
	s->patience.crowded = UINT64_MAX;
	lets(s, "who had its processor taken", 1 << 20, 0);
	s->patience.crowded = 0;
	lets(s, "who has got it back", 1 << 20, 1);
}

/* The thread that is the watcher is there before what it looks at: to make one takes the
 * program more processor time than counts as computing. */
static sem_t called, answered;
static void *(*does)(void *);

static void *watcher(void *session)
{
	for (;;) {
		while (sem_wait(&called) != 0)
			;
		if (does == NULL)
			return NULL;
		(void)does(session);
		sem_post(&answered);
	}
}

/* by_watcher has it do something, as the watcher of a program that is away or not. */
static void by_watcher(outrigger *s, void *(*what)(void *), bool away)
{
	s->watch.away = away;
	s->watch.cpu = sched_getcpu();
	does = what;
	sem_post(&called);
	while (sem_wait(&answered) != 0)
		;
	s->watch.away = false;
	atomic_store(&s->watch.there, false);
}

/* watched is what a watcher tells of a program, and what it leaves alone. */
static void watched(outrigger *s)
{
	static void *(*const whats[])(void *) = {attends, submits};
	pthread_t thread;
	if (sem_init(&called, 0, 0) != 0 || sem_init(&answered, 0, 0) != 0 || pthread_create(&thread, NULL, watcher, s) != 0)
		abort();
	for (int i = 0; i < 2; i++) {
		seldom(s);
		or_place_leaves(s, 1 << 20);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		by_watcher(s, whats[i], true);
		expect(s, "who sleeps beside its watcher", 0);
		compute(1000000);
		by_watcher(s, whats[i], false);
		expect(s, "who is in the library beside its watcher", 0);
		by_watcher(s, whats[i], true);
		expect(s, "who computes beside its watcher", OR_PLACE_COMPUTES);
		seldom(s);
		or_place_leaves(s, 1 << 20);
		by_watcher(s, whats[i], false);
		compute(1000000);
		look(s, 1);
		expect(s, "who computed when its watcher had been there", OR_PLACE_COMPUTES);
	}
	wait_for_many(s);
	if (!or_place_idles(s))
		failures++, fputs("place: who computes beside none of many messages is not known to wait\n", stderr);
	compute(1000000);
	by_watcher(s, attends, true);
	expect(s, "who computes and has nothing large under way", 0);
	nanosleep(&(struct timespec){.tv_nsec = 110000000}, NULL);
	if (or_place_idles(s))
		failures++, fputs("place: who was known to wait long ago is\n", stderr);
	or_place_leaves(s, 1 << 20);
	compute(1000000);
	by_watcher(s, attends, true);
	if (or_place_idles(s))
		failures++, fputs("place: who computes is known to wait\n", stderr);
	does = NULL;
	sem_post(&called);
	pthread_join(thread, NULL);
}

/* moves is a watcher on its way between processors: it goes where it should, and may go
 * where it might before. */
static void *moves(void *unused)
{
	cpu_set_t all, now;
	(void)unused;
	if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2)
		return NULL;
	for (int i = 0; i < 6; i++) {
		bool off = i % 2 == 0, there = false;
		for (int tries = 0; tries < 50 && !there; tries++) { /* the kernel may move it again */
			int cpu = sched_getcpu();
			for (int k = 0; !off && k < CPU_SETSIZE; k++)
				cpu = CPU_ISSET(k, &all) && k != sched_getcpu() ? k : cpu;
			or_watch_settle(cpu, off);
			there = (sched_getcpu() == cpu) != off;
		}
		if (!there || sched_getaffinity(0, sizeof now, &now) != 0 || !CPU_EQUAL(&now, &all))
			failures++, fprintf(stderr, "place: a watcher does not go %s a processor, or is kept there\n", off ? "off" : "onto");
	}
	or_watch_settle(-1, true);
	or_watch_settle(CPU_SETSIZE, false);
	or_watch_settle(CPU_SETSIZE - 1, false); /* on which it may not be */
	if (sched_getaffinity(0, sizeof now, &now) != 0 || !CPU_EQUAL(&now, &all))
		failures++, fputs("place: a watcher goes where it may not\n", stderr);
	return NULL;
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
		or_place_napped(s);
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
	s->place.wanted = true;
	look(s, 0);
	expect(s, "at first", 0);

	or_place_leaves(s, 1 << 20);
	look_in_vain(s, 1000000);
	expect(s, "who waits for a large message", OR_PLACE_WAITS);
	/* What a host takes of this machine's processor counts as the thread's own time: then
	 * it has computed, for all that can be known. */
	put_off(s);
	expect(s, "who was put off while it waits", OR_PLACE_WAITS);
	look(s, 1);
	expect(s, "whose message has come", 0);
	pauses(s);

	or_place_leaves(s, 1 << 20);
	compute(2000000);
	look(s, 0);
	expect(s, "who computed beside its message", OR_PLACE_COMPUTES);
	look_in_vain(s, 1000000);
	expect(s, "who waits for the rest of it", OR_PLACE_COMPUTES | OR_PLACE_WAITS);
	compute(1000000);
	look(s, 0);
	expect(s, "who computes between its looks", OR_PLACE_COMPUTES);

	wait_for_many(s);
	expect(s, "who has not computed for many messages", 0);

	/* Short computing counts if the thread had its processor all the while, which any single
	 * one may not have; if it was put off, what it used may be what that takes. */
	for (int i = 0; i < 200 && !(s->place.word & OR_PLACE_COMPUTES); i++)
		beside(s, 1, 60000);
	expect(s, "who computed shortly", OR_PLACE_COMPUTES);
	wait_for_many(s);
	for (int i = 0; i < 20 && !(s->place.word & OR_PLACE_COMPUTES); i++)
		beside(s, 3, 20000);
	expect(s, "who was put off and used as much", 0);

	/* What the library copies, in looks and for messages that leave, is not computing. */
	for (int i = 0; i < 20 && !(s->place.word & OR_PLACE_COMPUTES); i++) {
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
		look(s, 0);
		or_place_leaves(s, 1 << 20);
		compute(1000000);
		or_place_leaves(s, 1 << 20);
		or_place_back(s);
		compute(1000000);
		or_place_looks(s, 1);
	}
	expect(s, "whose library copies", 0);

	seldom(s);
	/* An MPI looks, and finds a piece of the message, before its program computes. */
	atomic_store(&s->ops.private, 1);
	or_place_leaves(s, 1 << 20);
	look(s, 1);
	compute(2000000);
	look(s, 1);
	expect(s, "who computed after a look that found a piece", OR_PLACE_COMPUTES);
	wait_for_many(s);
	atomic_store(&s->ops.private, 0);
	look(s, 1);
	compute(1000000);
	look(s, 0);
	expect(s, "who computed when its last message was over", 0);

	compute(1000000);
	or_place_leaves(s, 1024);
	compute(1000000);
	look(s, 0);
	expect(s, "small messages", 0);

	or_place_waits(s); /* it goes to sleep */
	expect(s, "who sleeps", OR_PLACE_WAITS);
	or_place_woke(s);
	look(s, 1);
	expect(s, "who was woken", 0);
	let_others(s);
	watched(s);
	pthread_t thread;
	if (pthread_create(&thread, NULL, moves, NULL) != 0 || pthread_join(thread, NULL) != 0)
		abort();
	free(s);
	if (failures == 0)
		puts("place: ok");
	return failures != 0;
}
