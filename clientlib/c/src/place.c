/* Where this process is, for a sidecar that shares processors with it: LAYOUT §8.1.
 *
 * A program over libfabric calls no function that waits: it looks at its completions
 * again and again. So what it does is seen by when it looks. Who comes back at once
 * after each look in vain waits; who comes back later, and has used processor time
 * meanwhile, was away. Wall time alone would not tell: a thread that was put off has done
 * nothing else. With several threads the last word stands: it is a hint. The session is
 * locked in all functions that have one, but where they say otherwise. */
#define _GNU_SOURCE /* sched_getcpu, RUSAGE_THREAD */
#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

#define PLACE_BYTES (32 * 1024)     /* a smaller message is over before it could matter */
#define COPIED_BYTES 4096           /* the library's own work with a message that counts for nothing */
#define PLACE_EVERY_NS 100000       /* finding it out takes two system calls */
/* Of processor time between two looks: the program did something else. A thread that was
 * put off has paid for interrupts and switches: 20 to 90 us were seen. */
#define AWAY_NS 40000
#define AWAY_SWITCHED_NS 150000
#define MARK_EVERY_NS 100000        /* the thread's processor time is found out */
#define COMPUTES_NS 40000           /* of processor time, between submitting and the next look */
#define SUBMIT_NS 30000             /* posting many messages is not computing */
#define BESIDE 64                   /* bytes moved in a ns; a sixteenth of a transfer is not worth hiding */
#define IDLE_MAX 16                 /* messages without computing until it does not */
#define AGAIN_MAX 8                 /* within so many it computes again if it has begun to, */
#define AGAIN_NS 1000000            /* and not before */
#define WAITS_NS 100000             /* of looks in vain */
/* If two polls are further apart than this, and the thread slept in between, the program pauses
 * and does not wait for a message. A preempted or yielding thread does not sleep, and a lock of
 * this library is held for a shorter time. */
#define SLEPT_NS 300000
#define LATELY_NS 100000000         /* for so long a sidecar, too, holds to what it was told */

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

static void say(outrigger *s) { atomic_store_explicit(or_word(s, OR_SEG_OFF_PLACE), s->place.word, memory_order_relaxed); }

/* here notes the processor that the caller is on. */
static void here(struct or_place *p)
{
	int cpu = sched_getcpu();
	p->word = (p->word & ~(uint32_t)OR_PLACE_CPU) | ((uint32_t)(cpu + 1) & OR_PLACE_CPU);
}

/* clock_of is the processor time of a thread of this process, for others: the kernel's number
 * for it (CPUCLOCK_PERTHREAD, CPUCLOCK_SCHED), as pthread_getcpuclockid, which older glibc has
 * in another library, makes it. One that has ended has no clock. */
static clockid_t clock_of(pid_t thread) { return (clockid_t)(~(uint32_t)thread << 3 | 6); }

static _Thread_local pid_t number;

/* or_thread is the kernel's number of the calling thread. */
pid_t or_thread(void)
{
	if (number == 0)
		number = (pid_t)syscall(SYS_gettid);
	return number;
}

/* Where the kernel tells a thread which processor it is on: the area of restartable sequences
 * (rseq(2)), so far from what its thread pointer says, which glibc registers since 2.35. */
static struct {
	pthread_once_t once;
	ptrdiff_t offset;
	bool known;
	bool forked; /* the first thread of a child may lie on a stack of its parent's */
} rseq = {.once = PTHREAD_ONCE_INIT};

#pragma weak dlsym /* before glibc 2.34 it is in a library that the program may not have */
static void find_rseq(void)
{
	if (dlsym == NULL)
		return;
	const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
	const unsigned *size = dlsym(RTLD_DEFAULT, "__rseq_size");
	rseq.known = offset != NULL && size != NULL && *size > 0;
	if (rseq.known)
		rseq.offset = *offset;
}

/* or_place_begins is to be called before the session is anybody's, and locked: the loader
 * that it asks may be busy, with one who wants the session. */
void or_place_begins(outrigger *s, bool wanted)
{
	s->place.wanted = wanted;
	(void)pthread_once(&rseq.once, find_rseq);
}

/* or_place_forked is called in a child, by its only thread. */
void or_place_forked(void)
{
	rseq.forked = true;
	number = 0;
}

static const char *thread_pointer(void)
{
#ifdef __x86_64__
	const char *p;
	__asm__("movq %%fs:0, %0" : "=r"(p));
	return p;
#else
	return __builtin_thread_pointer();
#endif
}

/* told_cpu is where the caller is told its processor. Others may read that for as long as the
 * thread is there, as a process's first one is: for any other thread it is NULL. */
static const volatile uint32_t *told_cpu(pid_t thread)
{
	if (thread != getpid() || !rseq.known || rseq.forked)
		return NULL;
	return (const volatile uint32_t *)(thread_pointer() + rseq.offset) + 1; /* behind cpu_id_start */
}

static void mark(struct or_place *p, uint64_t now)
{
	pid_t thread = or_thread();
	if (p->thread != thread) {
		p->thread = thread;
		p->clock = clock_of(thread);
		p->cpu = told_cpu(thread);
	}
	p->marked = now;
	p->spent = thread_time();
	p->switches = switches(&p->sleeps);
}

/* or_place_leaves says where the caller goes on while so many bytes are moved. */
void or_place_leaves(outrigger *s, uint64_t bytes)
{
	struct or_place *p = &s->place;
	if (!p->wanted)
		return;
	if (or_watches(s)) {
		if (bytes >= PLACE_BYTES)
			or_place_beside(s);
		return;
	}
	p->after++;
	if (bytes < COPIED_BYTES)
		return;
	uint64_t now = p->looked = or_now();
	if (bytes < PLACE_BYTES || now - p->found < PLACE_EVERY_NS)
		return;
	p->found = now;
	here(p);
	say(s);
	mark(p, now);
	p->at = p->spent;
	p->bytes = bytes;
	p->after = 0;
	p->left = true;
	atomic_store_explicit(&p->lets, (p->word & OR_PLACE_COMPUTES) != 0, memory_order_relaxed);
}

/* or_place_lets reports once that the program has submitted a large message and is going to
 * compute, as it has lately. The session need not be locked. */
bool or_place_lets(outrigger *s)
{
	_Atomic bool *lets = &s->place.lets;
	return atomic_load_explicit(lets, memory_order_relaxed) && atomic_exchange_explicit(lets, false, memory_order_relaxed);
}

/* once reports that a program which did not compute for many messages has done so once. What a
 * host takes of this machine's processor counts as the thread's own time, and is told of nobody:
 * a word for it would keep sidecars off this processor for LATELY_NS, and leave them none. */
static bool once(struct or_place *p)
{
	if ((p->word & OR_PLACE_COMPUTES) != 0)
		return false;
	uint64_t now = or_now();
	if (p->idle >= IDLE_MAX)
		p->began = now;
	return now - p->began < AGAIN_NS;
}

static void computes(outrigger *s)
{
	struct or_place *p = &s->place;
	if (once(p)) {
		p->idle = IDLE_MAX - AGAIN_MAX;
		return;
	}
	p->idle = 0;
	p->word |= OR_PLACE_COMPUTES;
	say(s);
}

/* or_place_cpu is the processor of a program that is away, as far as is known, or -1: the
 * kernel may have moved it since it went. */
int or_place_cpu(const outrigger *s)
{
	const volatile uint32_t *told = s->watch.program == s->place.thread ? s->place.cpu : NULL;
	uint32_t cpu = told != NULL ? *told : UINT32_MAX;
	return cpu < CPU_SETSIZE ? (int)cpu : s->watch.cpu;
}

/* or_place_idles reports that the program has lately exchanged many large messages and
 * computed beside none. */
bool or_place_idles(const outrigger *s)
{
	const struct or_place *p = &s->place;
	return p->wanted && p->idle >= IDLE_MAX && (p->word & OR_PLACE_COMPUTES) == 0 && or_now() - p->found < LATELY_NS;
}

/* or_place_beside says that the program computes, where a watcher moves its large messages
 * and finds that it has: it will not come back to say so before they are over. */
void or_place_beside(outrigger *s)
{
	struct or_place *p = &s->place;
	uint64_t now = or_now();
	struct timespec t;
	if (!p->wanted || !s->watch.away || !(p->left || p->under) || now - p->looked <= AWAY_SWITCHED_NS || clock_gettime(p->clock, &t) != 0)
		return;
	uint64_t spent = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec - p->spent;
	if (spent <= p->looked - p->marked + AWAY_SWITCHED_NS)
		return;
	int cpu = or_place_cpu(s);
	if (cpu >= 0)
		p->word = (p->word & ~(uint32_t)OR_PLACE_CPU) | ((uint32_t)(cpu + 1) & OR_PLACE_CPU);
	computes(s);
}

/* enters says whether the caller has computed since it left. */
static void enters(outrigger *s, bool away)
{
	struct or_place *p = &s->place;
	p->left = false;
	if (away && thread_time() - p->at >= COMPUTES_NS + (uint64_t)p->after * SUBMIT_NS + p->bytes / BESIDE) {
		computes(s);
		return;
	}
	if (++p->idle == IDLE_MAX)
		p->word &= ~(uint32_t)OR_PLACE_COMPUTES;
	say(s);
}

/* waits says that the caller waits, where, and that it looks now: what it has taken is handed
 * back before. */
static void waits(outrigger *s, uint64_t now)
{
	struct or_place *p = &s->place;
	uint32_t moment = (uint32_t)(now >> OR_MOMENT_SHIFT);
	or_release(&s->complete);
	atomic_store_explicit(or_word(s, OR_SEG_OFF_LOOKED), moment == 0 ? 1 : moment, memory_order_relaxed);
	if (p->waits)
		return;
	p->waits = true;
	here(p);
	p->word |= OR_PLACE_WAITS;
	say(s);
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
	p->word &= ~OR_PLACE_WAITS;
	say(s);
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
	bool same = p->thread == or_thread();
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
	if (p->left && (away || came > 0 || p->waits))
		enters(s, away);
	else if (away && p->under)
		computes(s);
	p->under = atomic_load_explicit(&s->ops.private, memory_order_relaxed) > 0;
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
	if (s->place.wanted && s->place.thread == or_thread())
		(void)switches(&s->place.sleeps);
}
