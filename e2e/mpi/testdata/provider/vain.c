/*
 * Looks in vain. An MPI whose call has found something looks again before the call returns,
 * and between those looks takes its own next step: they must give nobody the processor, which
 * may not come back for a slice, and not sleep, since nothing that comes would end the sleep.
 */
#define _GNU_SOURCE
#include "provider.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 50, FREE = 3, MOST = 1000000 };

/* In the place of the C library's: the provider, too, calls this one. */
static __thread unsigned yields;

int sched_yield(void)
{
	yields++;
	return (int)syscall(SYS_sched_yield);
}

static int here, there;

static void exchange(struct side *s)
{
	must(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 1, 0, &there));
	must(fi_tsend(s->ep, NULL, 0, NULL, s->partner, 1, &here));
	done(s->tx, &here);
	done(s->rx, &there);
}

static void at_queue(struct side *s)
{
	scenario = "looks in vain at a queue";
	for (int i = 0; i < ROUNDS; i++) {
		exchange(s);
		yields = 0;
		for (int k = 0; k < FREE; k++)
			want(nothing(s->rx), "a completion of nothing");
		want(yields == 0, "round %d: %u of the first looks yield", i, yields);
	}
	for (int k = 0; k < MOST && yields == 0; k++)
		want(nothing(s->rx), "a completion of nothing");
	want(yields > 0, "who waits does not yield");
}

static void at_counter(struct side *s)
{
	scenario = "looks in vain at a counter";
	for (int i = 0; i < ROUNDS; i++) {
		(void)fi_cntr_read(s->received);
		exchange(s);
		uint64_t value = fi_cntr_read(s->received); /* it has changed */
		yields = 0;
		for (int k = 0; k < FREE; k++)
			want(fi_cntr_read(s->received) == value, "a message of nobody's");
		want(yields == 0, "round %d: %u of the first looks yield", i, yields);
	}
}

void in_vain(struct side *s)
{
	at_queue(s);
	at_counter(s);
	meet(s);
}
