/* Waiting (LAYOUT §8): a wait polls and yields the CPU, and sleeps after YIELD_NS. If a yield
 * has shown that another thread computes on the same CPU, it sleeps instead of yielding, with
 * exponential back-off. The Go client has it in clientlib/wait.go and backoff.go. */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "session.h"

/* How long a wait polls and yields before it sleeps: a message over the network within that time
 * costs no wake-up. */
#define YIELD_NS 300000u
/* The longest sleep: a sidecar that is killed between clearing the word and waking its sleepers
 * wakes no thread. */
#define NAP_US 100000u
#define POLLS 4096 /* polls of a wait that never sleeps, between two checks whether the sidecar has ended */

/* or_wait_policy_init sets the wait policy by its name: poll, yield (also NULL and ""), or block.
 * yield_ns is UINT64_MAX if the name is none of them. */
int or_wait_policy_init(outrigger *s, const char *name)
{
	s->wait_policy = (struct or_wait_policy){.yield_ns = YIELD_NS};
	if (name == NULL || *name == 0 || strcmp(name, "yield") == 0)
		return OUTRIGGER_OK;
	s->wait_policy.polls = strcmp(name, "poll") == 0;
	s->wait_policy.blocks = strcmp(name, "block") == 0;
	if (s->wait_policy.polls || s->wait_policy.blocks)
		return OUTRIGGER_OK;
	s->wait_policy.yield_ns = UINT64_MAX;
	return OUTRIGGER_INVALID;
}

int outrigger_sleep(outrigger *s, unsigned microseconds)
{
	if (microseconds > NAP_US)
		microseconds = NAP_US;
	pthread_mutex_lock(&s->lock);
	or_program_back(s);
	/* This thread sets the word before it polls, and the engine publishes before it reads the
	 * word: one of the two sees the other's store. The value of the word changes whenever a
	 * thread of this process wakes the sleepers. Otherwise, between this poll and this sleep, a
	 * second thread could take the completion that this one waits for and clear the word, a
	 * third one could set it again for itself, and this thread would sleep. */
	uint32_t word = s->wakeups << 1 | 1;
	s->sleepers++;
	atomic_store(or_word(s, OR_SEG_OFF_WAITING), word);
	bool idle = !or_ready(&s->complete) && s->stage.count == 0 && !s->gone;
	if (idle)
		or_activity_waits(s);
	pthread_mutex_unlock(&s->lock);
	if (idle)
		or_sleep_on_word(s, word, microseconds);
	pthread_mutex_lock(&s->lock);
	s->sleepers--;
	or_activity_slept(s);
	if (s->sleepers == 0 && !s->watch.away)
		atomic_store(or_word(s, OR_SEG_OFF_WAITING), 0);
	/* Completions that the sidecar published before it ended are still handled. */
	if (!or_ready(&s->complete))
		(void)or_sidecar_ended(s);
	int rc = s->gone && (s->violated || !or_ready(&s->complete)) ? OUTRIGGER_NO_SIDECAR : OUTRIGGER_OK;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int outrigger_progress(outrigger *s, unsigned *completions)
{
	if (or_in_vain(s, 0)) {
		if (completions != NULL)
			*completions = 0;
		return OUTRIGGER_OK;
	}
	pthread_mutex_lock(&s->lock);
	int rc = or_poll(s);
	if (s->completed > 0)
		or_end_vain();
	else
		or_note_vain(s, 0);
	if (completions != NULL)
		*completions = s->completed;
	s->polled = 0;
	or_set(s->completed, 0);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* A yield that takes longer than BACKOFF_AFTER_NS has given the CPU to a thread that computes, or
 * to a sidecar that moves large messages, and that keeps the CPU until its time slice ends. A
 * waiting thread then sleeps instead of yielding for some time, because a thread that is woken
 * preempts the other one and a thread that yields does not. That time is BACKOFF_MIN_NS at first
 * and doubles each time up to BACKOFF_MAX_NS, so that a CPU that is free again is noticed within
 * 64 ms. The Go client has the same values. */
#define BACKOFF_AFTER_NS 400000u
#define BACKOFF_MIN_NS 1000000u
#define BACKOFF_MAX_NS 64000000u
#define YIELD_SLEEP_US 500u /* the longest sleep in place of a yield: the caller may poll other queues, too */

/* update_backoff starts, doubles or ends the back-off by what a yield has cost. */
static void update_backoff(struct or_wait_policy *p, uint64_t now, uint64_t cost)
{
	uint64_t last = p->backoff_ns;
	if (cost < BACKOFF_AFTER_NS) {
		if (last != 0)
			p->backoff_ns = 0;
		return;
	}
	last = 2 * last < BACKOFF_MIN_NS ? BACKOFF_MIN_NS : 2 * last;
	if (last > BACKOFF_MAX_NS)
		last = BACKOFF_MAX_NS;
	p->backoff_ns = last;
	p->backoff_until = now + last;
}

/* yield gives the CPU away and notes what that has cost since begun. */
static void yield(struct or_wait_policy *p, uint64_t begun)
{
	sched_yield();
	uint64_t now = or_now();
	update_backoff(p, now, now - begun);
}

int outrigger_yield_sleeps(const outrigger *s) { return or_now() < s->wait_policy.backoff_until; }

void outrigger_yield(outrigger *s)
{
	uint64_t begun = or_now();
	if (begun < s->wait_policy.backoff_until) {
		(void)outrigger_sleep(s, YIELD_SLEEP_US); /* the next poll returns an error if the sidecar has ended */
		return;
	}
	yield(&s->wait_policy, begun);
	if (!s->activity.watched)
		return;
	pthread_mutex_lock(&s->lock);
	or_activity_yielded(s);
	pthread_mutex_unlock(&s->lock);
}

/* pause_wait yields or sleeps between two polls of a wait, by the wait policy. *begun is when the
 * wait began, which the first call sets, and polls the number of polls so far. */
static int pause_wait(outrigger *s, uint64_t *begun, unsigned polls)
{
	const struct or_wait_policy *p = &s->wait_policy;
	if (p->polls) {
		if (polls % POLLS == 0)
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
	for (unsigned polls = 1;; polls++) {
		int over;
		int rc = outrigger_test(s, request, &over, result);
		if (over || rc != OUTRIGGER_OK)
			return rc;
		rc = pause_wait(s, &begun, polls);
		if (rc != OUTRIGGER_OK)
			return rc;
	}
}
