/* The watcher: a thread that makes progress for a program that computes (outrigger_watch). A
 * message of private memory moves a chunk at a time, by the thread that calls the library, and a
 * program that computes does not call it. The watcher sleeps on the word by which the sidecar
 * wakes sessions (LAYOUT §8). The word is set while the program is away and cleared by the
 * program's first poll, so that the watcher is not woken by completions that the program takes
 * itself:
 *
 *   program                  watcher                  sidecar
 *   isend; away: sets word   sleeps
 *   computes                          <-------------- publishes, clears the word, wakes
 *                            takes it, sets the word, sleeps
 *   polls: clears word
 *   polls again                                       publishes: no sleeper to wake
 *
 * A futex compares its word with the expected value only when a sleep begins. Therefore the word
 * may be set and cleared while the watcher sleeps. A watcher that falls asleep always sets the
 * word first and expects it to be set, even while the program is in the library: if it expected
 * zero, it could not tell a zero that it has seen from one that the sidecar stored since then
 * because it published. The program's next poll clears that word as well. The Go client has no
 * watcher. */
#include "session.h"

/* has_work reports whether there are completions to handle or chunks to submit. */
static bool has_work(const outrigger *s) { return or_ready(&s->complete) || s->stage.count + s->cancels.count > 0; }

/* arm sets the word, and reports whether there is work that was there before. */
static bool arm(outrigger *s)
{
	or_set(s->watch.armed, true);
	atomic_store(or_word(s, OR_SEG_OFF_WAITING), s->wakeups << 1 | 1);
	return has_work(s);
}

int outrigger_away(outrigger *s, int all)
{
	/* Without the lock, for programs that have nothing that a watcher could move. */
	if (!atomic_load_explicit(&s->watch.there, memory_order_relaxed) ||
	    (!all && atomic_load_explicit(&s->ops.private, memory_order_relaxed) == 0))
		return 0;
	pthread_mutex_lock(&s->lock);
	s->watch.away = !s->gone;
	bool pending = s->watch.away && arm(s);
	pthread_mutex_unlock(&s->lock);
	return pending;
}

void outrigger_wake(outrigger *s)
{
	pthread_mutex_lock(&s->lock);
	or_wake_sleepers(s);
	pthread_mutex_unlock(&s->lock);
}

int outrigger_watch(outrigger *s, unsigned microseconds)
{
	pthread_mutex_lock(&s->lock);
	s->watch.thread = pthread_self();
	atomic_store_explicit(&s->watch.there, true, memory_order_relaxed);
	/* A thread of the program may be about to sleep on the word, which the sidecar has just
	 * cleared to wake this thread. It must not find the word with the value that it expects. */
	s->wakeups += s->sleepers > 0;
	bool pending = arm(s), idle = !(s->watch.away && pending);
	uint32_t word = s->wakeups << 1 | 1;
	pthread_mutex_unlock(&s->lock);
	if (idle)
		or_sleep_on_word(s, word, microseconds);
	else if (outrigger_full(s))
		sched_yield(); /* the work may wait for room in the ring */
	pthread_mutex_lock(&s->lock);
	if (!or_ready(&s->complete))
		(void)or_sidecar_ended(s);
	bool over = s->gone && (s->violated || !or_ready(&s->complete));
	if (over)
		atomic_store_explicit(&s->watch.there, false, memory_order_relaxed);
	pthread_mutex_unlock(&s->lock);
	return over ? OUTRIGGER_NO_SIDECAR : OUTRIGGER_OK;
}

/* A watcher that calls the MPI's progress may wait for room in the ring with a lock of the MPI that the
 * program's next poll needs. Then no other thread makes room, or learns that the sidecar has ended. */
int outrigger_attend(outrigger *s)
{
	pthread_mutex_lock(&s->lock);
	bool acts = s->watch.away || outrigger_full(s);
	int rc = acts ? or_progress(s) : OUTRIGGER_OK;
	if (acts && rc == OUTRIGGER_OK && or_ended(s))
		rc = OUTRIGGER_NO_SIDECAR;
	pthread_mutex_unlock(&s->lock);
	return rc;
}
