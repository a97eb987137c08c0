/* What a thread does that has found nothing, and how a call ends. */
#include "provider.h"

/* What this thread has looked at in vain, of all queues and counters: an MPI looks at
 * several in turn, and what it has found at one it goes through before it looks at the next. */
static __thread struct {
	unsigned looks;         /* since it last found or started something */
	uint64_t since, looked; /* when it began to look again at once, and its last look */
	uint64_t used;          /* its processor time, when it last mattered */
} vain;

/* waits reports that this thread does nothing between its looks. One that comes back later has
 * computed, or given the processor away itself, as some MPIs do: its processor time tells, which
 * is found out only where it matters. */
static bool waits(bool at_once)
{
	if (at_once || !yields_badly())
		return true;
	uint64_t before = vain.used;
	vain.used = processor_time();
	return vain.used - before <= TIGHT_NS;
}

/* linger is what a thread does that has found nothing. After a few looks it yields. One that
 * comes back at once after each look waits, and sleeps after a while; one that computes
 * between its looks comes later, and is not held up. The lock is given up meanwhile: more may
 * have come where it reports so. */
bool linger(void)
{
	if (behind())
		return false;
	uint64_t now = nanoseconds();
	bool at_once = now - vain.looked <= TIGHT_NS;
	if (vain.looks++ == 0 || !at_once)
		vain.since = now;
	bool rested = doze(vain.since, vain.looks, waits(at_once));
	vain.looked = nanoseconds();
	return rested;
}

void end_of_start(ssize_t rc)
{
	if (rc == 0)
		vain.looks = 0;
	depart();
}

/* end_of_look gives up the lock. */
void end_of_look(bool passes, bool found)
{
	looked(found);
	if (passes || found)
		depart();
	else
		unlock();
}

void found_something(void) { vain.looks = 0; }
