/* Tests, without a sidecar, which slab chunks staged messages get (src/stage.c). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "session.h"

#define ENTRIES 1024u

static _Alignas(4096) unsigned char control[4096], submit[ENTRIES * 64 + 64], complete[4096];
static const struct outrigger_envelope peer = {.peer = 1};

static void want(bool good, uint64_t slab, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "chunks: a slab of %llu: %s\n", (unsigned long long)slab, what);
	exit(1);
}

static outrigger *session(uint64_t slab, uint64_t arena)
{
	int pair[2]; /* the other end stays open: a sidecar that has not ended */
	outrigger *s = calloc(1, sizeof *s);
	unsigned char *memory = calloc(1, slab + arena + 1);
	want(s != NULL && memory != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, slab, "preparing");
	s->socket = pair[0];
	s->doorbell = -1;
	s->control = control;
	s->world.ranks = 2;
	pthread_mutex_init(&s->lock, NULL);
	memset(submit, 0, sizeof submit);
	memset(complete, 0, sizeof complete);
	or_view_init(&s->submit.view, submit, ENTRIES);
	or_view_init(&s->complete.view, complete, 16);
	want(or_slab_init(&s->slab, memory, slab, 8192) == 0 && or_arena_init(&s->arena, memory + slab, arena) == 0, slab, "preparing");
	return s;
}

static uint32_t start(outrigger *s, bool receives, uint64_t bytes)
{
	static unsigned char buffer[1 << 20];
	outrigger_request q;
	int rc = receives ? outrigger_recv(s, buffer, bytes, &peer, &q) : outrigger_send(s, buffer, bytes, &peer, 0, &q);
	want(rc == OUTRIGGER_OK, bytes, "starting");
	return (uint32_t)q;
}

static void publish(outrigger *s, uint8_t what, uint32_t request, uint64_t bytes)
{
	struct or_producer sidecar = {.tail = s->complete.pos};
	or_view_init(&sidecar.view, complete, 16);
	struct or_descriptor d = {.op = what, .req = request, .len = bytes};
	want(or_push(&sidecar, &d) == 1 && outrigger_progress(s, NULL) == OUTRIGGER_OK, bytes, "publishing a completion");
}

/* lent returns the number of a request's chunks that are with the sidecar. */
static int lent(const outrigger *s, uint32_t request) { return or_op_at(&s->ops, request)->with_engine.count; }

static void all_free(outrigger *s, uint64_t slab, size_t chunks, size_t slots)
{
	want(s->slab.chunks.count == chunks && s->slab.slots.count == slots, slab, "chunks or slots are lost");
	want(s->slab.held[0] == 0 && s->slab.held[1] == 0 && s->slab.borrowed == 0 && s->arena.used.count == 0, slab, "memory is counted as in use after all operations have completed");
}

/* moving checks that an exchange gets chunks although other messages never match. */
static void moving(uint64_t slab, uint64_t arena)
{
	outrigger *s = session(slab, arena);
	uint32_t waits[160], n = 0, receives[4];
	size_t chunks = s->slab.chunks.count, slots = s->slab.slots.count;
	for (int i = 0; i < 40; i++) {
		waits[n++] = start(s, false, 1 << 20);
		waits[n++] = start(s, true, s->slab.chunk_bytes);
		waits[n++] = start(s, false, s->slab.chunk_bytes);
		waits[n++] = start(s, true, 40);
	}
	want(s->slab.borrowed <= arena / 4, slab, "unmatched messages have more than a quarter of the arena");
	for (int i = 0; i < 4; i++) {
		receives[i] = start(s, true, 1 << 20);
		publish(s, OR_OP_MATCHED, receives[i], 1 << 20);
	}
	want(lent(s, receives[0]) > 0, slab, "a matched receive gets no chunk");
	uint32_t send = start(s, false, 1 << 20);
	publish(s, OR_OP_MATCHED, send, 1 << 20);
	want(lent(s, send) > 0, slab, "a matched send gets no chunk");
	for (int i = 0; i < 4; i++)
		publish(s, OR_OP_DONE, receives[i], 1 << 20);
	publish(s, OR_OP_DONE, send, 0);
	while (n > 0)
		publish(s, OR_OP_DONE, waits[--n], 8);
	all_free(s, slab, chunks, slots);
}

/* passed checks that a matched send gets the next chunk of the sends' part although a matched
 * receive waited for a chunk first, and vice versa. Otherwise two ranks deadlock if the
 * receives of each wait for chunks ahead of the sends that the other's receives need. */
static void passed(bool receives)
{
	outrigger *s = session(1 << 18, 0);
	size_t chunks = s->slab.chunks.count, slots = s->slab.slots.count;
	uint32_t all[6], n = 0;
	for (int side = 0; side < 2; side++) { /* two operations get all chunks of the direction, the third waits */
		bool r = side == 0 ? receives : !receives;
		for (int i = 0; i < 3; i++) {
			all[n++] = start(s, r, 1 << 20);
			publish(s, OR_OP_MATCHED, all[n - 1], 1 << 20);
		}
	}
	want(lent(s, all[2]) == 0 && lent(s, all[5]) == 0, 1 << 18, "no operation waits for a chunk");
	for (int i = 3; i < 5; i++)
		publish(s, OR_OP_DONE, all[i], 1 << 20);
	want(lent(s, all[5]) > 0, 1 << 18, "an operation got no chunk, because one of the other direction waits");
	publish(s, OR_OP_DONE, all[0], 1 << 20);
	want(lent(s, all[2]) > 0, 1 << 18, "the operation that waited first gets no chunk");
	for (int i = 1; i < 6; i += i == 2 ? 3 : 1)
		publish(s, OR_OP_DONE, all[i], 1 << 20);
	all_free(s, 1 << 18, chunks, slots);
}

/* truncated checks that a receive of a longer message gets the beginning of it. */
static void truncated(void)
{
	static unsigned char buffer[40000];
	outrigger *s = session(1 << 20, 1 << 20);
	size_t chunks = s->slab.chunks.count, slots = s->slab.slots.count;
	for (int i = 0; i < 2; i++) {
		uint64_t bytes = i == 0 ? 4000 : sizeof buffer;
		outrigger_request q;
		struct outrigger_result r;
		int over;
		memset(buffer, 0, sizeof buffer);
		want(outrigger_recv(s, buffer, bytes, &peer, &q) == OUTRIGGER_OK, bytes, "starting");
		const struct or_op *op = or_op_at(&s->ops, (uint32_t)q);
		want(op->slotted == (i == 0) && op->whole == (i == 1), bytes, "the receive is staged in the wrong kind of memory");
		memset(i == 0 ? s->slab.memory + op->slot : or_chunk_at(s, op->spare.list[0]), 7, bytes);
		struct or_producer sidecar = {.tail = s->complete.pos};
		or_view_init(&sidecar.view, complete, 16);
		struct or_descriptor d = {.op = OR_OP_DONE, .req = (uint32_t)q, .status = OR_STATUS_TRUNCATED, .len = UINT64_MAX};
		want(or_push(&sidecar, &d) == 1, bytes, "publishing a completion");
		want(outrigger_test(s, q, &over, &r) == OUTRIGGER_TRUNCATED && over, bytes, "the receive does not report truncation");
		want(buffer[0] == 7 && buffer[bytes - 1] == 7, bytes, "the buffer lacks the beginning of the message");
	}
	all_free(s, 1 << 20, chunks, slots);
}

int main(void)
{
	for (uint64_t slab = 1 << 18; slab <= 1 << 22; slab <<= 2) {
		moving(slab, 0);
		moving(slab, 1 << 16);
		moving(slab, 1 << 24);
	}
	truncated();
	passed(true);
	passed(false);
	puts("chunks: ok");
	return 0;
}
