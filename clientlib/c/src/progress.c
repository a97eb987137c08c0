/* Progress: completions are taken, and the chunks that they ask for are submitted. */
#include "session.h"

int or_begin(outrigger *s, uint32_t *id, struct or_op **op)
{
	if (s->gone)
		return OUTRIGGER_NO_SIDECAR;
	int rc = or_op_take(&s->ops, id, op);
	if (rc != OUTRIGGER_TOO_MANY)
		return rc;
	/* Silent sends free their numbers when their completions are taken. */
	rc = or_progress(s);
	return rc == OUTRIGGER_OK ? or_op_take(&s->ops, id, op) : rc;
}

/* or_stage submits chunks of a staged operation. It is called between submissions only: chunks of
 * one message must not overtake each other. */
int or_stage(outrigger *s, uint32_t id, struct or_op *op)
{
	struct or_descriptor d;
	int rc = OUTRIGGER_OK;
	while (rc == OUTRIGGER_OK && or_next_chunk(s, id, op, &d))
		rc = or_submit(s, &d);
	return rc;
}

/* or_look is or_progress for the program itself, which so shows where it is. What others
 * have taken for it since its last look, it finds. */
int or_look(outrigger *s)
{
	or_back(s);
	or_place_back(s);
	int rc = or_progress(s);
	or_place_looks(s, s->taken - s->looked);
	s->looked = s->taken;
	return rc;
}

/* or_progress takes what has come, and supplies the chunks that it asks for. */
int or_progress(outrigger *s)
{
	if (s->forked)
		return OUTRIGGER_NO_SIDECAR;
	int rc = or_drain(s);
	uint32_t id;
	or_feed(s);
	/* More comes while it is supplied. Where a watcher takes that, the program is to go on:
	 * else its isend or irecv would last as long as the message. */
	size_t most = s->watch.there ? s->stage.count : SIZE_MAX;
	while (rc == OUTRIGGER_OK && most-- > 0 && or_queue_pop(&s->stage, &id)) {
		struct or_op *op = or_op_at(&s->ops, id);
		op->queued = false;
		if (op->open && !op->done)
			rc = or_stage(s, id, op);
		if (rc == OUTRIGGER_OK)
			rc = or_drain(s);
		or_feed(s);
	}
	return rc;
}
