/* Completions (LAYOUT §6). Nothing is submitted here: if a completion asks for chunks, the
 * operation is queued for or_progress, which submits them. The Go client has it in
 * clientlib/progress.go. */
#include <stdlib.h>

#include "session.h"

/* or_free_op frees an operation with its slot, chunks and copy. The engine has completed it, or
 * has never received it. */
void or_free_op(outrigger *s, uint32_t id, struct or_op *op)
{
	if (op->slotted)
		(void)or_stack_push(&s->slab.slots, op->slot); /* cannot fail: the slot was popped from this stack */
	or_free_chunks(s, op);
	free(op->copy);
	or_op_release(&s->ops, id);
}

static bool inline_result(const struct or_descriptor *d) { return d->class == OR_CLASS_INLINE; }

/* deposit copies a received message from shared memory to the caller's segments. If the
 * message was longer than the buffer, it copies as much as the buffer holds. */
static void deposit(outrigger *s, struct or_op *op, const struct or_descriptor *d)
{
	struct or_chunk k = op->whole ? op->spare.list[0] : (struct or_chunk){OR_CLASS_SLAB, op->slot, s->slab.slot_bytes};
	if (inline_result(d))
		or_scatter(op->iov, op->segments, 0, d->payload, op->result.length);
	else if ((op->slotted || op->whole) && (d->status == OR_STATUS_OK || d->status == OR_STATUS_TRUNCATED))
		or_scatter(op->iov, op->segments, 0, or_chunk_at(s, k), d->len < k.bytes ? d->len : k.bytes);
}

/* done completes an operation: it fills in the result, copies the message, returns the memory
 * and calls the callback. An operation without callback and without request is freed. */
static void done(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d)
{
	struct outrigger_result *r = &op->result;
	op->done = true;
	r->status = (int)d->status;
	s->in_vain += r->status == OUTRIGGER_NO_MESSAGE || op->reaches;
	r->peer = d->peer;
	r->tag = d->tag;
	r->length = inline_result(d) ? (d->inline_length > OR_INLINE_MAX ? OR_INLINE_MAX : d->inline_length) : d->len;
	r->handle = inline_result(d) ? 0 : d->aux;
	r->has_data = (d->flags & OR_FLAG_DATA) != 0;
	r->data = r->has_data ? d->context : 0;
	if (op->receives) {
		deposit(s, op, d);
		*(op->in_place ? &s->traffic.received_in_place : &s->traffic.received_copied) += r->status == OUTRIGGER_OK ? r->length : 0;
	}
	if (op->slotted) {
		(void)or_stack_push(&s->slab.slots, op->slot); /* cannot fail: the slot was popped from this stack */
		op->slotted = false;
	}
	or_free_chunks(s, op);
	if (op->notify == NULL && !op->unreported)
		return; /* the caller's wait or test frees it */
	outrigger_done notify = op->notify;
	void *arg = op->arg;
	struct outrigger_result result = *r;
	or_free_op(s, id, op);
	if (notify != NULL)
		notify(arg, &result);
}

/* matched notes that the peer has an operation that matches op, and queues op for its chunks. */
static void matched(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d)
{
	op->peer_waits = true;
	if (op->receives)
		op->want = d->len < op->room ? d->len : op->room;
	or_queue_stage(s, id, op);
}

/* take handles one completion. A completion that names no open request, or a chunk that is not
 * with the engine, is a protocol violation: the session ends. */
static int take(outrigger *s, const struct or_descriptor *d)
{
	if (d->op == OR_OP_FAILED) {
		s->failed = true;
		return OUTRIGGER_OK;
	}
	if (d->req >= s->ops.count || !or_op_at(&s->ops, d->req)->open) {
		s->violated = true; /* no such request is open */
		or_set(s->gone, true);
		return OUTRIGGER_NO_SIDECAR;
	}
	struct or_op *op = or_op_at(&s->ops, d->req);
	switch (d->op) {
	case OR_OP_DONE:
		done(s, d->req, op, d);
		return OUTRIGGER_OK;
	case OR_OP_MATCHED:
		matched(s, d->req, op, d);
		return OUTRIGGER_OK;
	case OR_OP_STAGED: {
		int rc = or_chunk_returned(s, d->req, op, d);
		if (rc != OUTRIGGER_OK) {
			s->violated = true;
			or_set(s->gone, true);
		}
		return rc;
	}
	}
	return OUTRIGGER_OK; /* a completion that no operation of this library causes */
}

/* or_handle_completions handles all completions that are in the ring, up to a protocol violation. It submits
 * nothing, so that or_submit may call it. */
int or_handle_completions(outrigger *s)
{
	struct or_descriptor d;
	unsigned before = s->completed;
	int rc = s->violated ? OUTRIGGER_NO_SIDECAR : OUTRIGGER_OK;
	while (rc == OUTRIGGER_OK && or_pop(&s->complete, &d)) {
		or_set(s->completed, s->completed + 1);
		rc = take(s, &d);
	}
	if (s->completed != before) /* one writer, by the lock: no locked instruction */
		atomic_store_explicit(&s->handled, atomic_load_explicit(&s->handled, memory_order_relaxed) + 1, memory_order_relaxed);
	if (s->completed != before && s->sleepers > 0)
		or_wake_sleepers(s); /* a completion may be for another thread */
	return rc;
}
