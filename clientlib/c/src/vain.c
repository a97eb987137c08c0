/* Polls in vain: a poll that finds nothing is loads only, without a lock and without a call of the
 * kernel, for the first VAIN_NS of such polls of a thread. A program that serves requests of others
 * polls in vain between any two steps of its own. Later polls acquire the lock, because they tell
 * the sidecar whether the program waits (activity.c). The Go client polls under its lock. */
#include "session.h"

#define VAIN_NS 20000u
#define REQUESTS 8u /* so many requests a thread can test in turn by loads only */

/* The polls in vain of this thread since the last poll that found something. */
static _Thread_local struct {
	const outrigger *session; /* NULL: there was none */
	uint64_t handled; /* the session's at the first of the polls */
	uint64_t since;   /* when that poll was */
	outrigger_request open[REQUESTS]; /* requests that were open then or since, by number; 0: none */
} vain;

/* or_vain_init gives a session numbers of its own: a later session may be at the same address. */
void or_vain_init(outrigger *s)
{
	static _Atomic uint64_t sessions;
	atomic_store(&s->handled, atomic_fetch_add(&sessions, 1) << 40);
}

int outrigger_idle(const outrigger *s)
{
	if (or_get(s->gone) || or_get(s->forked) || or_get(s->watch.armed))
		return 0;
	if (or_get(s->stage.count) > 0 || or_get(s->cancels.count) > 0 || or_get(s->starved[0].count) > 0 || or_get(s->starved[1].count) > 0)
		return 0;
	return !or_ready(&s->complete);
}

/* first_of returns where the request is noted. Request 0 stands for all: a poll that no request is
 * named in. */
static outrigger_request *first_of(outrigger_request request) { return &vain.open[(uint32_t)request % REQUESTS]; }

/* or_in_vain reports, by loads only, whether a poll would find that the request is still open, or,
 * without a request, nothing. */
bool or_in_vain(const outrigger *s, outrigger_request request)
{
	if (vain.session != s || vain.handled != atomic_load_explicit(&s->handled, memory_order_relaxed))
		return false;
	if (request != 0 ? *first_of(request) != request : or_get(s->completed) > 0)
		return false;
	return outrigger_idle(s) && or_now() - vain.since < VAIN_NS;
}

/* or_note_vain notes that a poll, which holds the lock, was in vain. */
void or_note_vain(const outrigger *s, outrigger_request request)
{
	uint64_t handled = atomic_load_explicit(&s->handled, memory_order_relaxed);
	if (vain.session != s || vain.handled != handled) {
		vain.session = s;
		vain.handled = handled;
		vain.since = or_now();
		for (unsigned i = 0; i < REQUESTS; i++)
			vain.open[i] = 0;
	}
	if (request != 0)
		*first_of(request) = request;
}

/* or_end_vain notes that a poll has found something. */
void or_end_vain(void) { vain.session = NULL; }
