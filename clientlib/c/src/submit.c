/* Submission of descriptors to the engine. The Go client has it in clientlib/submit.go. */
#include <sched.h>

#include "session.h"

#define CHECK_EVERY 1024 /* failed pushes between two checks whether the sidecar has ended */

/* or_submit publishes d. If the ring is full, it handles completions until there is room, so
 * that the engine, whose ring of completions may be full too, can go on. The chunks that those
 * completions ask for are only queued, because they would overtake d. */
int or_submit(outrigger *s, const struct or_descriptor *d)
{
	for (unsigned tries = 1;; tries++) {
		if (s->gone)
			return OUTRIGGER_NO_SIDECAR;
		int pushed = or_push(&s->submit, d);
		if (pushed > 0)
			break;
		if (pushed < 0 || (tries % CHECK_EVERY == 0 && or_sidecar_ended(s))) {
			or_set(s->gone, true);
			return OUTRIGGER_NO_SIDECAR;
		}
		int rc = or_handle_completions(s);
		if (rc != OUTRIGGER_OK)
			return rc;
		sched_yield();
	}
	/* The engine sets its flag before its last poll of the ring, and this thread reads the flag
	 * after publishing. Therefore at least one of the two sees the other's store. */
	if (atomic_load(or_word(s, OR_SEG_OFF_SLEEPING)) == 0)
		return OUTRIGGER_OK;
	return or_ring_doorbell(s);
}
