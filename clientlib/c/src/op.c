/* The table of operations, one for each request number. The Go client has it in
 * clientlib/operation.go. */
#include <stdlib.h>

#include "session.h"

struct or_op *or_op_at(const struct or_ops *t, uint32_t id)
{
	return &t->blocks[id / OR_OP_BLOCK][id % OR_OP_BLOCK];
}

/* grow allocates one more block of operations and adds their numbers to the free list. */
static int grow(struct or_ops *t)
{
	if (t->count >= OR_MAX_REQUESTS)
		return OUTRIGGER_TOO_MANY;
	if (t->blocks == NULL) {
		t->blocks = calloc(OR_MAX_REQUESTS / OR_OP_BLOCK, sizeof *t->blocks);
		if (t->blocks == NULL)
			return OUTRIGGER_NO_MEMORY;
	}
	struct or_op *block = calloc(OR_OP_BLOCK, sizeof *block);
	if (block == NULL)
		return OUTRIGGER_NO_MEMORY;
	t->blocks[t->count / OR_OP_BLOCK] = block;
	for (uint32_t i = OR_OP_BLOCK; i-- > 0;) {
		block[i].gen = 1;
		if (or_stack_push(&t->free, t->count + i) != 0)
			return OUTRIGGER_NO_MEMORY; /* only the first push can fail: it makes room for a block */
	}
	t->count += OR_OP_BLOCK;
	return OUTRIGGER_OK;
}

/* note_used changes the number of open requests. Writers hold the session's lock, and only
 * readers do not; therefore a relaxed load and store do, without a locked instruction. */
static void note_used(struct or_ops *t, uint32_t more)
{
	atomic_store_explicit(&t->used, atomic_load_explicit(&t->used, memory_order_relaxed) + more, memory_order_relaxed);
}

/* or_op_alloc allocates a request number and its operation. OUTRIGGER_TOO_MANY: all are in use. */
int or_op_alloc(struct or_ops *t, uint32_t *id, struct or_op **op)
{
	uint64_t v;
	if (t->free.count == 0) {
		int rc = grow(t);
		if (rc != OUTRIGGER_OK)
			return rc;
	}
	if (!or_stack_pop(&t->free, &v))
		return OUTRIGGER_NO_MEMORY;
	*id = (uint32_t)v;
	*op = or_op_at(t, *id);
	(*op)->open = true;
	note_used(t, 1);
	return OUTRIGGER_OK;
}

/* or_op_release frees a request number. The generation grows, so that a request that names the
 * ended operation is recognised. */
void or_op_release(struct or_ops *t, uint32_t id)
{
	struct or_op *op = or_op_at(t, id);
	note_used(t, (uint32_t)-1);
	if (op->unreported)
		t->unreported--;
	if (op->counted)
		t->private--;
	/* The number may be allocated again while a queue still has it. The flag queued is kept, so
	 * that no queue has a number twice. */
	uint32_t gen = op->gen + 1;
	bool queued = op->queued;
	op->gen = gen == 0 ? 1 : gen;
	op->open = op->done = op->receives = op->staged = op->slotted = op->whole = op->counted = op->in_place = op->peer_waits = op->unreported = op->cancels = op->reaches = false;
	op->queued = queued;
	op->notify = NULL;
	op->copy = NULL;
	op->offset = op->want = op->room = 0;
	op->with_engine.count = op->spare.count = 0;
	(void)or_stack_push(&t->free, id); /* cannot fail: the number was popped from this stack */
}

void or_ops_free(struct or_ops *t)
{
	for (uint32_t i = 0; i < t->count; i++)
		free(or_op_at(t, i)->copy);
	for (uint32_t i = 0; i < t->count / OR_OP_BLOCK; i++)
		free(t->blocks[i]);
	free(t->blocks);
	free(t->free.list);
}

uint32_t outrigger_room(const outrigger *s) { return OR_MAX_REQUESTS - atomic_load_explicit(&s->ops.used, memory_order_relaxed); }
