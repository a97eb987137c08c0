/* Tests, without a sidecar, that a full ring of submissions stops only the call that needs room in
 * it: other threads get their completions, a poll and a cancellation return, and what waits for room
 * is submitted later in order. A call that waits yields; the yield is the moment at which another
 * thread or the sidecar acts, so that no time and no second thread is needed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session.h"

#define ENTRIES 16u
#define SLAB (UINT64_C(1) << 20)
#define LARGE (UINT64_C(1) << 19) /* bytes of a message in chunks */

static _Alignas(4096) unsigned char control[4096], submit[ENTRIES * 64 + 64], complete[ENTRIES * 64 + 64];
static unsigned char buffer[LARGE];
static const struct outrigger_envelope peer = {.peer = 1};
static outrigger *s;
static struct or_producer answers; /* the sidecar's ends of the rings */
static struct or_consumer taken;
static int ends[2];
static unsigned yields;
static void (*meanwhile)(void); /* what happens in a yield */

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "full: %s\n", what);
	exit(1);
}

/* sched_yield replaces the C library's in the client library. */
int sched_yield(void)
{
	yields++;
	want(yields < 100000, "a call waits although the sidecar has acted");
	want(pthread_mutex_trylock(&s->lock) == 0, "a call that waits for room holds the lock");
	pthread_mutex_unlock(&s->lock);
	if (meanwhile != NULL)
		meanwhile();
	return 0;
}

static void attach(void)
{
	s = calloc(1, sizeof *s);
	unsigned char *memory = calloc(2, SLAB);
	want(s != NULL && memory != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "preparing");
	s->socket = ends[0];
	s->doorbell = -1;
	s->control = control;
	s->world.ranks = 2;
	pthread_mutex_init(&s->lock, NULL);
	or_vain_init(s);
	memset(submit, 0, sizeof submit);
	memset(complete, 0, sizeof complete);
	answers = (struct or_producer){0};
	memset(&taken, 0, sizeof taken);
	or_view_init(&s->submit.view, submit, ENTRIES);
	or_view_init(&taken.view, submit, ENTRIES);
	or_view_init(&s->complete.view, complete, ENTRIES);
	or_view_init(&answers.view, complete, ENTRIES);
	want(or_slab_init(&s->slab, memory, SLAB, 8192) == 0 && or_arena_init(&s->arena, memory + SLAB, 0) == 0, "preparing");
	yields = 0;
	meanwhile = NULL;
}

/* take takes the next descriptor, as the sidecar does. */
static bool take(struct or_descriptor *d)
{
	bool ok = or_pop(&taken, d);
	or_publish_head(&taken);
	return ok;
}

static void publish(struct or_descriptor d) { want(or_push(&answers, &d) == 1, "publishing"); }

static outrigger_request receive(uint64_t bytes)
{
	outrigger_request q;
	want(outrigger_recv(s, buffer, bytes, &peer, &q) == OUTRIGGER_OK, "a receive");
	return q;
}

/* fill submits receives until the ring is full, and returns the first one. */
static outrigger_request fill(void)
{
	outrigger_request first = receive(8);
	while (or_has_room(&s->submit, 1))
		(void)receive(8);
	want(outrigger_full(s), "a full ring is not reported");
	return first;
}

static outrigger_request awaited;
static int over;

/* other does what another thread and then the sidecar do while a call waits for room. */
static void other(void)
{
	struct or_descriptor d;
	if (over)
		return;
	publish((struct or_descriptor){.op = OR_OP_DONE, .req = (uint32_t)awaited});
	want(outrigger_test(s, awaited, &over, NULL) == OUTRIGGER_OK && over, "another thread does not get its completion");
	want(take(&d), "an entry of a full ring");
}

/* calls makes each call that submits, in a full ring, and checks that its descriptor is behind those
 * that were submitted before. */
static void calls(void)
{
	outrigger_request q;
	for (int call = 0; call < 6; call++) {
		struct or_descriptor d;
		uint8_t op = OR_OP_SEND;
		int rc = OUTRIGGER_OK;
		attach();
		awaited = fill();
		over = 0;
		meanwhile = other;
		switch (call) {
		case 0: rc = outrigger_send(s, buffer, 8, &peer, 0, &q); break;
		case 1: rc = outrigger_send(s, buffer, 8, &peer, 0, NULL); break; /* silent */
		case 2: rc = outrigger_probe(s, &peer, 0, NULL, NULL, &q); op = OR_OP_PROBE; break;
		case 3: rc = outrigger_drop(s, 5); op = OR_OP_DROP; break;
		case 4: rc = outrigger_recv(s, buffer, 9000, &peer, &q); op = OR_OP_RECV; break;
		case 5: rc = outrigger_abort(s, 1, "why"); op = OR_OP_ABORT; break;
		}
		want(rc == OUTRIGGER_OK && over && yields == 1, "a call does not wait until there is room");
		for (unsigned i = 1; i < ENTRIES; i++)
			want(take(&d) && d.op == OR_OP_RECV, "a descriptor is lost");
		want(take(&d) && d.op == op && !take(&d), "the call's descriptor is not the last one");
		want(!outrigger_full(s), "an empty ring is full");
	}
}

/* polls checks that a poll returns although chunks find no room, and that all of them are submitted
 * later, in the order of the message. */
static void polls(void)
{
	struct or_descriptor d;
	uint64_t next = 0, offset[OR_STAGE_DEPTH];
	unsigned lent = 0;
	attach();
	outrigger_request q = receive(LARGE);
	want(take(&d) && d.class == OR_CLASS_STAGED, "a receive in chunks");
	(void)fill();
	publish((struct or_descriptor){.op = OR_OP_MATCHED, .req = (uint32_t)q, .len = LARGE});
	want(outrigger_progress(s, NULL) == OUTRIGGER_OK && yields == 0, "a poll waits for room");
	want(!outrigger_idle(s), "a session has nothing to do although chunks wait for room");
	int done = 0;
	want(outrigger_test(s, q, &done, NULL) == OUTRIGGER_OK && !done && yields == 1, "a wait does not yield while chunks wait for room");
	while (next < LARGE) {
		if (take(&d)) {
			if (d.op != OR_OP_STAGE)
				continue;
			want(d.req == (uint32_t)q && lent < OR_STAGE_DEPTH, "too many chunks");
			offset[lent++] = d.addr;
			continue;
		}
		if (lent > 0) { /* the sidecar fills the first chunk with its part of the message */
			uint64_t n = LARGE - next < s->slab.chunk_bytes ? LARGE - next : s->slab.chunk_bytes;
			memset(s->slab.memory + offset[0], (int)(1 + next / s->slab.chunk_bytes), n);
			publish((struct or_descriptor){.op = OR_OP_STAGED, .req = (uint32_t)q, .class = OR_CLASS_SLAB, .addr = offset[0], .len = n, .aux = next});
			next += n;
			for (unsigned i = 1; i < lent; i++)
				offset[i - 1] = offset[i];
			lent--;
		}
		want(outrigger_progress(s, NULL) == OUTRIGGER_OK, "progress");
	}
	publish((struct or_descriptor){.op = OR_OP_DONE, .req = (uint32_t)q, .len = LARGE});
	want(outrigger_test(s, q, &done, NULL) == OUTRIGGER_OK && done, "the receive does not end");
	for (uint64_t i = 0; i < LARGE; i++)
		want(buffer[i] == (unsigned char)(1 + i / s->slab.chunk_bytes), "the message is wrong");
}

/* cancels checks that a cancellation waits for no room, and that the sidecar gets it unless the
 * request has ended. */
static void cancels(void)
{
	struct or_descriptor d;
	attach();
	outrigger_request first = receive(8), second = receive(8);
	(void)fill();
	want(outrigger_cancel(s, first) == OUTRIGGER_OK && outrigger_cancel(s, second) == OUTRIGGER_OK && outrigger_cancel(s, second) == OUTRIGGER_OK && yields == 0,
	     "a cancellation waits for room");
	want(!outrigger_idle(s), "a session has nothing to do although a cancellation waits for room");
	publish((struct or_descriptor){.op = OR_OP_DONE, .req = (uint32_t)first});
	int done;
	want(outrigger_test(s, first, &done, NULL) == OUTRIGGER_OK && done, "a request that is to be cancelled does not end");
	for (unsigned i = 0; i < ENTRIES; i++)
		want(take(&d) && d.op == OR_OP_RECV, "a descriptor is lost");
	outrigger_request reused = receive(8);
	want((uint32_t)reused == (uint32_t)first && take(&d) && d.op == OR_OP_RECV, "a number is not used again");
	want(outrigger_progress(s, NULL) == OUTRIGGER_OK, "progress");
	want(take(&d) && d.op == OR_OP_CANCEL && d.req == (uint32_t)second && !take(&d), "not the one open request is cancelled");
	want(outrigger_idle(s), "a session has work after the last cancellation");
}

static void hang_up(void)
{
	if (yields == 3)
		close(ends[1]);
}

/* orphaned checks that a call that waits for room returns when the sidecar ends. */
static void orphaned(void)
{
	outrigger_request q;
	attach();
	(void)fill();
	meanwhile = hang_up;
	want(outrigger_send(s, buffer, 8, &peer, 0, &q) == OUTRIGGER_NO_SIDECAR, "a call waits for a sidecar that has ended");
	want(!outrigger_full(s), "a call would wait for a sidecar that has ended");
	want(outrigger_cancel(s, q) == OUTRIGGER_OK && q == 0, "a request of a send that has failed");
}

/* attends checks that a watcher that waits for room handles completions although the program is back,
 * and learns of the sidecar's end: the program may wait for a lock that the watcher holds. */
static void attends(void)
{
	struct or_descriptor d;
	for (int away = 0; away < 2; away++) {
		attach();
		outrigger_request first = fill();
		s->watch.away = away;
		publish((struct or_descriptor){.op = OR_OP_DONE, .req = (uint32_t)first});
		want(outrigger_attend(s) == OUTRIGGER_OK && s->completed == 1, "a watcher that waits for room handles no completion");
		close(ends[1]);
		int rc = OUTRIGGER_OK;
		for (int i = 0; i < 100 && rc == OUTRIGGER_OK; i++) {
			usleep(10000);
			rc = outrigger_attend(s);
		}
		want(rc == OUTRIGGER_NO_SIDECAR, "a watcher waits for room of a sidecar that has ended");
	}
	attach();
	outrigger_request q = receive(8);
	want(take(&d), "an entry");
	publish((struct or_descriptor){.op = OR_OP_DONE, .req = (uint32_t)q});
	want(outrigger_attend(s) == OUTRIGGER_OK && s->completed == 0, "a watcher takes the completions of a program that polls");
}

/* repeats checks that a program that has used up the requests, and repeats a send until one is free,
 * moves the messages that it has sent before. */
static void repeats(void)
{
	struct or_descriptor d;
	outrigger_request q;
	attach();
	want(outrigger_send(s, buffer, LARGE, &peer, 0, NULL) == OUTRIGGER_OK, "a send that nothing waits for");
	while (outrigger_room(s) > 0) {
		while (take(&d))
			;
		(void)receive(8);
	}
	publish((struct or_descriptor){.op = OR_OP_MATCHED, .req = 0, .len = LARGE});
	while (take(&d))
		;
	want(outrigger_send(s, buffer, 8, &peer, 0, &q) == OUTRIGGER_TOO_MANY, "a send without a free request");
	want(take(&d) && d.op == OR_OP_STAGE && d.req == 0, "a send that is repeated moves no message");
}

/* copies checks that the sidecar has the whole message of a send that is copied, if the arena has room:
 * its rest would wait for the next call of this process. */
static void copies(void)
{
	struct or_descriptor d;
	outrigger_request large, small;
	attach();
	want(or_arena_init(&s->arena, s->slab.memory + SLAB, SLAB) == 0, "an arena");
	memset(buffer, 7, SLAB / 8);
	want(outrigger_send(s, buffer, SLAB / 8, &peer, OUTRIGGER_COPY, &small) == OUTRIGGER_OK && outrigger_taken(s, small), "a copied send is not taken");
	memset(buffer, 0, SLAB / 8);
	want(take(&d) && d.class == OR_CLASS_ARENA && d.len == SLAB / 8 && s->arena.memory[d.addr] == 7 && s->arena.memory[d.addr + d.len - 1] == 7 && !take(&d), "its message");
	want(outrigger_send(s, buffer, LARGE, &peer, OUTRIGGER_COPY, &large) == OUTRIGGER_OK && !outrigger_taken(s, large), "a send in chunks is taken at once");
	uint64_t borrowed = s->slab.borrowed;
	publish((struct or_descriptor){.op = OR_OP_DONE, .req = (uint32_t)small});
	want(outrigger_progress(s, NULL) == OUTRIGGER_OK && outrigger_taken(s, small), "a send that has ended");
	want(s->slab.borrowed == borrowed - SLAB / 8, "the copy's memory stays allocated");
}

int main(void)
{
	calls();
	polls();
	cancels();
	orphaned();
	attends();
	repeats();
	copies();
	puts("full: ok");
	return 0;
}
