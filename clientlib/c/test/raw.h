/* What the honest and the hostile rank share: descriptors that the library has no call
 * for go through its own door, by its own requests. */
#ifndef OUTRIGGER_TEST_RAW_H
#define OUTRIGGER_TEST_RAW_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "session.h"

/* Rank 1 of the job is the hostile one. */
#define HOSTILE 1u

/* What the honest ranks 0 and 2, beside it, and 3, in another pod, have open with it. */
#define WINDOW 9u
#define WINDOW_BYTES 4096u
#define LARGE (1u << 20)
#define FROM_HOSTILE 99u /* tag of a message of LARGE bytes that each waits for */
#define TO_HOSTILE 98u   /* and of one that each sends */
#define ELEMENTS 4096u   /* 64-bit numbers of the sum over all ranks that each asks for */

/* raw submits a descriptor as a request of its own. */
static inline int raw(outrigger *s, struct or_descriptor d, outrigger_request *request)
{
	uint32_t id;
	struct or_op *op;
	pthread_mutex_lock(&s->lock);
	int rc = or_begin_op(s, &id, &op);
	if (rc == OUTRIGGER_OK) {
		d.req = id;
		*request = (uint64_t)op->gen << 32 | id;
		rc = or_submit(s, &d);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static inline uint64_t offset_of(const outrigger *s, const void *memory)
{
	return (uint64_t)((const unsigned char *)memory - s->arena.memory);
}

/* allocated has the sidecar allocate the first bytes of the arena, for descriptors that name
 * memory which no function of the library has given. */
static inline bool allocated(outrigger *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	bool ok = bytes <= s->arena.ready || or_grow_arena(s, &s->arena.ready, bytes, bytes, true);
	pthread_mutex_unlock(&s->lock);
	return ok;
}

/* A block of LAYOUT §5.4. */
struct block {
	uint8_t kind, type, op, flags;
	uint32_t root, context, vectors;
	uint64_t count, each, in, in_bytes, out, out_bytes, scratch, scratch_bytes;
	uint32_t algorithm, zero;
};

_Static_assert(sizeof(struct block) == OR_COLL_BLOCK_BYTES, "block");

/* The sum of all ranks' numbers, each of them 1 more than the rank. */
struct sum {
	struct block block;
	uint64_t in[ELEMENTS], out[ELEMENTS], scratch[ELEMENTS];
};

static inline struct sum *sum_new(outrigger *s)
{
	struct sum *a = outrigger_alloc(s, sizeof *a);
	if (a == NULL)
		return NULL;
	a->block = (struct block){
		.kind = OR_COLL_ALLREDUCE, .type = OR_TYPE_UINT64, .op = OR_REDUCE_SUM, .flags = OR_COLL_COMMUTATIVE, .count = ELEMENTS, .each = 8,
		.in = offset_of(s, a->in), .in_bytes = sizeof a->in, .out = offset_of(s, a->out), .out_bytes = sizeof a->out,
		.scratch = offset_of(s, a->scratch), .scratch_bytes = sizeof a->scratch,
	};
	for (size_t i = 0; i < ELEMENTS; i++)
		a->in[i] = s->world.rank + 1;
	return a;
}

static inline struct or_descriptor named(const outrigger *s, uint8_t op, const void *memory, uint64_t bytes)
{
	return (struct or_descriptor){.op = op, .class = OR_CLASS_ARENA, .addr = offset_of(s, memory), .len = bytes};
}

#endif
