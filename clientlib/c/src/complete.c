/* Completions: LAYOUT §6. Nothing is submitted here: what a completion asks for is noted. */
#include <stdlib.h>

#include "session.h"

/* or_drop frees a request and whatever it still has. The engine is done with
 * it, or never heard of it. */
void or_drop(outrigger *s, uint32_t id, struct or_op *op)
{
	if (op->slotted)
		(void)or_stack_push(&s->slab.slots, op->slot); /* its place was there */
	or_give_chunks(s, op);
	free(op->copy);
	or_op_release(&s->ops, id);
}

static bool inline_result(const struct or_descriptor *d) { return d->class == OR_CLASS_INLINE; }

/* deposit copies a message of a receive to where the caller wants it: of one that was
 * longer, its beginning. */
static void deposit(outrigger *s, struct or_op *op, const struct or_descriptor *d)
{
	struct or_chunk k = op->whole ? op->spare.list[0] : (struct or_chunk){OR_CLASS_SLAB, op->slot, s->slab.slot_bytes};
	if (inline_result(d))
		or_scatter(op->iov, op->segments, 0, d->payload, op->result.length);
	else if ((op->slotted || op->whole) && (d->status == OR_STATUS_OK || d->status == OR_STATUS_TRUNCATED))
		or_scatter(op->iov, op->segments, 0, or_chunk_at(s, k), d->len < k.bytes ? d->len : k.bytes);
}

static void done(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d)
{
	struct outrigger_result *r = &op->result;
	op->done = true;
	r->status = (int)d->status;
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
		(void)or_stack_push(&s->slab.slots, op->slot); /* its place was there */
		op->slotted = false;
	}
	or_give_chunks(s, op);
	if (op->notify == NULL && !op->nobody)
		return; /* a caller waits for it */
	outrigger_done notify = op->notify;
	void *arg = op->arg;
	struct outrigger_result result = *r;
	or_drop(s, id, op);
	if (notify != NULL)
		notify(arg, &result);
}

static void matched(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d)
{
	op->asked = true;
	if (op->receives)
		op->want = d->len < op->room ? d->len : op->room;
	or_want_stage(s, id, op);
}

static int take(outrigger *s, const struct or_descriptor *d)
{
	if (d->op == OR_OP_FAILED) {
		s->failed = true;
		return OUTRIGGER_OK;
	}
	if (d->req >= s->ops.count || !or_op_at(&s->ops, d->req)->open) {
		s->gone = s->lied = true; /* it speaks of a request that there is not */
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
		int rc = or_staged(s, d->req, op, d);
		if (rc != OUTRIGGER_OK)
			s->gone = s->lied = true;
		return rc;
	}
	}
	return OUTRIGGER_OK; /* nothing that this library has asked for */
}

/* or_drain takes every completion that is there, up to a lie. It submits nothing. */
int or_drain(outrigger *s)
{
	struct or_descriptor d;
	unsigned before = s->taken;
	int rc = s->lied ? OUTRIGGER_NO_SIDECAR : OUTRIGGER_OK;
	while (rc == OUTRIGGER_OK && or_pop(&s->complete, &d)) {
		s->taken++;
		rc = take(s, &d);
	}
	if (s->taken != before && s->sleepers > 0)
		or_rouse(s); /* what came may be for another thread */
	return rc;
}
