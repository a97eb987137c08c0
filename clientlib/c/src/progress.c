/* Progress: handles completions and submits the chunks that they ask for. The Go client has it
 * in clientlib/progress.go and submit.go. */
#include "session.h"

/* or_begin_op allocates an operation. If all request numbers are in use, it handles completions
 * once, which may free some. It submits nothing before an operation that it has allocated: the entry
 * of the ring that or_enter has found is for this operation. If it allocates none, it submits chunks,
 * because a program may repeat its call until earlier sends of it have ended. */
int or_begin_op(outrigger *s, uint32_t *id, struct or_op **op)
{
	if (s->gone)
		return OUTRIGGER_NO_SIDECAR;
	int rc = or_op_alloc(&s->ops, id, op);
	if (rc == OUTRIGGER_TOO_MANY) {
		/* Sends without request and callback free their numbers when they complete. */
		rc = or_handle_completions(s);
		rc = rc == OUTRIGGER_OK ? or_op_alloc(&s->ops, id, op) : rc;
	}
	if (rc == OUTRIGGER_OK)
		or_end_vain();
	else if (rc == OUTRIGGER_TOO_MANY && or_progress(s) == OUTRIGGER_NO_SIDECAR)
		rc = OUTRIGGER_NO_SIDECAR;
	return rc;
}

/* or_submit_chunks submits chunks of a staged operation. Chunks for which the ring has no room are
 * left to the next poll. */
int or_submit_chunks(outrigger *s, uint32_t id, struct or_op *op)
{
	struct or_descriptor d;
	int rc = OUTRIGGER_OK;
	while (rc == OUTRIGGER_OK && or_has_room(&s->submit, 1) && or_next_chunk(s, id, op, &d))
		rc = or_submit(s, &d);
	if (!or_has_room(&s->submit, 1))
		or_queue_stage(s, id, op);
	return rc;
}

/* or_behind reports whether something waits for room in the ring. Nothing wakes a thread when there
 * is room. */
bool or_behind(outrigger *s) { return s->stage.count + s->cancels.count > 0 && !or_has_room(&s->submit, 1); }

/* How often a program that only polls asks whether the sidecar has ended. Sleeps ask, too, but a
 * program whose threads poll by turns may never sleep. */
#define ASK_NS 100000000u

/* or_ended reports, every ASK_NS, whether the sidecar has ended and nothing of it is left to read. */
bool or_ended(outrigger *s)
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
	return rc == OUTRIGGER_OK && or_ended(s) ? OUTRIGGER_NO_SIDECAR : rc;
}

/* submit_cancels submits the cancellations for which the ring had no room. */
static int submit_cancels(outrigger *s)
{
	uint32_t id;
	int rc = OUTRIGGER_OK;
	while (rc == OUTRIGGER_OK && or_has_room(&s->submit, 1) && or_queue_pop(&s->cancels, &id)) {
		struct or_op *op = or_op_at(&s->ops, id);
		struct or_descriptor d = {.op = OR_OP_CANCEL, .req = id};
		if (op->cancels && !op->done) /* otherwise it has ended, and its number may be in use again */
			rc = or_submit(s, &d);
		op->cancels = false;
	}
	return rc;
}

/* or_progress handles the completions that are in the ring and supplies the chunks that they ask
 * for. What the ring has no room for is left to the next poll. */
int or_progress(outrigger *s)
{
	if (s->forked)
		return OUTRIGGER_NO_SIDECAR;
	int rc = or_handle_completions(s);
	uint32_t id;
	if (rc == OUTRIGGER_OK && s->cancels.count > 0)
		rc = submit_cancels(s);
	or_feed_starved(s);
	/* More requests for chunks arrive during the loop. If there is a watcher, it serves those,
	 * and the program returns after the ones that were queued at the beginning: otherwise its
	 * isend or irecv would last as long as the transfer. */
	size_t most = s->watch.there ? s->stage.count : SIZE_MAX;
	while (rc == OUTRIGGER_OK && most-- > 0 && or_has_room(&s->submit, 1) && or_queue_pop(&s->stage, &id)) {
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

#define CHECK_EVERY 1024 /* waits for room between two checks whether the sidecar has ended */

/* or_enter locks the session for a call that submits a descriptor, after the ring has room for it. A
 * full ring means that the engine is behind, or does not read this rank's ring until links have
 * taken what this rank has sent. That may last as long as a peer is stopped; meanwhile other threads
 * get their completions. If or_enter returns an error, the session is not locked. */
int or_enter(outrigger *s)
{
	pthread_mutex_lock(&s->lock);
	for (unsigned tries = 1; !s->gone && !or_has_room(&s->submit, 1); tries++) {
		int rc = or_progress(s);
		if (tries % CHECK_EVERY == 0 && !or_ready(&s->complete))
			(void)or_sidecar_ended(s);
		pthread_mutex_unlock(&s->lock);
		if (rc != OUTRIGGER_OK)
			return rc;
		sched_yield();
		pthread_mutex_lock(&s->lock);
	}
	return OUTRIGGER_OK;
}
