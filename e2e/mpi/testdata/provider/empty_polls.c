/*
 * Tests empty polls. After a poll that returned a completion, an MPI polls again before its call
 * returns, also other queues, and makes its own next step in between. These empty polls must
 * neither yield, because the thread might not run again for a scheduler slice, nor sleep, because
 * no further completion would wake it. Later empty polls must do one of both. A rank with a CPU of
 * its own may poll for longer, so that this process is pinned to a CPU that it shares.
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

/* sched_yield and syscall below replace the C library's, also in the provider. */
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
	want(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
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

static void poll_empty(struct fid_cq *cq) { want(nothing(cq), "an unexpected completion"); }

/* at_once polls as often as an MPI does after a poll that returned a completion. */
static void at_once(struct fid_cq *cq, int round)
{
	yields = sleeps = 0;
	for (int k = 0; k < FREE; k++)
		poll_empty(cq);
	want(yields == 0 && sleeps == 0, "round %d: of the first empty polls %u yield and %u sleep", round, yields, sleeps);
}

static void at_queue(struct side *s)
{
	scenario = "empty polls of a queue";
	for (int i = 0; i < ROUNDS; i++) {
		exchange(s);
		at_once(s->rx, i);
		exchange(s);
		at_once(s->tx, i);
	}
	for (int k = 0; k < MOST && yields + sleeps == 0; k++)
		poll_empty(s->rx);
	want(yields + sleeps > 0, "a rank that waits neither yields nor sleeps");
}

/* loosely checks that a rank that does something else between its polls yields or sleeps, too. */
static void loosely(struct side *s)
{
	scenario = "empty polls with other work in between";
	exchange(s);
	yields = sleeps = 0;
	for (int k = 0; k < MOST && yields + sleeps == 0; k++) {
		poll_empty(s->rx);
		compute_some();
	}
	want(yields + sleeps > 0, "a rank that polls now and then neither yields nor sleeps");
}

/* full checks that failed starts of operations do not count as progress: a rank that retries
 * them waits. */
static void full(struct side *s)
{
	static char contexts[REQUESTS];
	unsigned n = 0;
	scenario = "empty polls between starts that fail";
	while (n < REQUESTS && fi_trecv(s->ep, NULL, 0, NULL, s->partner, 3, 0, &contexts[n]) == 0)
		n++;
	want(n < REQUESTS, "no start fails for lack of requests");
	yields = sleeps = 0;
	for (int k = 0; k < MOST && yields + sleeps == 0; k++) {
		want(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 3, 0, &there) == -FI_EAGAIN, "a start succeeds although no request is left");
		poll_empty(s->rx);
	}
	want(yields + sleeps > 0, "a rank that finds no request neither yields nor sleeps");
}

static void at_counter(struct side *s)
{
	scenario = "empty polls of a counter";
	for (int i = 0; i < ROUNDS; i++) {
		(void)fi_cntr_read(s->received);
		exchange(s);
		uint64_t value = fi_cntr_read(s->received); /* a poll that found a change */
		yields = sleeps = 0;
		for (int k = 0; k < FREE; k++)
			want(fi_cntr_read(s->received) == value, "the counter has changed without a message");
		want(yields == 0 && sleeps == 0, "round %d: of the first empty polls %u yield and %u sleep", i, yields, sleeps);
	}
}

/* at_two has a rank wait and poll two queues in turn until it sleeps. A completion in one queue must
 * prevent the next empty polls of the other from sleeping. */
static void at_two(struct side *s)
{
	scenario = "empty polls of two queues";
	for (int i = 0; i < ROUNDS; i++) {
		struct fi_cq_tagged_entry e = {0};
		must(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 2, 0, &there));
		nanosleep(&(struct timespec){.tv_nsec = rank == 0 ? LATER_NS : 0}, NULL);
		must(fi_tsend(s->ep, NULL, 0, NULL, s->partner, 2, &here));
		done(s->tx, &here);
		do
			poll_empty(s->tx);
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

/* on_shared_cpu checks that a rank sleeps instead of yielding as soon as it has detected that another
 * thread computes on its CPU. */
static void on_shared_cpu(struct side *s)
{
	scenario = "empty polls on the CPU of a thread that computes";
	unsigned asleep = 0;
	pthread_t other;
	want(pthread_create(&other, NULL, computes, NULL) == 0, "starting a thread");
	for (int i = 0; i < ROUNDS; i++) {
		sleeps = 0;
		exchange(s);
		asleep += sleeps;
		at_once(s->rx, i);
	}
	/* A rank that computes itself and polls now and then must not sleep. */
	sleeps = 0;
	for (int k = 0; k < ROUNDS; k++) {
		compute_some();
		poll_empty(s->rx);
	}
	want(sleeps == 0, "a rank that computes sleeps in %u of %d polls", sleeps, ROUNDS);
	over = true;
	pthread_join(other, NULL);
	want(asleep > 0, "neither rank has slept: no thread computed on their CPU");
}

void empty_polls(struct side *s)
{
	alarm(PATIENCE_S);
	at_queue(s);
	loosely(s);
	at_counter(s);
	at_two(s);
	on_shared_cpu(s);
	meet(s);
	full(s); /* until the endpoint is closed */
	swap("full", &(char){0}, 1); /* receives of a partner that has left end at once */
	alarm(0);
}
