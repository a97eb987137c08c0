/*
 * Looks in vain. An MPI whose call has found something looks again before the call returns, at
 * other queues as well, and between those looks takes its own next step: they must give nobody
 * the processor, which may not come back for a slice, and not sleep, since nothing that comes
 * would end the sleep. Later ones must do one of both. With a processor of its own a rank may
 * go on looking for longer, so that this one stays on one that it shares.
 */
#define _GNU_SOURCE
#include "provider.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 50, FREE = 3, MOST = 1000, LOOSE_NS = 30000, LATER_NS = 2000000, PATIENCE_S = 60, REQUESTS = 1 << 17 };

/* These are in the place of the C library's: the provider, too, calls them. */
static __thread unsigned yields, sleeps;

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (next == NULL) {
		void *symbol = dlsym(RTLD_NEXT, "syscall");
		memcpy(&next, &symbol, sizeof next);
	}
	sleeps += number == SYS_futex && a[1] == FUTEX_WAIT;
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int sched_yield(void)
{
	yields++;
	return (int)syscall(SYS_sched_yield);
}

void stay(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	want(sched_setaffinity(0, sizeof one, &one) == 0, "choosing a processor");
}

static uint64_t used(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void compute_some(void)
{
	for (uint64_t end = used() + LOOSE_NS; used() < end;)
		;
}

static int here, there;

static void exchange(struct side *s)
{
	must(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 1, 0, &there));
	must(fi_tsend(s->ep, NULL, 0, NULL, s->partner, 1, &here));
	done(s->tx, &here);
	done(s->rx, &there);
}

static void look(struct fid_cq *cq) { want(nothing(cq), "a completion of nothing"); }

/* at_once looks as often as an MPI does that has found something. */
static void at_once(struct fid_cq *cq, int round)
{
	yields = sleeps = 0;
	for (int k = 0; k < FREE; k++)
		look(cq);
	want(yields == 0 && sleeps == 0, "round %d: of the first looks %u yield and %u sleep", round, yields, sleeps);
}

static void at_queue(struct side *s)
{
	scenario = "looks in vain at a queue";
	for (int i = 0; i < ROUNDS; i++) {
		exchange(s);
		at_once(s->rx, i);
		exchange(s);
		at_once(s->tx, i);
	}
	for (int k = 0; k < MOST && yields + sleeps == 0; k++)
		look(s->rx);
	want(yields + sleeps > 0, "who waits does not give the processor away");
}

/* A rank that does something else between its looks gives the processor away, too. */
static void loosely(struct side *s)
{
	scenario = "looks in vain that do not follow at once";
	exchange(s);
	yields = sleeps = 0;
	for (int k = 0; k < MOST && yields + sleeps == 0; k++) {
		look(s->rx);
		compute_some();
	}
	want(yields + sleeps > 0, "who looks now and then never gives the processor away");
}

/* A start that fails for lack of room is none: who tries again and again waits. */
static void full(struct side *s)
{
	static char contexts[REQUESTS];
	unsigned n = 0;
	scenario = "looks in vain between starts that fail";
	while (n < REQUESTS && fi_trecv(s->ep, NULL, 0, NULL, s->partner, 3, 0, &contexts[n]) == 0)
		n++;
	want(n < REQUESTS, "there is always room");
	yields = sleeps = 0;
	for (int k = 0; k < MOST && yields + sleeps == 0; k++) {
		want(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 3, 0, &there) == -FI_EAGAIN, "there is room after all");
		look(s->rx);
	}
	want(yields + sleeps > 0, "who finds no room does not give the processor away");
}

static void at_counter(struct side *s)
{
	scenario = "looks in vain at a counter";
	for (int i = 0; i < ROUNDS; i++) {
		(void)fi_cntr_read(s->received);
		exchange(s);
		uint64_t value = fi_cntr_read(s->received); /* it has changed */
		yields = sleeps = 0;
		for (int k = 0; k < FREE; k++)
			want(fi_cntr_read(s->received) == value, "a message of nobody's");
		want(yields == 0 && sleeps == 0, "round %d: of the first looks %u yield and %u sleep", i, yields, sleeps);
	}
}

/* A rank waits, and looks at one queue and the other in turn, until it sleeps. What it finds
 * at one is a reason not to sleep at the other. */
static void at_two(struct side *s)
{
	scenario = "looks in vain at two queues";
	for (int i = 0; i < ROUNDS; i++) {
		struct fi_cq_tagged_entry e = {0};
		must(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 2, 0, &there));
		nanosleep(&(struct timespec){.tv_nsec = rank == 0 ? LATER_NS : 0}, NULL);
		must(fi_tsend(s->ep, NULL, 0, NULL, s->partner, 2, &here));
		done(s->tx, &here);
		do
			look(s->tx);
		while (fi_cq_read(s->rx, &e, 1) != 1);
		at_once(s->tx, i);
	}
}

static atomic_bool over;

static void *computes(void *arg)
{
	while (!over)
		;
	return arg;
}

/* Beside somebody who computes a rank sleeps instead of yielding, as soon as it has seen that. */
static void in_a_crowd(struct side *s)
{
	scenario = "looks in vain beside a thread that computes";
	unsigned asleep = 0;
	pthread_t other;
	want(pthread_create(&other, NULL, computes, NULL) == 0, "starting a thread");
	for (int i = 0; i < ROUNDS; i++) {
		sleeps = 0;
		exchange(s);
		asleep += sleeps;
		at_once(s->rx, i);
	}
	/* One that computes itself and looks now and then is not held up. */
	sleeps = 0;
	for (int k = 0; k < ROUNDS; k++) {
		compute_some();
		look(s->rx);
	}
	want(sleeps == 0, "who computes sleeps at %u of %d looks", sleeps, ROUNDS);
	over = true;
	pthread_join(other, NULL);
	want(asleep > 0, "nobody has slept: it was no crowd");
}

void in_vain(struct side *s)
{
	alarm(PATIENCE_S);
	at_queue(s);
	loosely(s);
	at_counter(s);
	at_two(s);
	in_a_crowd(s);
	meet(s);
	full(s); /* until the endpoint is closed */
	swap("full", &(char){0}, 1); /* receives of a partner that has left end at once */
	alarm(0);
}
