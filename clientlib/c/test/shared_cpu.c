/* Tests that a waiting thread sleeps instead of yielding if another thread computes on its
 * CPU: without a sidecar, on one CPU that a second thread keeps busy. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "session.h"

#define ENTRIES 16u
#define NAP_NS 100000000u /* duration of a sleep that is not woken */

static _Alignas(4096) unsigned char control[4096], complete[4096];
static atomic_bool over;

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "shared_cpu: %s\n", what);
	exit(1);
}

static void *compute(void *arg)
{
	(void)arg;
	while (!over)
		;
	return NULL;
}

/* sleeps returns the number of times that this thread has blocked. The kernel counts a yield
 * as an involuntary context switch, not as a voluntary one. */
static long sleeps(void)
{
	struct rusage r;
	getrusage(RUSAGE_THREAD, &r);
	return r.ru_nvcsw;
}

/* stay pins the process to its current CPU. */
static void stay(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	want(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
}

/* end_later completes request 0 after a second, without waking the waiting thread. */
static void *end_later(void *arg)
{
	struct timespec second = {.tv_sec = 1};
	struct or_descriptor d = {.op = OR_OP_DONE};
	struct or_producer sidecar = {0};
	nanosleep(&second, NULL);
	or_view_init(&sidecar.view, complete, ENTRIES);
	want(or_push(&sidecar, &d) == 1, "publishing");
	return arg;
}

/* wait_long waits for a request that completes after a second. While another thread computes
 * on this CPU, the wait must not wake up more often than its sleeps last, because each
 * wake-up preempts that thread. */
static void wait_long(outrigger *s)
{
	uint32_t id;
	struct or_op *op;
	pthread_t other;
	want(or_op_alloc(&s->ops, &id, &op) == 0 && id == 0, "a request");
	outrigger_request request = (uint64_t)op->gen << 32 | id;
	s->wait_policy.backoff_until = or_now() + 1000000000000u;
	long before = sleeps();
	uint64_t begun = or_now();
	want(pthread_create(&other, NULL, end_later, NULL) == 0, "starting a thread");
	want(outrigger_wait(s, request, NULL) == OUTRIGGER_OK, "waiting");
	uint64_t most = (or_now() - begun) / NAP_NS + 10;
	pthread_join(other, NULL);
	want((uint64_t)(sleeps() - before) <= most, "a long wait wakes up more often than once per sleep");
}

int main(void)
{
	int pair[2];
	outrigger *s = calloc(1, sizeof *s);
	want(s != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "preparing");
	s->socket = pair[0];
	s->control = control;
	pthread_mutex_init(&s->lock, NULL);
	or_view_init(&s->complete.view, complete, ENTRIES);
	want(or_wait_policy_init(s, "") == OUTRIGGER_OK, "preparing");

	stay();
	pthread_t other;
	want(pthread_create(&other, NULL, compute, NULL) == 0, "starting a thread");
	for (int i = 0; i < 100000 && s->wait_policy.backoff_until == 0; i++)
		outrigger_yield(s);
	want(s->wait_policy.backoff_until != 0, "no yield was long enough to start the back-off");
	s->wait_policy.backoff_until = or_now() + 1000000000000u;
	long before = sleeps();
	for (int i = 0; i < 5; i++)
		outrigger_yield(s);
	want(sleeps() - before >= 5, "outrigger_yield yields during the back-off, want sleeps");
	s->wait_policy.backoff_until = 0;
	over = true;
	pthread_join(other, NULL);
	for (int i = 0; i < 100000 && s->wait_policy.backoff_ns != 0; i++) {
		s->wait_policy.backoff_until = 0; /* let the next call try a yield again */
		outrigger_yield(s);
	}
	want(s->wait_policy.backoff_ns == 0, "a short yield has not ended the back-off");
	wait_long(s);
	puts("shared_cpu: sleeps");
	return 0;
}
