/* Staging (LAYOUT §5.1): a message of private memory that is larger than a slot of the slab goes
 * through chunks of shared memory, in order. The Go client has it in clientlib/stage.go and
 * slab.go.
 *
 *   send                                      receive
 *   or_next_chunk fills a chunk, submits it   OR_OP_MATCHED: or_next_chunk submits an empty chunk
 *   OR_OP_STAGED: or_chunk_returned gets it back      OR_OP_STAGED: or_chunk_returned copies it out
 *
 * Each end has at most OR_STAGE_DEPTH chunks with the engine. An operation that finds no chunk
 * is queued in starved, and or_feed_starved gives it the next one that is freed. */
#include "session.h"

/* The size of a chunk: large enough to hide the cost of handing it over, small enough that
 * copying one chunk overlaps with sending another. If a message has more than OR_STAGE_DEPTH
 * chunks, they are up to PIECE_MOST times as large. */
#define PIECE_BYTES 65536u
#define PIECE_MOST 4
/* Even the smallest slab has two chunks for sends and two for receives. */
#define CHUNKS_MIN 4
/* The part of the arena that chunks may take that no peer waits for, and its bound in bytes:
 * data that is copied long before it is sent has left the cache by then. */
#define ARENA_SHARE 4
#define ARENA_MOST 2097152u

/* A slot holds a message of the eager size with a header of a few words, as an MPI has it. */
#define SLOT_EXTRA 64u

static uint64_t aligned(uint64_t n) { return n & ~(uint64_t)(OR_ARENA_ALIGN - 1); }

/* or_slab_init cuts the slab: three eighths into chunks, the rest into slots. It fails if there
 * is no memory for the lists, or the slab is too small for a chunk or an eager message. */
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

/* A walk is a position in the segments of a message. */
struct walk {
	const struct iovec *iov;
	int left;
	uint64_t skip; /* number of bytes of the first segment before the position */
};

/* begin returns the walk at an offset of the message. */
static struct walk begin(const struct iovec *iov, int segments, uint64_t at)
{
	while (segments > 0 && at >= iov->iov_len) {
		at -= iov->iov_len;
		iov++;
		segments--;
	}
	return (struct walk){iov, segments, at};
}

/* step returns the length and address of the next contiguous range, at most most bytes, and
 * moves the walk behind it. 0: the message ends. */
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

/* or_gather copies bytes of a message, from an offset on, to contiguous memory. It returns how
 * many it copied, which is less if the message ends before. */
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

/* or_scatter copies contiguous memory to an offset of a message; what exceeds the message is
 * dropped. */
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

/* moves reports whether the peer waits for chunks of op, so that every chunk that op gets is
 * certain to be returned. */
static bool moves(const struct or_op *op) { return op->receives || op->peer_waits; }

/* shift removes the first chunk. */
static struct or_chunk shift(struct or_chunks *q)
{
	struct or_chunk k = q->list[0];
	q->count--;
	for (int i = 0; i < q->count; i++)
		q->list[i] = q->list[i + 1];
	return k;
}

/* or_chunk_at returns the address of a chunk. */
unsigned char *or_chunk_at(const outrigger *s, struct or_chunk k)
{
	return (k.class == OR_CLASS_ARENA ? s->arena.memory : s->slab.memory) + k.offset;
}

/* slab_chunk allocates a chunk of the slab for op, if at least leaves chunks remain for other
 * operations of its side. Sends have one half of the chunks and receives the other: if both took
 * from one pool, the sends of two ranks that exchange messages could hold all chunks while the
 * receives that they wait for get none, a deadlock. */
static bool slab_chunk(struct or_slab *slab, const struct or_op *op, size_t leaves, struct or_chunk *k)
{
	*k = (struct or_chunk){.class = OR_CLASS_SLAB, .bytes = slab->chunk_bytes};
	if (slab->held[op->receives] + leaves >= slab->half || !or_stack_pop(&slab->chunks, &k->offset))
		return false;
	slab->held[op->receives]++;
	return true;
}

/* arena_chunk allocates a chunk of the arena, if all chunks there then have at most most
 * bytes. */
static bool arena_chunk(outrigger *s, uint64_t bytes, uint64_t most, struct or_chunk *k)
{
	*k = (struct or_chunk){.class = OR_CLASS_ARENA, .bytes = bytes};
	if (bytes > most || s->slab.borrowed > most - bytes || !or_arena_alloc(&s->arena, bytes, false, &k->offset))
		return false;
	s->slab.borrowed += bytes;
	return true;
}

/* arena_share returns how many bytes of the arena chunks may take that no peer waits for. */
static uint64_t arena_share(const outrigger *s)
{
	uint64_t part = s->arena.size / ARENA_SHARE;
	return part < ARENA_MOST ? part : ARENA_MOST;
}

/* chunk_for allocates a chunk for the next part of a message. An operation keeps its chunks until
 * it ends, so that every message that moves continues to move. A send that no receive has matched
 * yet may hold its chunks for ever: it gets them only while enough are free, and is queued again
 * when its receive has matched. Such sends leave one chunk of the slab to sends that move, and
 * whole receives leave half of theirs. Beyond that, chunks come from the arena. */
static bool chunk_for(outrigger *s, struct or_op *op, struct or_chunk *k)
{
	struct or_slab *slab = &s->slab;
	if (op->spare.count > 0) {
		*k = shift(&op->spare);
		return true;
	}
	uint64_t n = op->want / OR_STAGE_DEPTH / slab->chunk_bytes;
	if (n > 1 && arena_chunk(s, (n < PIECE_MOST ? n : PIECE_MOST) * slab->chunk_bytes, arena_share(s), k))
		return true;
	bool needed = moves(op) && op->with_engine.count == 0;
	return slab_chunk(slab, op, moves(op) ? 0 : 1, k) || arena_chunk(s, slab->chunk_bytes, needed ? s->arena.size : arena_share(s), k);
}

/* or_alloc_whole allocates one chunk for a whole message that is too large for a slot and fits into a
 * chunk: the message then needs no staging. A receive may hold its chunk for ever. */
bool or_alloc_whole(outrigger *s, struct or_op *op, uint64_t bytes)
{
	struct or_slab *slab = &s->slab;
	struct or_chunk k;
	if (bytes <= slab->slot_bytes || bytes > slab->chunk_bytes)
		return false;
	size_t leaves = op->receives ? slab->half / 2 : 1;
	if (!slab_chunk(slab, op, leaves, &k) && !arena_chunk(s, aligned(bytes + OR_ARENA_ALIGN - 1), arena_share(s) / 2, &k))
		return false;
	op->whole = true;
	op->spare.list[op->spare.count++] = k;
	return true;
}

/* or_alloc_copy allocates one chunk of the arena for the copy of a message of any length, so that the
 * sidecar has the whole message at once. */
bool or_alloc_copy(outrigger *s, struct or_op *op, uint64_t bytes)
{
	struct or_chunk k;
	if (op->receives || !arena_chunk(s, aligned(bytes + OR_ARENA_ALIGN - 1), arena_share(s), &k))
		return false;
	op->whole = true;
	op->spare.list[op->spare.count++] = k;
	return true;
}

static void free_chunk(outrigger *s, const struct or_op *op, struct or_chunk k)
{
	if (k.class == OR_CLASS_ARENA) {
		(void)or_arena_release(&s->arena, k.offset); /* cannot fail: it was allocated there */
		s->slab.borrowed -= k.bytes;
	} else {
		(void)or_stack_push(&s->slab.chunks, k.offset); /* cannot fail: it was popped from this stack */
		s->slab.held[op->receives]--;
	}
}

/* or_free_chunks frees all chunks of an operation that has ended. */
void or_free_chunks(outrigger *s, struct or_op *op)
{
	op->whole = false;
	/* The engine returns no chunk that it received after the operation had ended. */
	while (op->with_engine.count > 0)
		free_chunk(s, op, shift(&op->with_engine));
	while (op->spare.count > 0)
		free_chunk(s, op, shift(&op->spare));
}

/* or_queue_stage queues an operation for which chunks can be submitted. */
void or_queue_stage(outrigger *s, uint32_t id, struct or_op *op)
{
	if (!op->queued && !op->done && op->offset < op->want)
		op->queued = or_queue_push(&s->stage, id) == 0;
}

/* or_next_chunk fills in the descriptor of the next chunk of a staged operation: a filled chunk
 * of a send, an empty chunk of a matched receive. false: the operation needs no chunk now, or
 * none is free; if the peer waits for it, it is then queued in starved. */
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

/* feed gives chunks to the starved operations of one side, in the order of their requests. */
static void feed(outrigger *s, bool receives)
{
	struct or_queue *q = &s->starved[receives];
	uint32_t id;
	while (or_queue_first(q, &id)) {
		struct or_op *op = or_op_at(&s->ops, id);
		struct or_chunk k;
		bool wants = op->open && moves(op) && !op->done && op->offset < op->want;
		bool other = wants && op->receives != receives; /* the number has been reused by an operation of the other side */
		if (wants && !other && !chunk_for(s, op, &k))
			return;
		(void)or_queue_pop(q, &id);
		op->queued = false;
		if (other) {
			op->queued = or_queue_push(&s->starved[op->receives], id) == 0;
		} else if (wants) { /* otherwise it has ended */
			op->spare.list[op->spare.count++] = k;
			or_queue_stage(s, id, op);
		}
	}
}

/* or_feed_starved gives chunks to the starved operations of both sides. Each side has a queue of its own:
 * in a single queue a receive could wait behind a send, and two ranks could each wait for what
 * the other one's send waits to send. */
void or_feed_starved(outrigger *s)
{
	if (s->starved[0].count + s->starved[1].count == 0)
		return;
	feed(s, false);
	feed(s, true);
}

/* or_chunk_returned handles a chunk that the engine returns: one that was sent, or one with a part of
 * the received message. Chunks return in the order of submission; any other one is a protocol
 * violation. */
int or_chunk_returned(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d)
{
	const struct or_chunk *first = &op->with_engine.list[0];
	if (op->with_engine.count == 0 || first->class != d->class || first->offset != d->addr || d->len > first->bytes)
		return OUTRIGGER_NO_SIDECAR;
	struct or_chunk k = shift(&op->with_engine);
	op->peer_waits = true;
	if (op->receives)
		or_scatter(op->iov, op->segments, d->aux, or_chunk_at(s, k), d->len);
	if (op->offset < op->want) {
		op->spare.list[op->spare.count++] = k;
		or_queue_stage(s, id, op);
	} else {
		free_chunk(s, op, k);
	}
	return OUTRIGGER_OK;
}
