/* Descriptors on their way to the engine. */
#include <sched.h>

#include "session.h"

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
	return or_ring(s);
}
