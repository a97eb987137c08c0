/* A thread that watches for a program which computes (outrigger_watch). Messages of
 * private memory move by whoever is inside of the library, a piece at a time, and such a
 * program is not. The watcher sleeps at the word that the sidecar wakes sessions by
 * (LAYOUT §8). The word is set while the program is away and cleared by its first look,
 * so that it is woken by nothing that the program sees itself:
 *
 *   program                  watcher                  sidecar
 *   isend; away: sets word   sleeps
 *   computes                          ◀────────────── publishes, clears the word, wakes
 *                            takes it, sets the word, sleeps
 *   looks: clears word
 *   looks again                                       publishes: there is nobody to wake
 *
 * A futex compares its word with what its sleeper expects when the sleep begins, and
 * never again: the word may be set and cleared over a watcher that sleeps. One that falls
 * asleep expects a word that is set, also while the program is here: it would take a zero
 * that comes of what was published meanwhile for the one that it has seen. The program's
 * next look clears that word, too. */
#include "session.h"

static bool anything(const outrigger *s) { return or_ready(&s->complete) || s->stage.count > 0; }

/* arm sets the word, and reports what has come before that. */
static bool arm(outrigger *s)
{
	s->watch.armed = true;
	atomic_store(or_word(s, OR_SEG_OFF_WAITING), s->roused << 1 | 1);
	return anything(s);
}

int outrigger_away(outrigger *s, int all)
{
	/* Who has nothing that would move without it pays for no lock. */
	if (!atomic_load_explicit(&s->watch.there, memory_order_relaxed) ||
	    (!all && atomic_load_explicit(&s->ops.private, memory_order_relaxed) == 0))
		return 0;
	pthread_mutex_lock(&s->lock);
	s->watch.away = !s->gone;
	bool come = s->watch.away && arm(s);
	pthread_mutex_unlock(&s->lock);
	return come;
}

void outrigger_wake(outrigger *s)
{
	pthread_mutex_lock(&s->lock);
	or_rouse(s);
	pthread_mutex_unlock(&s->lock);
}

int outrigger_watch(outrigger *s, unsigned microseconds)
{
	pthread_mutex_lock(&s->lock);
	s->watch.thread = pthread_self();
	atomic_store_explicit(&s->watch.there, true, memory_order_relaxed);
	/* A thread of the program may be about to sleep by the word that the sidecar has cleared
	 * just now, and woken this one for: it must not find it as it was. */
	s->roused += s->sleepers > 0;
	bool come = arm(s), idle = !(s->watch.away && come);
	uint32_t word = s->roused << 1 | 1;
	pthread_mutex_unlock(&s->lock);
	if (idle)
		or_nap(s, word, microseconds);
	pthread_mutex_lock(&s->lock);
	if (!or_ready(&s->complete))
		(void)or_sidecar_ended(s);
	bool over = s->gone && (s->lied || !or_ready(&s->complete));
	if (over)
		atomic_store_explicit(&s->watch.there, false, memory_order_relaxed);
	pthread_mutex_unlock(&s->lock);
	return over ? OUTRIGGER_NO_SIDECAR : OUTRIGGER_OK;
}

int outrigger_attend(outrigger *s)
{
	pthread_mutex_lock(&s->lock);
	int rc = s->watch.away ? or_progress(s) : OUTRIGGER_OK;
	pthread_mutex_unlock(&s->lock);
	return rc;
}
