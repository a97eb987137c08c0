/* Empty polls: when a thread that polls in vain yields or sleeps, and what the end of a call does. */
#include "openmpi.h"
#include "provider.h"

/* The empty polls of this thread, over all queues and counters: an MPI polls several of them in
 * turn, and handles what it has found in one before it polls the next. */
static __thread struct {
	unsigned polls;         /* empty polls in a row, since the thread last found or started something, or computed */
	uint64_t first;         /* time of the first of them */
	uint64_t locked;        /* time of the last one that acquired the lock, or begin of the polls in a row */
	uint64_t shown;         /* time of the last one that acquired the lock */
	uint64_t since, polled; /* begin of the present series of polls in quick succession, and time of the last poll */
	uint64_t cpu_ns;        /* CPU time of the thread when it was last read */
	uint64_t crowded;       /* until then another process may wait for this CPU */
	uint64_t vain;          /* end of the last rest of LONG_NS after which nothing was found; 0: something was */
	uint64_t looked;        /* time of the last call of called_by_test */
	bool tests;             /* its result */
} empty;

/* A yield that takes longer has given the CPU to another process, such as the sidecar. */
#define GIVEN_NS 2000u
/* For so long after such a yield the thread yields as soon as it may: most waits of a program on
 * shared CPUs end because another process has run. */
#define CROWDED_NS 10000000u

#define LONG_NS 500000u /* a sleep that nothing ends lasts so long */

/* note_rest notes what a yield or a sleep since begun shows. */
static void note_rest(uint64_t begun)
{
	empty.polled = nanoseconds();
	uint64_t took = empty.polled - begun;
	empty.crowded = took > GIVEN_NS ? empty.polled + CROWDED_NS : 0;
	if (took >= LONG_NS)
		empty.vain = empty.polled;
}

/* A thread that has not polled for so long has computed, and polls anew. It is longer than the work of
 * an MPI between two polls of a wait. */
#define PAUSE_NS 1000000u

/* begins reports whether a poll at the time now begins polls in a row. */
static bool begins(uint64_t now) { return empty.polls == 0 || now - empty.polled > PAUSE_NS; }

/* note_empty counts an empty poll, and reports whether it follows the last one at once. */
static bool note_empty(uint64_t now)
{
	bool at_once = empty.polls > 0 && now - empty.polled <= RAPID_NS;
	if (begins(now)) {
		empty.polls = 0;
		empty.first = now;
	}
	empty.polls++;
	if (!at_once)
		empty.since = now;
	empty.polled = now;
	return at_once;
}

/* The longest time between two polls of a thread that acquire the lock, while it polls in vain: they
 * show the client that the program waits, which must not look like computation
 * (clientlib/c/src/activity.c). */
#define LOCKED_EVERY_NS 20000u
/* The same for polls that are PAUSE_NS and more apart, each of which polls anew: what the client knows of
 * a waiting program holds for 1.5 s (shm.MomentFresh). */
#define SHOWN_EVERY_NS 1000000000u

/* poll_in_vain reports, without the lock and by loads alone, that a poll would find nothing, as far as
 * this thread still polls without a rest. */
bool poll_in_vain(void)
{
	if (!atomic_load_explicit(&settled, memory_order_acquire) || !outrigger_idle(client()))
		return false;
	uint64_t now = nanoseconds();
	if (now - empty.shown >= SHOWN_EVERY_NS)
		return false;
	if (begins(now))
		empty.locked = now;
	else if (now - empty.locked >= LOCKED_EVERY_NS || !polls_on(empty.first, empty.polls, now, now < empty.crowded))
		return false;
	(void)note_empty(now);
	return true;
}

/* waits reports whether this thread does nothing between its polls. If it polls later than
 * RAPID_NS after the last poll, it has computed, or has yielded the CPU itself, as some MPIs do.
 * CPU time distinguishes the two; it is read only if another thread computes on this CPU. */
static bool waits(bool at_once)
{
	if (at_once || !cpu_contended())
		return true;
	uint64_t before = empty.cpu_ns;
	empty.cpu_ns = processor_time();
	return empty.cpu_ns - before <= RAPID_NS;
}

/* Whether several threads call this library by turns. */
static struct {
	const void *thread; /* the empty of the thread that called last */
	uint64_t changed;   /* when it last became another one */
	unsigned changes;   /* how often it did so, each within SEVERAL_NS of the last time */
} callers;

#define SEVERAL_NS 100000000u /* threads that have not called for so long do not count */
#define SEVERAL_CHANGES 4u     /* fewer: one thread has left its work to another one */

/* note_caller notes which thread calls; the lock is held. */
static void note_caller(void)
{
	if (callers.thread == &empty)
		return;
	uint64_t now = nanoseconds();
	bool soon = callers.thread != NULL && now - callers.changed < SEVERAL_NS;
	callers.changes = soon ? callers.changes + 1 : 0;
	callers.changed = now;
	callers.thread = &empty;
}

/* threads_of_openmpi reports whether several threads of an Open MPI call by turns. Then it yields between
 * its polls. */
bool threads_of_openmpi(void)
{
	return callers.changes >= SEVERAL_CHANGES && nanoseconds() - callers.changed < SEVERAL_NS && openmpi_yields();
}

/* mpi_yields reports whether the MPI yields between this poll and its next one, so that this call must
 * not. Open MPI's progress holds a lock while it polls a queue. Another thread finds it taken, makes
 * the rest of its progress and tries again, without a pause: if this thread yielded or slept with
 * the lock, the others would take the processors from the sidecar, which completes what they wait
 * for. */
static bool mpi_yields(void)
{
	note_caller();
	return threads_of_openmpi();
}

/* For so long after a rest in vain a thread that tests does not sleep, and one that has polled by MPI_Test
 * is expected to do so again. */
#define AWAKE_NS 10000000u
#define LOOKED_NS 1000000u

/* tests_in_vain reports whether a poll at the time now would sleep although the MPI's call returns to the
 * program at once, and the last sleep found nothing: a program that tests its requests between
 * short pieces of work polls in as quick succession as one that waits. */
static bool tests_in_vain(uint64_t now)
{
	if (empty.vain == 0 || now - empty.vain >= AWAKE_NS || !sleeps_next(empty.since, now))
		return false;
	if (now - empty.looked >= LOOKED_NS) {
		empty.tests = called_by_test();
		empty.looked = now;
	}
	return empty.tests;
}

/* yield_if_waiting is called after an empty poll. After a few empty polls the thread yields; if
 * it polls in quick succession, it waits for something, and sleeps after a while, unless the MPI
 * only tests. A thread that computes between its polls is not delayed. It returns true if it has
 * released the lock meanwhile: completions may have arrived. */
bool yield_if_waiting(void)
{
	if (is_attendant())
		return false;
	uint64_t now = nanoseconds();
	bool at_once = note_empty(now);
	empty.locked = empty.shown = now;
	if (mpi_yields() || polls_on(empty.first, empty.polls, now, now < empty.crowded))
		return false;
	if (tests_in_vain(now)) {
		empty.polls = 0;
		return false;
	}
	if (!back_off(empty.since, now, waits(at_once)))
		return false;
	note_rest(now);
	return true;
}

/* end_start ends a call that starts an operation, with the result rc: it hands over to the
 * attendant and releases the lock. */
void end_start(ssize_t rc)
{
	if (rc == 0)
		empty.polls = 0;
	if (!is_attendant())
		note_caller();
	settle();
	unlock_and_hand_over();
}

/* end_poll ends a poll and releases the lock. If the poll found something, or the program polls
 * only occasionally, it hands over to the attendant. */
void end_poll(bool passes, bool found)
{
	note_poll(found);
	settle();
	if (passes || found)
		unlock_and_hand_over();
	else
		unlock();
}

/* end_empty_polls notes that a poll was not empty. */
void end_empty_polls(void)
{
	empty.polls = 0;
	empty.vain = 0;
}
