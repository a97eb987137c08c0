/* Submission of descriptors to the engine. The Go client has it in clientlib/submit.go. */
#include "session.h"

/* What a call may need that submits several descriptors: a send of a message in chunks and the
 * message that announces it, or an access to another rank's memory (clientlib/c/fi/origin.c). */
#define CALL_ENTRIES 8u

/* or_submit publishes d. OUTRIGGER_TOO_MANY: the ring is full. It never is behind or_enter, because
 * what completions ask for is submitted by or_progress only. */
int or_submit(outrigger *s, const struct or_descriptor *d)
{
	if (s->gone)
		return OUTRIGGER_NO_SIDECAR;
	int pushed = or_push(&s->submit, d);
	if (pushed == 0)
		return OUTRIGGER_TOO_MANY;
	if (pushed < 0) {
		or_set(s->gone, true);
		return OUTRIGGER_NO_SIDECAR;
	}
	/* The engine sets its flag before its last poll of the ring, and this thread reads the flag
	 * after publishing. Therefore at least one of the two sees the other's store. */
	if (atomic_load(or_word(s, OR_SEG_OFF_SLEEPING)) == 0)
		return OUTRIGGER_OK;
	return or_ring_doorbell(s);
}

int outrigger_full(const outrigger *s) { return !or_get(s->gone) && !or_has_room(&s->submit, CALL_ENTRIES); }
