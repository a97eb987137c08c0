/*
 * Tests empty polls. After a poll that returned a completion, an MPI polls again before its call
 * returns, also other queues, and makes its own next step in between. These empty polls must
 * neither yield, because the thread might not run again for a scheduler slice, nor sleep, because
 * no further completion would wake it. Later empty polls must do one of both. A rank with a CPU of
 * its own may poll for longer, so that this process is pinned to a CPU that it shares.
 *
 * The empty polls of the first 20 us acquire no lock either, and no thread rests with a lock, whatever
 * it waits for.
 */
#define _GNU_SOURCE
#include "provider.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BRIEF_NS = 20000, CROWDED_NS = 10000000, VAIN = 100, ROUNDS = 50, FREE = 3, MOST = 100000, LOOSE_NS = 30000, LATER_NS = 2000000, PATIENCE_S = 60, REQUESTS = 1 << 17, FLOOD = 5000 };

/* The functions below replace the C library's, also in the provider. What they count is of this
 * thread. */
static __thread unsigned yields, sleeps, locks, clocks;
static __thread int held; /* locks */
static __thread uint64_t stopped; /* the time, which does not run; 0: it runs */
static atomic_uint rests_with_lock;

static void rest(void) { rests_with_lock += held > 0; }

/* next_of returns the C library's function of a name. */
static void *next_of(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	want(symbol != NULL, "no %s", name);
	return symbol;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
	static _Atomic(void *) next;
	int (*lock)(pthread_mutex_t *);
	if (next == NULL)
		next = next_of("pthread_mutex_lock");
	memcpy(&lock, &(void *){next}, sizeof lock);
	int rc = lock(m);
	locks++;
	held += rc == 0;
	return rc;
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
	static _Atomic(void *) next;
	int (*unlock)(pthread_mutex_t *);
	if (next == NULL)
		next = next_of("pthread_mutex_unlock");
	memcpy(&unlock, &(void *){next}, sizeof unlock);
	held--;
	return unlock(m);
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
	static _Atomic(void *) next;
	int (*try)(pthread_mutex_t *);
	if (next == NULL)
		next = next_of("pthread_mutex_trylock");
	memcpy(&try, &(void *){next}, sizeof try);
	int rc = try(m);
	held += rc == 0;
	return rc;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	static _Atomic(void *) next;
	int (*get)(clockid_t, struct timespec *);
	if (next == NULL)
		next = next_of("clock_gettime");
	memcpy(&get, &(void *){next}, sizeof get);
	if (clock != CLOCK_MONOTONIC)
		return get(clock, t);
	clocks++;
	if (stopped == 0)
		return get(clock, t);
	*t = (struct timespec){.tv_sec = (time_t)(stopped / 1000000000u), .tv_nsec = (long)(stopped % 1000000000u)};
	return 0;
}

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (next == NULL) {
		void *symbol = dlsym(RTLD_NEXT, "syscall");
		memcpy(&next, &symbol, sizeof next);
	}
	if (number == SYS_futex && a[1] == FUTEX_WAIT) {
		sleeps++;
		rest();
	}
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int sched_yield(void)
{
	yields++;
	rest();
	return (int)syscall(SYS_sched_yield);
}

void stay(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	want(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
}

static uint64_t used(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void compute_some(void)
{
	for (uint64_t end = used() + LOOSE_NS; used() < end;)
		;
}

static int here, there;

/* begin starts a receive of a message from a peer, and finish sends such a message and completes both. */
static void begin(struct side *s, fi_addr_t peer) { must(fi_trecv(s->ep, NULL, 0, NULL, peer, 1, 0, &there)); }

static void finish(struct side *s, fi_addr_t peer)
{
	must(fi_tsend(s->ep, NULL, 0, NULL, peer, 1, &here));
	done(s->tx, &here);
	done(s->rx, &there);
}

static void exchange(struct side *s)
{
	begin(s, s->partner);
	finish(s, s->partner);
}

static void poll_empty(struct fid_cq *cq) { want(nothing(cq), "an unexpected completion"); }

/* at_once polls as often as an MPI does after a poll that returned a completion. */
static void at_once(struct fid_cq *cq, int round)
{
	yields = sleeps = 0;
	for (int k = 0; k < FREE; k++)
		poll_empty(cq);
	want(yields == 0 && sleeps == 0, "round %d: of the first empty polls %u yield and %u sleep", round, yields, sleeps);
}

static void at_queue(struct side *s)
{
	scenario = "empty polls of a queue";
	for (int i = 0; i < ROUNDS; i++) {
		exchange(s);
		at_once(s->rx, i);
		exchange(s);
		at_once(s->tx, i);
	}
	for (int k = 0; k < MOST && yields + sleeps == 0; k++)
		poll_empty(s->rx);
	want(yields + sleeps > 0, "a rank that waits neither yields nor sleeps");
}

/* loosely checks that a rank that does something else between its polls yields or sleeps, too. */
static void loosely(struct side *s)
{
	scenario = "empty polls with other work in between";
	exchange(s);
	yields = sleeps = 0;
	for (int k = 0; k < MOST && yields + sleeps == 0; k++) {
		poll_empty(s->rx);
		compute_some();
	}
	want(yields + sleeps > 0, "a rank that polls now and then neither yields nor sleeps");
}

/* full checks that failed starts of operations do not count as progress: a rank that retries
 * them waits. */
static void full(struct side *s)
{
	static char contexts[REQUESTS];
	unsigned n = 0;
	scenario = "empty polls between starts that fail";
	while (n < REQUESTS && fi_trecv(s->ep, NULL, 0, NULL, s->partner, 3, 0, &contexts[n]) == 0)
		n++;
	want(n < REQUESTS, "no start fails for lack of requests");
	yields = sleeps = 0;
	for (int k = 0; k < MOST && yields + sleeps == 0; k++) {
		want(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 3, 0, &there) == -FI_EAGAIN, "a start succeeds although no request is left");
		poll_empty(s->rx);
	}
	want(yields + sleeps > 0, "a rank that finds no request neither yields nor sleeps");
}

static void at_counter(struct side *s)
{
	scenario = "empty polls of a counter";
	for (int i = 0; i < ROUNDS; i++) {
		(void)fi_cntr_read(s->received);
		exchange(s);
		uint64_t value = fi_cntr_read(s->received); /* a poll that found a change */
		yields = sleeps = 0;
		for (int k = 0; k < FREE; k++)
			want(fi_cntr_read(s->received) == value, "the counter has changed without a message");
		want(yields == 0 && sleeps == 0, "round %d: of the first empty polls %u yield and %u sleep", i, yields, sleeps);
	}
}

/* at_two has a rank wait and poll two queues in turn until it sleeps. A completion in one queue must
 * prevent the next empty polls of the other from sleeping. */
static void at_two(struct side *s)
{
	scenario = "empty polls of two queues";
	for (int i = 0; i < ROUNDS; i++) {
		struct fi_cq_tagged_entry e = {0};
		must(fi_trecv(s->ep, NULL, 0, NULL, s->partner, 2, 0, &there));
		nanosleep(&(struct timespec){.tv_nsec = rank == 0 ? LATER_NS : 0}, NULL);
		must(fi_tsend(s->ep, NULL, 0, NULL, s->partner, 2, &here));
		done(s->tx, &here);
		do
			poll_empty(s->tx);
		while (fi_cq_read(s->rx, &e, 1) != 1);
		at_once(s->tx, i);
	}
}

/* stop_time stops the time of this thread, and run_time lets it run again. */
static void stop_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	stopped = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run_time(void)
{
	nanosleep(&(struct timespec){.tv_nsec = BRIEF_NS * 10}, NULL); /* the time never goes back */
	stopped = 0;
}

/* vain checks that the empty polls of 20 us are loads and one reading of the clock each, after a time
 * without waits on this CPU, and that later ones acquire the lock. With an attendant they always do,
 * because it learns from them that the program polls. */
static void vain(struct side *s, uint64_t value)
{
	const char *progress = getenv("OUTRIGGER_MPI_PROGRESS");
	bool attended = progress != NULL && strcmp(progress, "off") != 0;
	stop_time();
	yields = sleeps = locks = clocks = 0;
	for (int k = 0; k < VAIN; k++) {
		poll_empty(s->rx);
		poll_empty(s->tx);
		want(fi_cntr_read(s->received) == value, "the counter has changed without a message");
		stopped += BRIEF_NS / VAIN - 1;
	}
	want(yields == 0 && sleeps == 0, "of the polls of 20 us %u yield and %u sleep", yields, sleeps);
	want(attended || locks == 0, "the polls of 20 us take a lock %u times", locks);
	want(attended || clocks <= 3 * VAIN, "%d polls read the clock %u times", 3 * VAIN, clocks);
	stopped += BRIEF_NS;
	poll_empty(s->rx);
	want(locks > 0, "a poll after 20 us takes no lock, and shows nothing to the sidecar");
	run_time();
}

/* in_vain has polls in vain follow the start of an operation, and a time without polls. */
static void in_vain(struct side *s)
{
	scenario = "empty polls in vain";
	for (int i = 0; i < ROUNDS; i++) {
		exchange(s);
		uint64_t value = fi_cntr_read(s->received);
		poll_empty(s->rx);
		nanosleep(&(struct timespec){.tv_nsec = CROWDED_NS}, NULL);
		begin(s, s->self); /* no message of the partner ends it */
		vain(s, value);
		nanosleep(&(struct timespec){.tv_nsec = CROWDED_NS}, NULL);
		vain(s, value);
		finish(s, s->self);
	}
}

static atomic_bool over;

static void *computes(void *arg)
{
	while (!over)
		;
	return arg;
}

/* on_shared_cpu checks that a rank sleeps instead of yielding as soon as it has detected that another
 * thread computes on its CPU. */
static void on_shared_cpu(struct side *s)
{
	scenario = "empty polls on the CPU of a thread that computes";
	unsigned asleep = 0;
	pthread_t other;
	want(pthread_create(&other, NULL, computes, NULL) == 0, "starting a thread");
	for (int i = 0; i < ROUNDS; i++) {
		sleeps = 0;
		exchange(s);
		asleep += sleeps;
		at_once(s->rx, i);
	}
	/* A rank that computes itself and polls now and then must not sleep. */
	sleeps = 0;
	for (int k = 0; k < ROUNDS; k++) {
		compute_some();
		poll_empty(s->rx);
	}
	want(sleeps == 0, "a rank that computes sleeps in %u of %d polls", sleeps, ROUNDS);
	over = true;
	pthread_join(other, NULL);
	want(asleep > 0, "neither rank has slept: no thread computed on their CPU");
}

/* peeked polls until a peek has found and claimed a message. */
static void peeked(struct side *s, const struct fi_msg_tagged *of)
{
	for (;;) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry bad = {0};
		ssize_t n;
		must(fi_trecvmsg(s->ep, of, FI_PEEK | FI_CLAIM));
		while ((n = fi_cq_read(s->rx, &e, 1)) == -FI_EAGAIN)
			;
		if (n == 1)
			return;
		want(fi_cq_readerr(s->rx, &bad, 0) == 1 && bad.err == FI_ENOMSG, "a peek: error %d", bad.err);
	}
}

/* claims receives messages that a peek has claimed: the call waits until the message is copied. */
static void claims(struct side *s)
{
	scenario = "receives of claimed messages";
	for (int i = 0; i < ROUNDS; i++) {
		char in[8], out[8] = "claimed";
		struct iovec v = {in, sizeof in};
		struct fi_msg_tagged m = {.addr = s->partner, .tag = 4, .context = &there};
		must(fi_tinject(s->ep, out, sizeof out, s->partner, 4));
		peeked(s, &m);
		m.msg_iov = &v;
		m.iov_count = 1;
		must(fi_trecvmsg(s->ep, &m, FI_CLAIM));
		done(s->rx, &there);
		want(memcmp(in, out, sizeof in) == 0, "a claimed message is wrong");
	}
}

/* flood sends more messages than the ring of submissions holds. A call for which it has no room waits,
 * and the order of the messages stays. */
static void flood(struct side *s)
{
	scenario = "more sends than the sidecar takes";
	for (unsigned i = 0; i < FLOOD; i++)
		must(fi_tinject(s->ep, &i, sizeof i, s->partner, 8));
	for (unsigned i = 0, in; i < FLOOD; i++) {
		must(fi_trecv(s->ep, &in, sizeof in, NULL, s->partner, 8, 0, &there));
		done(s->rx, &there);
		want(in == i, "message %u came in place of %u", in, i);
	}
}

void empty_polls(struct side *s)
{
	alarm(PATIENCE_S);
	at_queue(s);
	loosely(s);
	at_counter(s);
	at_two(s);
	in_vain(s);
	on_shared_cpu(s);
	claims(s);
	flood(s);
	want(rests_with_lock == 0, "%u yields or sleeps with a lock", rests_with_lock);
	meet(s);
	full(s); /* until the endpoint is closed */
	swap("full", &(char){0}, 1); /* receives of a partner that has left end at once */
	alarm(0);
}
