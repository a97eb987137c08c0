/* Tests polls of several threads while completions arrive, chunks are queued, the program leaves the
 * library and the session ends, without a sidecar. Under the thread sanitizer it shows that what the
 * threads read without the lock is written for that. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "session.h"

#define ENTRIES 16u
#define TESTERS 2
#define ROUNDS 500

static _Alignas(4096) unsigned char control[4096], submit[4096], complete[4096];
static struct or_producer sidecar;
static outrigger *s;
static _Atomic outrigger_request request[TESTERS]; /* that the thread tests; 0: it has ended */

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "threads: %s\n", what);
	exit(1);
}

/* test tests one request after the other until the session has ended. */
static void *test(void *of)
{
	_Atomic outrigger_request *mine = of;
	for (;;) {
		outrigger_request r = atomic_load(mine);
		int over = 0, rc = r == 0 ? OUTRIGGER_OK : outrigger_test(s, r, &over, NULL);
		if (over)
			atomic_store(mine, 0);
		if (rc == OUTRIGGER_NO_SIDECAR)
			return NULL;
		want(rc == OUTRIGGER_OK, "testing");
		if (r == 0 || !outrigger_idle(s))
			sched_yield();
	}
}

static void *progress(void *of)
{
	(void)of;
	unsigned came;
	int rc;
	while ((rc = outrigger_progress(s, &came)) == OUTRIGGER_OK)
		;
	want(rc == OUTRIGGER_NO_SIDECAR, "progress");
	return NULL;
}

static void publish(uint32_t id)
{
	struct or_descriptor d = {.op = OR_OP_DONE, .req = id};
	int n;
	while ((n = or_push(&sidecar, &d)) == 0)
		sched_yield();
	want(n == 1, "publishing");
}

/* start opens an operation, and queues a number of an earlier one for chunks, which it does not get. */
static outrigger_request start(void)
{
	uint32_t id;
	struct or_op *op;
	pthread_mutex_lock(&s->lock);
	want(or_begin_op(s, &id, &op) == OUTRIGGER_OK, "a request");
	outrigger_request r = (uint64_t)op->gen << 32 | id;
	op->done = true; /* or_progress passes over it */
	want(or_queue_push(&s->stage, id) == 0 && or_progress(s) == OUTRIGGER_OK, "queueing");
	op->done = false;
	pthread_mutex_unlock(&s->lock);
	return r;
}

int main(void)
{
	int pair[2];
	pthread_t thread[TESTERS + 1];
	s = calloc(1, sizeof *s);
	want(s != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "preparing");
	pthread_mutex_init(&s->lock, NULL);
	s->socket = pair[0];
	s->control = control;
	s->activity.watched = true;
	atomic_store(&s->watch.there, true);
	or_vain_init(s);
	or_view_init(&s->submit.view, submit, ENTRIES);
	or_view_init(&s->complete.view, complete, ENTRIES);
	or_view_init(&sidecar.view, complete, ENTRIES);

	for (int i = 0; i < TESTERS; i++)
		want(pthread_create(&thread[i], NULL, test, &request[i]) == 0, "a thread");
	want(pthread_create(&thread[TESTERS], NULL, progress, NULL) == 0, "a thread");
	for (int round = 0; round < ROUNDS; round++) {
		outrigger_request r[TESTERS];
		for (int i = 0; i < TESTERS; i++) {
			r[i] = start();
			atomic_store(&request[i], r[i]);
		}
		(void)outrigger_away(s, 1);
		for (int i = 0; i < TESTERS; i++)
			publish((uint32_t)r[i]);
		for (int i = 0; i < TESTERS; i++)
			while (atomic_load(&request[i]) != 0)
				sched_yield();
	}
	for (int i = 0; i < TESTERS; i++)
		atomic_store(&request[i], start());
	publish(UINT32_MAX); /* no such request is open: the session ends */
	for (int i = 0; i <= TESTERS; i++)
		pthread_join(thread[i], NULL);
	puts("threads: all have seen the end");
	return 0;
}
