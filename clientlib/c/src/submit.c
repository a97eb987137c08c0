/* Descriptors on their way to the engine. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "session.h"

/* ring the doorbell of a sleeping engine. A counter that is full is a rung
 * bell. */
static int ring(outrigger *s)
{
	uint64_t one = 1;
	ssize_t n;
	do
		n = write(s->doorbell, &one, sizeof one);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN) {
		s->gone = true; /* an engine that cannot be woken is as good as none */
		return OUTRIGGER_NO_SIDECAR;
	}
	return OUTRIGGER_OK;
}

#define LOOK_EVERY 1024 /* failed pushes between two looks at the socket */

/* or_submit publishes d. When the ring is full the engine is behind: completions
 * are taken meanwhile, so that neither side waits for the other. What they ask
 * for is only noted, since it would overtake d. */
int or_submit(outrigger *s, const struct or_descriptor *d)
{
	for (unsigned tries = 1;; tries++) {
		if (s->gone)
			return OUTRIGGER_NO_SIDECAR;
		int pushed = or_push(&s->submit, d);
		if (pushed > 0)
			break;
		if (pushed < 0 || (tries % LOOK_EVERY == 0 && or_sidecar_ended(s))) {
			s->gone = true;
			return OUTRIGGER_NO_SIDECAR;
		}
		int rc = or_drain(s);
		if (rc != OUTRIGGER_OK)
			return rc;
		sched_yield();
	}
	/* The engine sets its flag before its last look at the ring, and we look
	 * at the flag after publishing: one of the two sees the other. */
	if (atomic_load(or_word(s, OR_SEG_OFF_SLEEPING)) == 0)
		return OUTRIGGER_OK;
	return ring(s);
}

int or_begin(outrigger *s, uint32_t *id, struct or_op **op)
{
	if (s->gone)
		return OUTRIGGER_NO_SIDECAR;
	int rc = or_op_take(&s->ops, id, op);
	if (rc != OUTRIGGER_TOO_MANY)
		return rc;
	/* Sends that nobody waits for free their numbers when they are seen to be
	 * complete. */
	rc = or_progress(s);
	return rc == OUTRIGGER_OK ? or_op_take(&s->ops, id, op) : rc;
}

uint32_t outrigger_room(const outrigger *s) { return OR_MAX_REQUESTS - atomic_load_explicit(&s->ops.used, memory_order_relaxed); }

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
