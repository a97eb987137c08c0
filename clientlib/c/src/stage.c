/* Messages of private memory that is larger than a slot of the slab go through
 * chunks of shared memory, in order: LAYOUT §5.1. */
#include "session.h"

/* A piece of a message is large enough to hide the hand-over, and small enough that
 * copying one overlaps with sending another. Larger ones, of messages that are as many
 * of them as may be under way, are up to PIECE_MOST times as large. */
#define PIECE_BYTES 65536u
#define PIECE_MOST 4
/* Even the smallest slab has two chunks for sends and two for receives. */
#define CHUNKS_MIN 4
/* The part of the arena that chunks take which nobody waits for, and the most: what is
 * copied long before it is asked for leaves the cache meanwhile. */
#define ARENA_SHARE 4
#define ARENA_MOST 2097152u

/* The slot takes a message of the eager size with a few words before it. */
#define SLOT_EXTRA 64u

static uint64_t aligned(uint64_t n) { return n & ~(uint64_t)(OR_ARENA_ALIGN - 1); }

int or_slab_init(struct or_slab *slab, unsigned char *memory, uint64_t size, uint64_t eager)
{
	uint64_t share = size / 8 * 3;
	slab->memory = memory;
	slab->slot_bytes = aligned(eager + SLOT_EXTRA + OR_ARENA_ALIGN - 1);
	slab->chunk_bytes = aligned(share / CHUNKS_MIN);
	if (slab->chunk_bytes > PIECE_BYTES)
		slab->chunk_bytes = PIECE_BYTES;
	if (slab->chunk_bytes == 0 || eager > size)
		return -1;
	uint64_t chunks = share / slab->chunk_bytes, at = 0;
	slab->half = chunks / 2;
	for (; at < chunks * slab->chunk_bytes; at += slab->chunk_bytes)
		if (or_stack_push(&slab->chunks, at) != 0)
			return -1;
	for (; at + slab->slot_bytes <= size; at += slab->slot_bytes)
		if (or_stack_push(&slab->slots, at) != 0)
			return -1;
	return 0;
}

/* walk finds the piece of the segments at a place of the message. */
struct walk {
	const struct iovec *iov;
	int left;
	uint64_t skip; /* of the first one */
};

static struct walk begin(const struct iovec *iov, int segments, uint64_t at)
{
	while (segments > 0 && at >= iov->iov_len) {
		at -= iov->iov_len;
		iov++;
		segments--;
	}
	return (struct walk){iov, segments, at};
}

static uint64_t step(struct walk *w, uint64_t most, unsigned char **memory)
{
	while (w->left > 0) {
		uint64_t n = w->iov->iov_len - w->skip;
		*memory = (unsigned char *)w->iov->iov_base + w->skip;
		if (n > most) {
			w->skip += most;
			return most;
		}
		w->iov++;
		w->left--;
		w->skip = 0;
		if (n > 0)
			return n;
	}
	return 0;
}

uint64_t or_gather(const struct iovec *iov, int segments, uint64_t from, unsigned char *to, uint64_t bytes)
{
	struct walk w = begin(iov, segments, from);
	uint64_t done = 0, n;
	unsigned char *memory;
	while (done < bytes && (n = step(&w, bytes - done, &memory)) > 0) {
		memcpy(to + done, memory, n);
		done += n;
	}
	return done;
}

void or_scatter(const struct iovec *iov, int segments, uint64_t at, const unsigned char *from, uint64_t bytes)
{
	struct walk w = begin(iov, segments, at);
	uint64_t done = 0, n;
	unsigned char *memory;
	while (done < bytes && (n = step(&w, bytes - done, &memory)) > 0) {
		memcpy(memory, from + done, n);
		done += n;
	}
}

/* moves reports whether the other side waits for chunks of op, so that what op
 * is lent is certain to come back. */
static bool moves(const struct or_op *op) { return op->receives || op->asked; }

static struct or_chunk shift(struct or_chunks *q)
{
	struct or_chunk k = q->list[0];
	q->count--;
	for (int i = 0; i < q->count; i++)
		q->list[i] = q->list[i + 1];
	return k;
}

unsigned char *or_chunk_at(const outrigger *s, struct or_chunk k)
{
	return (k.class == OR_CLASS_ARENA ? s->arena.memory : s->slab.memory) + k.offset;
}

/* of_slab takes a chunk of the slab for op, which leaves so many to others of its side:
 * sends have one half of them, and receives the other. What both wanted they could keep
 * from each other, and two ranks that exchange messages wait for ever. */
static bool of_slab(struct or_slab *slab, const struct or_op *op, size_t leaves, struct or_chunk *k)
{
	*k = (struct or_chunk){.class = OR_CLASS_SLAB, .bytes = slab->chunk_bytes};
	if (slab->held[op->receives] + leaves >= slab->half || !or_stack_pop(&slab->chunks, &k->offset))
		return false;
	slab->held[op->receives]++;
	return true;
}

/* of_arena takes a chunk of the arena, in which there are no more than most bytes of
 * chunks then. */
static bool of_arena(outrigger *s, uint64_t bytes, uint64_t most, struct or_chunk *k)
{
	*k = (struct or_chunk){.class = OR_CLASS_ARENA, .bytes = bytes};
	if (bytes > most || s->slab.borrowed > most - bytes || !or_arena_take(&s->arena, bytes, false, &k->offset))
		return false;
	s->slab.borrowed += bytes;
	return true;
}

/* arena_share is how much of the arena chunks may take which nobody waits for. */
static uint64_t arena_share(const outrigger *s)
{
	uint64_t part = s->arena.size / ARENA_SHARE;
	return part < ARENA_MOST ? part : ARENA_MOST;
}

/* chunk_for finds memory for the next piece. An operation keeps the chunks that
 * it has until its end, so that every message that moves can go on. One that
 * nobody has asked for yet may hold its chunks for ever: it gets them while
 * there are plenty, and is asked again when its receive is there. Such sends
 * leave one chunk of the slab's to sends that move, and whole receives leave
 * half of theirs; past that the arena serves. */
static bool chunk_for(outrigger *s, struct or_op *op, struct or_chunk *k)
{
	struct or_slab *slab = &s->slab;
	if (op->spare.count > 0) {
		*k = shift(&op->spare);
		return true;
	}
	uint64_t n = op->want / OR_STAGE_DEPTH / slab->chunk_bytes;
	if (n > 1 && of_arena(s, (n < PIECE_MOST ? n : PIECE_MOST) * slab->chunk_bytes, arena_share(s), k))
		return true;
	bool needed = moves(op) && op->with_engine.count == 0;
	return of_slab(slab, op, moves(op) ? 0 : 1, k) || of_arena(s, slab->chunk_bytes, needed ? s->arena.size : arena_share(s), k);
}

/* or_whole finds memory for all of a message that no slot takes and that is of one piece:
 * it goes, or comes, without being asked for. A receive may wait for ever. */
bool or_whole(outrigger *s, struct or_op *op, uint64_t bytes)
{
	struct or_slab *slab = &s->slab;
	struct or_chunk k;
	if (bytes <= slab->slot_bytes || bytes > slab->chunk_bytes)
		return false;
	size_t leaves = op->receives ? slab->half / 2 : 1;
	if (!of_slab(slab, op, leaves, &k) && !of_arena(s, aligned(bytes + OR_ARENA_ALIGN - 1), arena_share(s) / 2, &k))
		return false;
	op->whole = true;
	op->spare.list[op->spare.count++] = k;
	return true;
}

static void free_chunk(outrigger *s, const struct or_op *op, struct or_chunk k)
{
	if (k.class == OR_CLASS_ARENA) {
		(void)or_arena_give(&s->arena, k.offset); /* it came from there */
		s->slab.borrowed -= k.bytes;
	} else {
		(void)or_stack_push(&s->slab.chunks, k.offset); /* its place was there */
		s->slab.held[op->receives]--;
	}
}

void or_give_chunks(outrigger *s, struct or_op *op)
{
	op->whole = false;
	/* Chunks of which no OpStaged came were too late for the operation. */
	while (op->with_engine.count > 0)
		free_chunk(s, op, shift(&op->with_engine));
	while (op->spare.count > 0)
		free_chunk(s, op, shift(&op->spare));
}

void or_want_stage(outrigger *s, uint32_t id, struct or_op *op)
{
	if (!op->queued && !op->done && op->offset < op->want)
		op->queued = or_queue_push(&s->stage, id) == 0;
}

/* or_next_chunk makes the descriptor of the next chunk of a staged operation: a filled one of a
 * send, an empty one of a matched receive. false: it needs none now, or waits for one. */
bool or_next_chunk(outrigger *s, uint32_t id, struct or_op *op, struct or_descriptor *d)
{
	struct or_chunk k;
	if (op->done || op->offset >= op->want || op->with_engine.count >= OR_STAGE_DEPTH)
		return false;
	if (!chunk_for(s, op, &k)) {
		if (op->with_engine.count == 0 && moves(op) && !op->queued)
			op->queued = or_queue_push(&s->starved[op->receives], id) == 0;
		return false;
	}
	uint64_t n = op->want - op->offset;
	if (n > k.bytes)
		n = k.bytes;
	if (!op->receives)
		or_gather(op->iov, op->segments, op->offset, or_chunk_at(s, k), n);
	op->offset += n;
	op->with_engine.list[op->with_engine.count++] = k;
	*d = (struct or_descriptor){.op = OR_OP_STAGE, .class = k.class, .req = id, .addr = k.offset, .len = n};
	return true;
}

/* feed gives chunks to the operations of a side that wait for one, the oldest first. */
static void feed(outrigger *s, bool receives)
{
	struct or_queue *q = &s->starved[receives];
	uint32_t id;
	while (or_queue_first(q, &id)) {
		struct or_op *op = or_op_at(&s->ops, id);
		struct or_chunk k;
		bool wants = op->open && moves(op) && !op->done && op->offset < op->want;
		bool other = wants && op->receives != receives; /* the number is an operation's of the other side now */
		if (wants && !other && !chunk_for(s, op, &k))
			return;
		(void)or_queue_pop(q, &id);
		op->queued = false;
		if (other) {
			op->queued = or_queue_push(&s->starved[op->receives], id) == 0;
		} else if (wants) { /* else it has ended meanwhile */
			op->spare.list[op->spare.count++] = k;
			or_want_stage(s, id, op);
		}
	}
}

/* or_feed feeds both: one side does not wait for the other's chunks, or two ranks could wait
 * for each other, whose receives wait for what the other's sends wait to send. */
void or_feed(outrigger *s)
{
	if (s->starved[0].count + s->starved[1].count == 0)
		return;
	feed(s, false);
	feed(s, true);
}

/* or_staged takes a chunk back: one that was sent, or one with a part of the
 * message in it. */
int or_staged(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d)
{
	const struct or_chunk *first = &op->with_engine.list[0];
	if (op->with_engine.count == 0 || first->class != d->class || first->offset != d->addr || d->len > first->bytes)
		return OUTRIGGER_NO_SIDECAR;
	struct or_chunk k = shift(&op->with_engine);
	op->asked = true;
	if (op->receives)
		or_scatter(op->iov, op->segments, d->aux, or_chunk_at(s, k), d->len);
	if (op->offset < op->want) {
		op->spare.list[op->spare.count++] = k;
		or_want_stage(s, id, op);
	} else {
		free_chunk(s, op, k);
	}
	return OUTRIGGER_OK;
}
