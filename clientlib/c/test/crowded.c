/* Where a processor is shared with somebody who computes, who waits sleeps instead of
 * yielding: without a sidecar, on one processor that another thread keeps busy. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "session.h"

static _Alignas(4096) unsigned char control[4096], complete[4096];
static atomic_bool over;

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "crowded: %s\n", what);
	exit(1);
}

static void *compute(void *arg)
{
	(void)arg;
	while (!over)
		;
	return NULL;
}

/* sleeps is how often this thread has given its processor up by itself: a yield is none. */
static long sleeps(void)
{
	struct rusage r;
	getrusage(RUSAGE_THREAD, &r);
	return r.ru_nvcsw;
}

/* stay keeps the process on the processor that it is on. */
static void stay(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	want(sched_setaffinity(0, sizeof one, &one) == 0, "choosing a processor");
}

int main(void)
{
	int pair[2];
	outrigger *s = calloc(1, sizeof *s);
	want(s != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "preparing");
	s->socket = pair[0];
	s->control = control;
	pthread_mutex_init(&s->lock, NULL);
	or_view_init(&s->complete.view, complete, 16);
	want(or_patience_init(s, "") == OUTRIGGER_OK, "preparing");

	stay();
	pthread_t other;
	want(pthread_create(&other, NULL, compute, NULL) == 0, "starting a thread");
	for (int i = 0; i < 100000 && s->patience.crowded == 0; i++)
		outrigger_yield(s);
	want(s->patience.crowded != 0, "no yield has lasted");
	s->patience.crowded = or_now() + 1000000000000u;
	long before = sleeps();
	for (int i = 0; i < 5; i++)
		outrigger_yield(s);
	want(sleeps() - before >= 5, "it yields where it should sleep");
	s->patience.crowded = 0;
	over = true;
	pthread_join(other, NULL);
	for (int i = 0; i < 100000 && s->patience.crowd_ns != 0; i++) {
		s->patience.crowded = 0; /* time for the next try */
		outrigger_yield(s);
	}
	want(s->patience.crowd_ns == 0, "a yield that costs nothing has not ended the doubt");
	puts("crowded: sleeps");
	return 0;
}
