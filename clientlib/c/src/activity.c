/* Whether this process waits, for the sidecar's detection of deadlocks and its explanation of a
 * hang (LAYOUT §8.1). The Go client, which knows when it waits, has it in clientlib/activity.go.
 *
 * A program over libfabric calls no function that waits: it polls its completions. If the
 * program polls again at once after an empty poll, it waits. If it polls later and has used CPU
 * time in between, or has slept, it was computing or pausing. Wall time alone cannot tell: a
 * thread that was preempted has done nothing else. If several threads poll, the last one counts.
 * All functions that take a session expect its lock to be held. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

/* From this size on, copying a message takes so long that it must not count as computation. */
#define COPIED_BYTES 4096
/* CPU time between two polls above which the program has computed. If the thread was preempted,
 * the larger bound holds, because interrupts and context switches are charged to it: 20 to 90 us
 * were measured. */
#define COMPUTED_NS 40000
#define COMPUTED_PREEMPTED_NS 150000
#define SAMPLE_EVERY_NS 100000 /* at least so long between two samples of the thread's CPU time */
#define WAITS_NS 100000        /* empty polls for so long: the program waits */
/* Mean time between a poll and the next probe above which the program computes between its probes. An
 * MPI needs a tenth of it. */
#define BETWEEN_PROBES_NS 5000
#define BETWEEN_PROBES_SHIFT 5 /* the mean is over about 2^5 probes, so that an interrupt does not count */
/* A program that repeats calls does something else, too, if it has computed or slept for ACCOUNT_NS more
 * than a share of 1 in ACCOUNT_SHARE of its time. On a crowded machine, interrupts in the program's
 * time look like computation: 7 ms in a second were measured. A thread may also sleep until another
 * one, which has no processor, releases a lock of the provider: 6 ms. */
#define ACCOUNT_NS 20000000u
#define ACCOUNT_SHARE 50u
/* If two polls are further apart than this, and the thread slept in between, the program pauses
 * and does not wait for a message. A preempted or yielding thread does not sleep, and a lock of
 * this library is held for a shorter time. */
#define SLEPT_NS 300000

/* thread_time returns the CPU time of the calling thread in ns. */
static uint64_t thread_time(void)
{
	struct timespec t;
	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* switches returns how often the calling thread left its CPU, and sets *sleeps to how often it
 * did so to sleep. */
static long switches(long *sleeps)
{
	struct rusage r;
	if (getrusage(RUSAGE_THREAD, &r) != 0)
		return *sleeps = -1;
	*sleeps = r.ru_nvcsw;
	return r.ru_nvcsw + r.ru_nivcsw;
}

/* publish stores the word that the sidecar reads. */
static void publish(outrigger *s, uint32_t word) { atomic_store_explicit(or_word(s, OR_SEG_OFF_PLACE), word, memory_order_relaxed); }

static _Thread_local pid_t thread_id; /* 0: not known yet */

/* self returns the kernel's number of the calling thread. */
static pid_t self(void)
{
	if (thread_id == 0)
		thread_id = (pid_t)syscall(SYS_gettid);
	return thread_id;
}

/* or_activity_forked is called in a child, by its only thread, whose number is a new one. */
void or_activity_forked(void)
{
	thread_id = 0;
}

/* sample records the CPU time and the context switches of the calling thread. */
static void sample(struct or_activity *p, uint64_t now)
{
	p->thread = self();
	p->sampled = now;
	p->cpu_ns = thread_time();
	p->switches = switches(&p->sleeps);
}

/* or_activity_copied notes that a message of so many bytes was copied and submitted: the time until
 * now is not the program's computation. */
void or_activity_copied(outrigger *s, uint64_t bytes)
{
	if (s->activity.watched && bytes >= COPIED_BYTES && !or_is_watcher(s))
		s->activity.polled = or_now();
}

/* moment returns a time in the unit of the words of the sidecar; it is not 0. */
static uint32_t moment(uint64_t now)
{
	uint32_t m = (uint32_t)(now >> OR_MOMENT_SHIFT);
	return m == 0 ? 1 : m;
}

/* publish_acted publishes that the program does something besides repeating calls. The sidecar does not
 * write to the cache line, which therefore stays here. */
static void publish_acted(outrigger *s, uint64_t now)
{
	uint32_t m = moment(now);
	if (atomic_load_explicit(or_word(s, OR_SEG_OFF_ACTED), memory_order_relaxed) != m)
		atomic_store_explicit(or_word(s, OR_SEG_OFF_ACTED), m, memory_order_relaxed);
}

void outrigger_acts(outrigger *s)
{
	if (s->activity.watched)
		publish_acted(s, or_now());
}

/* acts is outrigger_acts for what this file notices, with the lock held. */
static void acts(outrigger *s, uint64_t now)
{
	s->activity.paused = true;
	publish_acted(s, now);
}

/* or_activity_begin begins to report the activity, if the sidecar reads it. */
void or_activity_begin(outrigger *s, bool watched)
{
	s->activity.watched = watched;
	if (watched)
		acts(s, or_now());
}

/* or_activity_probes is called before a probe that does not wait is submitted. If the program spends time
 * between its probes, or several threads poll, the probe is no repetition of one in vain. */
void or_activity_probes(outrigger *s)
{
	struct or_activity *p = &s->activity;
	if (!p->watched || or_is_watcher(s))
		return;
	uint64_t now = or_now(), between = now - p->polled;
	/* A longer time may be that of other processes: the next poll judges it by CPU time. */
	if (between <= COMPUTED_NS)
		p->between_ns += (between >> BETWEEN_PROBES_SHIFT) - (p->between_ns >> BETWEEN_PROBES_SHIFT);
	if (p->between_ns > BETWEEN_PROBES_NS || p->thread != self())
		acts(s, now);
}

/* waits publishes that the caller waits, and when it polled last. Before that it publishes the
 * head of the completion ring, because a rank that has not read a completion does not count as
 * one that waits. */
static void waits(outrigger *s, uint64_t now)
{
	struct or_activity *p = &s->activity;
	or_publish_head(&s->complete);
	atomic_store_explicit(or_word(s, OR_SEG_OFF_LOOKED), moment(now), memory_order_relaxed);
	if (p->waits)
		return;
	p->waits = true;
	publish(s, OR_PLACE_WAITS);
}

/* or_activity_waits publishes that the caller is in a call that waits. */
void or_activity_waits(outrigger *s)
{
	if (s->activity.watched)
		waits(s, or_now());
}

/* returns publishes that the caller does not wait any more. */
static void returns(outrigger *s)
{
	struct or_activity *p = &s->activity;
	p->empty_since = 0;
	if (!p->waits)
		return;
	p->waits = false;
	publish(s, 0);
}

/* computed returns for how long the caller has computed since it left the library, or 0 if it has not,
 * and records whether it has slept. The time between the sample and the last poll was spent in the
 * library, in polls, copies and yields, and is subtracted. */
static uint64_t computed(struct or_activity *p, uint64_t now)
{
	p->slept_ns = 0;
	if (now - p->polled <= COMPUTED_NS)
		return 0;
	uint64_t polling = p->polled - p->sampled, spent = thread_time() - p->cpu_ns;
	long sleeps;
	uint64_t least = switches(&sleeps) == p->switches ? COMPUTED_NS : COMPUTED_PREEMPTED_NS;
	bool same = p->thread == self();
	bool has = same && spent > polling + least;
	p->slept_ns = same && now - p->polled > SLEPT_NS && sleeps > p->sleeps ? now - p->polled : 0;
	sample(p, now);
	return has ? spent - polling : 0;
}

/* or_activity_begin_poll is called before the program's completions are polled. */
void or_activity_begin_poll(outrigger *s)
{
	if (s->activity.watched)
		s->activity.computed_ns = computed(&s->activity, or_now());
}

/* exceeds_account adds the time for which the program has just computed or slept to the account, and
 * reports whether it is too long for a program that only waits. */
static bool exceeds_account(struct or_activity *p, uint64_t now, uint64_t ns)
{
	uint64_t allowed = (now - p->accounted) / ACCOUNT_SHARE;
	p->accounted = now;
	p->account_ns = (p->account_ns > allowed ? p->account_ns - allowed : 0) + ns;
	if (p->account_ns <= ACCOUNT_NS)
		return false;
	p->account_ns = 2 * ACCOUNT_NS; /* for the next second, what the program does else counts at once */
	return true;
}

/* repeats returns how many of the completions of a poll may be of calls that only repeat earlier ones. The
 * others show that the program does not only wait. */
static unsigned repeats(outrigger *s)
{
	struct or_activity *p = &s->activity;
	unsigned vain = s->in_vain - p->in_vain;
	p->in_vain = s->in_vain;
	if (vain == 0 || !p->paused)
		return vain;
	p->paused = false;
	return 0;
}

/* or_activity_end_poll is called after they were polled, with the number of completions, whose
 * messages have been copied. */
void or_activity_end_poll(outrigger *s, unsigned came)
{
	struct or_activity *p = &s->activity;
	if (!p->watched)
		return;
	uint64_t now = p->polled = or_now();
	if (now - p->sampled > SAMPLE_EVERY_NS)
		sample(p, now);
	uint64_t else_ns = p->computed_ns + p->slept_ns;
	if (else_ns > 0 && exceeds_account(p, now, else_ns))
		acts(s, now);
	came -= repeats(s);
	if (else_ns > 0 || came > 0) {
		returns(s);
		return;
	}
	if (p->empty_since == 0)
		p->empty_since = now;
	else if (now - p->empty_since > WAITS_NS)
		waits(s, now);
}

/* or_activity_yielded notes that the caller has yielded until now: that time is not computation. */
void or_activity_yielded(outrigger *s)
{
	if (s->activity.watched)
		s->activity.polled = or_now();
}

/* or_activity_slept is or_activity_yielded for a sleep within this library, which does not count as a
 * sleep of the program. */
void or_activity_slept(outrigger *s)
{
	or_activity_yielded(s);
	if (s->activity.watched && s->activity.thread == self())
		(void)switches(&s->activity.sleeps);
}
