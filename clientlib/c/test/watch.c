/* Tests that a watcher moves a program's messages while it computes: two ranks exchange
 * messages of private memory, while another thread of each is in outrigger_watch. In every
 * second round the ranks also poll, so that both threads make progress; in the other rounds
 * a rank only reads its own counter until both messages have completed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "outrigger.h"

enum { ROUNDS = 60, TIMEOUT_S = 30 };

static outrigger *session;
static struct outrigger_world world;
static _Atomic unsigned ended;
static _Atomic int over;

static void die(const char *what, int round)
{
	char why[256] = "";
	if (session != NULL)
		outrigger_failure(session, why, sizeof why);
	fprintf(stderr, "watch: rank %u, round %d: %s %s\n", world.rank, round, what, why);
	exit(1);
}

static void on_end(void *arg, const struct outrigger_result *r)
{
	if (r->status != OUTRIGGER_OK)
		die(arg, -1);
	atomic_fetch_add(&ended, 1);
}

static void *watches(void *arg)
{
	(void)arg;
	while (!atomic_load(&over) && outrigger_watch(session, 100000) == OUTRIGGER_OK)
		(void)outrigger_attend(session);
	return NULL;
}

static unsigned char pattern(uint32_t rank, int round, size_t at) { return (unsigned char)(at * 31 + (size_t)round * 7 + rank * 13 + at / 251); }

static void go_away(int round)
{
	for (int tries = 3; outrigger_away(session, 0);) {
		if (tries-- == 0) {
			outrigger_wake(session);
			return;
		}
		if (outrigger_progress(session, NULL) != OUTRIGGER_OK)
			die("the sidecar has ended", round);
	}
}

static volatile unsigned long sink;

static void compute(void)
{
	unsigned long x = 88172645463325252ul;
	for (int i = 0; i < 5000; i++)
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
	sink = x;
}

static void wait_away(int round, unsigned want, int polls)
{
	time_t begun = time(NULL);
	unsigned taken;
	go_away(round);
	while (atomic_load(&ended) < want) {
		compute();
		if (polls) {
			if (outrigger_progress(session, &taken) != OUTRIGGER_OK)
				die("the sidecar has ended", round);
			go_away(round);
		}
		if (time(NULL) - begun > TIMEOUT_S)
			die("its messages did not complete in time", round);
	}
}

static void exchange(int round, size_t bytes, unsigned char *out, unsigned char *in)
{
	uint32_t peer = world.rank ^ 1;
	struct outrigger_envelope e = {.peer = peer, .tag = (uint64_t)round};
	struct iovec to = {out, bytes}, from = {in, bytes};
	for (size_t i = 0; i < bytes; i++)
		out[i] = pattern(world.rank, round, i);
	memset(in, 0, bytes);
	if (outrigger_recvv(session, &from, 1, &e, on_end, "a receive", NULL) != OUTRIGGER_OK ||
	    outrigger_sendv(session, &to, 1, &e, OUTRIGGER_SYNC, on_end, "a send", NULL) != OUTRIGGER_OK)
		die("a message cannot be started", round);
	wait_away(round, 2 * (unsigned)(round + 1), round % 2);
	for (size_t i = 0; i < bytes; i++)
		if (in[i] != pattern(peer, round, i))
			die("a byte is wrong", round);
}

int main(void)
{
	static const size_t sizes[] = {20000, 65536, 300000, 1 << 20};
	struct outrigger_config config = {0};
	char why[256];
	pthread_t watcher;
	if (outrigger_open(&config, &session, why, sizeof why) != OUTRIGGER_OK) {
		fprintf(stderr, "watch: %s\n", why);
		return 1;
	}
	world = outrigger_world(session);
	unsigned char *out = malloc(1 << 20), *in = malloc(1 << 20);
	(void)outrigger_watch(session, 0); /* from now on the session has a watcher */
	if (out == NULL || in == NULL || pthread_create(&watcher, NULL, watches, NULL) != 0)
		die("no memory", 0);
	for (int round = 0; round < ROUNDS; round++)
		exchange(round, sizes[round % 4], out, in);
	atomic_store(&over, 1);
	outrigger_wake(session);
	pthread_join(watcher, NULL);
	if (outrigger_close(session) != OUTRIGGER_OK)
		die("goodbye", ROUNDS);
	printf("rank %u exchanged %d times\n", world.rank, ROUNDS);
	free(out);
	free(in);
	return 0;
}
