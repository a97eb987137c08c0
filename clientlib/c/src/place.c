/* Whether this process waits, for the sidecar's watch for deadlocks and its explanation of a
 * hang: LAYOUT §8.1.
 *
 * A program over libfabric calls no function that waits: it looks at its completions again and
 * again. A program that looks again at once after a look in vain waits. One that looks later, and
 * has used processor time meanwhile or has slept, was away. Wall time alone would not tell: a
 * thread that was preempted has done nothing else. With several threads the last one counts. The
 * session is locked in all functions that have one, but where they say otherwise. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

#define COPIED_BYTES 4096           /* to copy a larger message takes the time of a look */
/* Of processor time between two looks: the program did something else. A thread that was
 * preempted has paid for interrupts and switches: 20 to 90 us were seen. */
#define AWAY_NS 40000
#define AWAY_SWITCHED_NS 150000
#define MARK_EVERY_NS 100000        /* the thread's processor time is found out */
#define WAITS_NS 100000             /* of looks in vain */
/* If two polls are further apart than this, and the thread slept in between, the program pauses
 * and does not wait for a message. A preempted or yielding thread does not sleep, and a lock of
 * this library is held for a shorter time. */
#define SLEPT_NS 300000

static uint64_t thread_time(void)
{
	struct timespec t;
	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* switches is how often the thread was put off, and sleeps how often it went to sleep. */
static long switches(long *sleeps)
{
	struct rusage r;
	if (getrusage(RUSAGE_THREAD, &r) != 0)
		return *sleeps = -1;
	*sleeps = r.ru_nvcsw;
	return r.ru_nvcsw + r.ru_nivcsw;
}

static void say(outrigger *s, uint32_t word) { atomic_store_explicit(or_word(s, OR_SEG_OFF_PLACE), word, memory_order_relaxed); }

static _Thread_local pid_t number;

/* self is the kernel's number of the calling thread. */
static pid_t self(void)
{
	if (number == 0)
		number = (pid_t)syscall(SYS_gettid);
	return number;
}

/* or_place_forked is called in a child, by its only thread. */
void or_place_forked(void)
{
	number = 0;
}

static void mark(struct or_place *p, uint64_t now)
{
	p->thread = self();
	p->marked = now;
	p->spent = thread_time();
	p->switches = switches(&p->sleeps);
}

/* or_place_leaves notes that a message of so many bytes was submitted, and copied. */
void or_place_leaves(outrigger *s, uint64_t bytes)
{
	if (s->place.wanted && bytes >= COPIED_BYTES && !or_watches(s))
		s->place.looked = or_now();
}

/* waits says that the caller waits, and that it looks now: what it has taken is handed back
 * before. */
static void waits(outrigger *s, uint64_t now)
{
	struct or_place *p = &s->place;
	uint32_t moment = (uint32_t)(now >> OR_MOMENT_SHIFT);
	or_release(&s->complete);
	atomic_store_explicit(or_word(s, OR_SEG_OFF_LOOKED), moment == 0 ? 1 : moment, memory_order_relaxed);
	if (p->waits)
		return;
	p->waits = true;
	say(s, OR_PLACE_WAITS);
}

/* or_place_waits says that the caller is in a call that waits. */
void or_place_waits(outrigger *s)
{
	if (s->place.wanted)
		waits(s, or_now());
}

static void returns(outrigger *s)
{
	struct or_place *p = &s->place;
	p->vain = 0;
	if (!p->waits)
		return;
	p->waits = false;
	say(s, 0);
}

/* was_away reports that the caller has computed since it left the library, and notes whether it
 * has slept. Until then it has looked, copied, or yielded, since the mark. */
static bool was_away(struct or_place *p, uint64_t now)
{
	p->slept = false;
	if (now - p->looked <= AWAY_NS)
		return false;
	uint64_t looking = p->looked - p->marked, spent = thread_time() - p->spent;
	long sleeps;
	uint64_t least = switches(&sleeps) == p->switches ? AWAY_NS : AWAY_SWITCHED_NS;
	bool same = p->thread == self();
	bool away = same && spent > looking + least;
	p->slept = same && now - p->looked > SLEPT_NS && sleeps > p->sleeps;
	mark(p, now);
	return away;
}

/* or_place_back notes that the caller is going to look at completions. */
void or_place_back(outrigger *s)
{
	if (s->place.wanted)
		s->place.away = was_away(&s->place, or_now());
}

/* or_place_looks notes that it has, after which so many had come, and that what came was
 * copied. */
void or_place_looks(outrigger *s, unsigned came)
{
	struct or_place *p = &s->place;
	if (!p->wanted)
		return;
	uint64_t now = p->looked = or_now();
	bool away = p->away;
	if (now - p->marked > MARK_EVERY_NS)
		mark(p, now);
	if (away || p->slept || came > 0) {
		returns(s);
		return;
	}
	if (p->vain == 0)
		p->vain = now;
	else if (now - p->vain > WAITS_NS)
		waits(s, now);
}

/* or_place_woke notes that the caller has yielded until now: it was not away. */
void or_place_woke(outrigger *s)
{
	if (s->place.wanted)
		s->place.looked = or_now();
}

/* or_place_napped is or_place_woke of one that has slept within this library. */
void or_place_napped(outrigger *s)
{
	or_place_woke(s);
	if (s->place.wanted && s->place.thread == self())
		(void)switches(&s->place.sleeps);
}
