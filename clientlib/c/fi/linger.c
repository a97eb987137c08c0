/* Empty polls: when a thread that polls in vain yields or sleeps, and what the end of a call does. */
#include "provider.h"

/* The empty polls of this thread, over all queues and counters: an MPI polls several of them in
 * turn, and handles what it has found in one before it polls the next. */
static __thread struct {
	unsigned polls;         /* empty polls since the thread last found or started something */
	uint64_t since, polled; /* begin of the present series of polls in quick succession, and time of the last poll */
	uint64_t cpu_ns;        /* CPU time of the thread when it was last read */
} empty;

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

/* yield_if_waiting is called after an empty poll. After a few empty polls the thread yields; if
 * it polls in quick succession, it waits for something, and sleeps after a while. A thread that
 * computes between its polls is not delayed. It returns true if it has released the lock
 * meanwhile: completions may have arrived. */
bool yield_if_waiting(void)
{
	if (is_attendant())
		return false;
	uint64_t now = nanoseconds();
	bool at_once = now - empty.polled <= RAPID_NS;
	if (empty.polls++ == 0 || !at_once)
		empty.since = now;
	bool rested = back_off(empty.since, empty.polls, waits(at_once));
	empty.polled = nanoseconds();
	return rested;
}

/* end_start ends a call that starts an operation, with the result rc: it hands over to the
 * attendant and releases the lock. */
void end_start(ssize_t rc)
{
	if (rc == 0)
		empty.polls = 0;
	unlock_and_hand_over();
}

/* end_poll ends a poll and releases the lock. If the poll found something, or the program polls
 * only occasionally, it hands over to the attendant. */
void end_poll(bool passes, bool found)
{
	note_poll(found);
	if (passes || found)
		unlock_and_hand_over();
	else
		unlock();
}

/* end_empty_polls notes that a poll was not empty. */
void end_empty_polls(void) { empty.polls = 0; }
