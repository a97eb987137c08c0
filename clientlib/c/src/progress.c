/* Progress: handles completions and submits the chunks that they ask for. The Go client has it
 * in clientlib/progress.go and submit.go. */
#include "session.h"

/* or_begin_op allocates an operation. If all request numbers are in use, it handles completions
 * once, which may free some. */
int or_begin_op(outrigger *s, uint32_t *id, struct or_op **op)
{
	if (s->gone)
		return OUTRIGGER_NO_SIDECAR;
	int rc = or_op_alloc(&s->ops, id, op);
	if (rc == OUTRIGGER_TOO_MANY) {
		/* Sends without request and callback free their numbers when they complete. */
		rc = or_progress(s);
		rc = rc == OUTRIGGER_OK ? or_op_alloc(&s->ops, id, op) : rc;
	}
	if (rc == OUTRIGGER_OK)
		or_end_vain();
	return rc;
}

/* or_submit_chunks submits chunks of a staged operation. It must not be called while another submission
 * waits for room in the ring: chunks of one message would overtake each other. */
int or_submit_chunks(outrigger *s, uint32_t id, struct or_op *op)
{
	struct or_descriptor d;
	int rc = OUTRIGGER_OK;
	while (rc == OUTRIGGER_OK && or_next_chunk(s, id, op, &d))
		rc = or_submit(s, &d);
	return rc;
}

/* How often a program that only polls asks whether the sidecar has ended. Sleeps ask, too, but a
 * program whose threads poll by turns may never sleep. */
#define ASK_NS 100000000u

/* ended reports, every ASK_NS, whether the sidecar has ended and nothing of it is left to read. */
static bool ended(outrigger *s)
{
	uint64_t now = or_now();
	if (now - s->asked < ASK_NS || or_ready(&s->complete))
		return false;
	s->asked = now;
	return or_sidecar_ended(s) && !or_ready(&s->complete);
}

/* or_poll is or_progress for a call of the program itself, and notes for the sidecar whether the
 * program waits. Completions that other threads have handled since the program's last poll count
 * as found by this one. */
int or_poll(outrigger *s)
{
	or_program_back(s);
	or_activity_begin_poll(s);
	int rc = or_progress(s);
	or_activity_end_poll(s, s->completed - s->polled);
	s->polled = s->completed;
	return rc == OUTRIGGER_OK && ended(s) ? OUTRIGGER_NO_SIDECAR : rc;
}

/* or_progress handles the completions that are in the ring and supplies the chunks that they ask
 * for. */
int or_progress(outrigger *s)
{
	if (s->forked)
		return OUTRIGGER_NO_SIDECAR;
	int rc = or_handle_completions(s);
	uint32_t id;
	or_feed_starved(s);
	/* More requests for chunks arrive during the loop. If there is a watcher, it serves those,
	 * and the program returns after the ones that were queued at the beginning: otherwise its
	 * isend or irecv would last as long as the transfer. */
	size_t most = s->watch.there ? s->stage.count : SIZE_MAX;
	while (rc == OUTRIGGER_OK && most-- > 0 && or_queue_pop(&s->stage, &id)) {
		struct or_op *op = or_op_at(&s->ops, id);
		op->queued = false;
		if (op->open && !op->done)
			rc = or_submit_chunks(s, id, op);
		if (rc == OUTRIGGER_OK)
			rc = or_handle_completions(s);
		or_feed_starved(s);
	}
	return rc;
}
