/* Tests that polls in vain take no lock and make no call of the kernel for their first 20 us, and
 * that they see what the sidecar publishes and what another thread has handled: without a sidecar,
 * with a clock that only the test advances. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "session.h"

#define ENTRIES 16u
#define POLLS 100     /* polls in vain within the free time */
#define STEP_NS 100u  /* between two of them */
#define FREE_NS 20000u

static _Alignas(4096) unsigned char control[4096], complete[4096];
static struct or_producer sidecar;
static uint64_t present = 1000000000; /* the time */
static unsigned asked; /* questions whether the sidecar has ended */
static bool gone;      /* it has */
static _Thread_local unsigned locks, calls; /* of the library in this thread */

/* The functions below replace the C library's in the client library, because the linker finds them
 * first. The process uses the locks from one thread at a time: a lock is a count. */
int pthread_mutex_lock(pthread_mutex_t *m)
{
	(void)m;
	locks++;
	return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
	(void)m;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	calls += clock != CLOCK_MONOTONIC; /* the time of a thread is a call of the kernel, the time is not */
	*t = (struct timespec){.tv_sec = (time_t)(present / 1000000000u), .tv_nsec = (long)(present % 1000000000u)};
	return 0;
}

int getrusage(__rusage_who_t who, struct rusage *r)
{
	(void)who;
	calls++;
	*r = (struct rusage){0};
	return 0;
}

int sched_yield(void)
{
	calls++;
	return 0;
}

ssize_t recv(int socket, void *buf, size_t n, int flags)
{
	(void)socket, (void)buf, (void)n, (void)flags;
	calls++;
	asked++;
	errno = EAGAIN;
	return gone ? 0 : -1;
}

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "vain: %s\n", what);
	exit(1);
}

/* start opens an operation, as a receive does. */
static outrigger_request start(outrigger *s)
{
	uint32_t id;
	struct or_op *op;
	want(or_begin_op(s, &id, &op) == OUTRIGGER_OK, "a request");
	return (uint64_t)op->gen << 32 | id;
}

static void publish_end(outrigger_request r)
{
	struct or_descriptor d = {.op = OR_OP_DONE, .req = (uint32_t)r};
	want(or_push(&sidecar, &d) == 1, "publishing");
}

static bool over(outrigger *s, outrigger_request r)
{
	int yes;
	want(outrigger_test(s, r, &yes, NULL) == OUTRIGGER_OK, "testing");
	return yes != 0;
}

/* free_polls polls in vain for less than the free time, by outrigger_test of some requests and by
 * outrigger_progress. */
static void free_polls(outrigger *s, const outrigger_request *r, int requests)
{
	unsigned came = 1;
	locks = calls = 0;
	for (int i = 0; i < POLLS; i++, present += STEP_NS) {
		want(!over(s, r[i % requests]), "a request is over that is open");
		want(outrigger_progress(s, &came) == OUTRIGGER_OK && came == 0, "progress reports completions");
	}
	want(locks == 0, "polls in vain take a lock");
	want(calls == 0, "polls in vain call the kernel");
}

/* not_yet has each request tested once, which takes the lock. Completions that tests have handled are
 * reported before. */
static void not_yet(outrigger *s, const outrigger_request *r, int requests)
{
	want(outrigger_progress(s, NULL) == OUTRIGGER_OK, "progress");
	for (int i = 0; i < requests; i++)
		want(!over(s, r[i]), "a request is over that is open");
}

static void *handle(void *s)
{
	want(outrigger_progress(s, NULL) == OUTRIGGER_OK, "progress of another thread");
	return NULL;
}

int main(void)
{
	int pair[2];
	outrigger *s = calloc(1, sizeof *s);
	want(s != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "preparing");
	s->socket = pair[0];
	s->control = control;
	s->activity.watched = true;
	or_vain_init(s);
	or_view_init(&s->complete.view, complete, ENTRIES);
	or_view_init(&sidecar.view, complete, ENTRIES);

	outrigger_request r[] = {start(s), start(s), start(s)};
	not_yet(s, r, 3);
	free_polls(s, r, 3);
	present += FREE_NS;
	want(!over(s, r[0]) && locks > 0, "a thread that polls for long never takes the lock, and shows nothing to the sidecar");

	publish_end(r[0]);
	want(over(s, r[0]), "a completion is not seen after the free time");
	not_yet(s, r + 1, 2);
	free_polls(s, r + 1, 2);
	publish_end(r[1]);
	want(over(s, r[1]), "a completion is not seen within the free time");

	/* What another thread handles has left the ring. */
	not_yet(s, r + 2, 1);
	free_polls(s, r + 2, 1);
	publish_end(r[2]);
	pthread_t other;
	want(pthread_create(&other, NULL, handle, s) == 0 && pthread_join(other, NULL) == 0, "another thread");
	want(over(s, r[2]), "a completion that another thread has handled is not seen");

	/* A completion that a test of another request has handled is reported. */
	r[0] = start(s);
	r[1] = start(s);
	not_yet(s, r, 2);
	publish_end(r[0]);
	want(!over(s, r[1]), "a request is over that is open");
	unsigned came = 0;
	want(outrigger_progress(s, &came) == OUTRIGGER_OK && came == 1, "progress does not report what a test has handled");

	/* A start begins the free time anew. */
	r[0] = start(s);
	not_yet(s, r, 1);
	present += FREE_NS;
	r[1] = start(s);
	not_yet(s, r, 2);
	free_polls(s, r, 2);

	/* Chunks that can be submitted are work, and the end of the sidecar is news. */
	s->stage.count = 1;
	want(!outrigger_idle(s), "a session with chunks to submit is idle");
	s->stage.count = 0;
	want(outrigger_idle(s), "a session without work is not idle");
	present += UINT64_C(1000000000);
	asked = 0;
	for (int i = 0; i < POLLS; i++, present += FREE_NS)
		want(outrigger_progress(s, NULL) == OUTRIGGER_OK, "progress");
	want(asked == 1, "in 2 ms of polls, the sidecar's end is not asked for once");
	gone = true;
	present += UINT64_C(100000000);
	want(outrigger_progress(s, NULL) == OUTRIGGER_NO_SIDECAR, "polls do not notice the sidecar's end");
	want(!outrigger_idle(s), "a session that has ended is idle");
	puts("vain: by loads alone");
	return 0;
}
