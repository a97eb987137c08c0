/* Waiting: looks, then looks that yield the processor, then sleep (LAYOUT §8). */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "session.h"

#define YIELD_NS 300000u /* of looks that yield, before a sleep; there are none before them that do not */
#define NAP_US 100000u    /* at most: a sidecar may have been stopped within a wake-up */
#define POLLS 4096        /* looks of a wait that only polls, between two for the end of the sidecar */

int or_patience_init(outrigger *s, const char *name)
{
	s->patience = (struct or_patience){.yield_ns = YIELD_NS};
	if (name == NULL || *name == 0 || strcmp(name, "yield") == 0)
		return OUTRIGGER_OK;
	s->patience.polls = strcmp(name, "poll") == 0;
	s->patience.blocks = strcmp(name, "block") == 0;
	if (s->patience.polls || s->patience.blocks)
		return OUTRIGGER_OK;
	s->patience.yield_ns = UINT64_MAX;
	return OUTRIGGER_INVALID;
}

int outrigger_sleep(outrigger *s, unsigned microseconds)
{
	if (microseconds > NAP_US)
		microseconds = NAP_US;
	pthread_mutex_lock(&s->lock);
	or_back(s);
	/* The word is set before the look, and the engine publishes before it
	 * looks at the word. Its value changes when another thread wakes those that sleep:
	 * between this look and this sleep it may have taken what this thread waits for, and a
	 * third one have set the word for itself. */
	uint32_t word = s->roused << 1 | 1;
	s->sleepers++;
	atomic_store(or_word(s, OR_SEG_OFF_WAITING), word);
	bool idle = !or_ready(&s->complete) && s->stage.count == 0 && !s->gone;
	if (idle)
		or_place_waits(s);
	pthread_mutex_unlock(&s->lock);
	if (idle)
		or_nap(s, word, microseconds);
	pthread_mutex_lock(&s->lock);
	s->sleepers--;
	or_place_napped(s);
	if (s->sleepers == 0 && !s->watch.away)
		atomic_store(or_word(s, OR_SEG_OFF_WAITING), 0);
	/* What the sidecar said before it ended counts. */
	if (!or_ready(&s->complete))
		(void)or_sidecar_ended(s);
	int rc = s->gone && (s->lied || !or_ready(&s->complete)) ? OUTRIGGER_NO_SIDECAR : OUTRIGGER_OK;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int outrigger_progress(outrigger *s, unsigned *taken)
{
	pthread_mutex_lock(&s->lock);
	int rc = or_look(s);
	if (taken != NULL)
		*taken = s->taken;
	s->taken = s->looked = 0;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* A yield that lasts so long has given the processor to somebody who computes, or works
 * as a sidecar does beside large messages, and who keeps it until his slice ends. Who
 * waits then sleeps instead, since a wake-up preempts and a yield does not; for as long
 * at first, twice as long each time, and no longer than at last. The Go client does the
 * same. */
#define CROWDED_AFTER_NS 400000u
#define CROWDED_MIN_NS 1000000u
#define CROWDED_MAX_NS 64000000u
#define DOZE_US 500u /* at most: the caller may have other things to look at */

static void judge(struct or_patience *p, uint64_t now, uint64_t cost)
{
	uint64_t last = p->crowd_ns;
	if (cost < CROWDED_AFTER_NS) {
		if (last != 0)
			p->crowd_ns = 0;
		return;
	}
	last = 2 * last < CROWDED_MIN_NS ? CROWDED_MIN_NS : 2 * last;
	if (last > CROWDED_MAX_NS)
		last = CROWDED_MAX_NS;
	p->crowd_ns = last;
	p->crowded = now + last;
}

static void yield(struct or_patience *p, uint64_t begun)
{
	sched_yield();
	uint64_t now = or_now();
	judge(p, now, now - begun);
}

int outrigger_yield_sleeps(const outrigger *s) { return or_now() < s->patience.crowded; }

void outrigger_yield(outrigger *s)
{
	uint64_t begun = or_now();
	if (begun < s->patience.crowded) {
		(void)outrigger_sleep(s, DOZE_US); /* who looks next learns of the sidecar's end */
		return;
	}
	yield(&s->patience, begun);
	if (!s->place.wanted)
		return;
	pthread_mutex_lock(&s->lock);
	or_place_woke(s);
	pthread_mutex_unlock(&s->lock);
}

/* pause_for waits a moment of a wait that began at a time, which it notes at the first look;
 * looks counts them. */
static int pause_for(outrigger *s, uint64_t *begun, unsigned looks)
{
	const struct or_patience *p = &s->patience;
	if (p->polls) {
		if (looks % POLLS == 0)
			return outrigger_sleep(s, 1);
		return OUTRIGGER_OK;
	}
	if (!p->blocks) {
		uint64_t now = or_now();
		if (*begun == 0)
			*begun = now;
		if (now - *begun < p->yield_ns) {
			outrigger_yield(s);
			return OUTRIGGER_OK;
		}
	}
	return outrigger_sleep(s, NAP_US);
}

int outrigger_wait(outrigger *s, outrigger_request request, struct outrigger_result *result)
{
	uint64_t begun = 0;
	for (unsigned looks = 1;; looks++) {
		int over;
		int rc = outrigger_test(s, request, &over, result);
		if (over || rc != OUTRIGGER_OK)
			return rc;
		rc = pause_for(s, &begun, looks);
		if (rc != OUTRIGGER_OK)
			return rc;
	}
}
