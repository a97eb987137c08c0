/* Shared by honest.c, hostile.c and dying.c: functions that submit descriptors for which the
 * library has no function, as requests in the library's table. */
#ifndef OUTRIGGER_TEST_RAW_H
#define OUTRIGGER_TEST_RAW_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "session.h"

/* Rank 1 of the job is the hostile one. */
#define HOSTILE 1u

/* Operations in flight between the hostile rank and each honest rank: 0 and 2 in its pod, 3
 * in another. */
#define WINDOW 9u
#define WINDOW_BYTES 4096u
#define LARGE (1u << 20)
#define FROM_HOSTILE 99u /* tag of a message of LARGE bytes that each honest rank receives */
#define TO_HOSTILE 98u   /* tag of a message of LARGE bytes that each honest rank sends */
#define ELEMENTS 4096u   /* 64-bit elements of the sum over all ranks */

/* raw submits a descriptor as a new request. */
static inline int raw(outrigger *s, struct or_descriptor d, outrigger_request *request)
{
	uint32_t id;
	struct or_op *op;
	int rc = or_enter(s);
	if (rc != OUTRIGGER_OK)
		return rc;
	rc = or_begin_op(s, &id, &op);
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

/* allocated makes the sidecar allocate the first bytes of the arena, for descriptors that name
 * memory that the library has not returned. */
static inline bool allocated(outrigger *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	bool ok = bytes <= s->arena.ready || or_grow_arena(s, &s->arena.ready, bytes, bytes, true);
	pthread_mutex_unlock(&s->lock);
	return ok;
}

/* A collective's block (LAYOUT.md §5.4). */
struct block {
	uint8_t kind, type, op, flags;
	uint32_t root, context, vectors;
	uint64_t count, each, in, in_bytes, out, out_bytes, scratch, scratch_bytes;
	uint32_t algorithm, zero;
};

_Static_assert(sizeof(struct block) == OR_COLL_BLOCK_BYTES, "block");

/* sum is a collective that adds vectors of all ranks; each element is the rank plus 1. */
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
