/* Progress: handles the client's completions, serves the endpoints, and yields or sleeps for
 * threads that wait. */
#define _GNU_SOURCE
#include <sched.h>

#include "provider.h"

/* After a poll that returned a completion, an MPI usually polls three more times before it returns
 * to the application. Those empty polls do not yield, however long they take. */
#define POLLS_FREE (RAPID_MAX + 1)

#define BRIEF_NS 20000u  /* how long empty polls in a row neither yield nor sleep */
#define YIELD_NS 200000u /* how long a thread polls and yields before it sleeps */
#define SLEEP_US 500u    /* the longest sleep: the MPI may poll other queues, such as shared memory, too */

pthread_mutex_t provider_lock = PTHREAD_MUTEX_INITIALIZER;
struct node endpoints = {&endpoints, &endpoints};
bool sidecar_ended;

_Atomic bool settled;

static bool alone; /* each process of the job here has a CPU */

void set_alone(bool yes) { alone = yes; }

/* handle_completions handles the client's completions. The attendant does so only while the program is away. */
static int handle_completions(void) { return is_attendant() ? outrigger_attend(client()) : outrigger_progress(client(), NULL); }

/* progress handles completions and has each endpoint serve what has arrived for it. */
void progress(void)
{
	if (client() == NULL)
		return;
	program_returned();
	if (!sidecar_ended && handle_completions() == OUTRIGGER_NO_SIDECAR) {
		(void)handle_completions(); /* completions that it published before its end are handled */
		sidecar_ended = true;
	}
	for (struct node *n = endpoints.next; n != &endpoints; n = n->next) {
		struct endpoint *ep = (struct endpoint *)((char *)n - offsetof(struct endpoint, node));
		ep->serve(ep);
	}
}

/* settle is called before the lock is released, and notes whether progress() has nothing to do until
 * the client has a completion: then empty polls need no lock (poll_in_vain). A program that hands
 * over to an attendant acquires the lock, because its polls tell the attendant that it polls. */
void settle(void)
{
	bool all = client() != NULL && !list_empty(&endpoints) && !sidecar_ended && unread == 0 && !program.requested;
	for (struct node *n = endpoints.next; all && n != &endpoints; n = n->next) {
		const struct endpoint *ep = (struct endpoint *)((char *)n - offsetof(struct endpoint, node));
		all = ep->served(ep);
	}
	atomic_store_explicit(&settled, all, memory_order_release);
}

/* polls_on reports whether a thread whose empty polls in a row began at first still polls, and neither
 * yields nor sleeps. hurries: it yields as soon as it may. A yield gives nothing to another process
 * if each has a CPU. */
bool polls_on(uint64_t first, unsigned polls, uint64_t now, bool hurries)
{
	if (polls < POLLS_FREE)
		return true;
	return (alone || !hurries) && now - first < (alone ? YIELD_NS : BRIEF_NS);
}

/* sleeps_next reports whether yield_or_sleep would sleep. */
bool sleeps_next(uint64_t since, uint64_t now) { return client() != NULL && (now - since >= YIELD_NS || outrigger_yield_sleeps(client())); }

/* yield_or_sleep yields, or sleeps if now the wait has lasted for YIELD_NS since it began. It reports whether
 * the sidecar runs. */
static bool yield_or_sleep(uint64_t since, uint64_t now)
{
	if (client() == NULL) {
		sched_yield();
		return true;
	}
	if (now - since < YIELD_NS) {
		outrigger_yield(client());
		return true;
	}
	if (ring_full())
		sched_yield(); /* outrigger_sleep does not sleep if chunks wait for room in the ring */
	return outrigger_sleep(client(), SLEEP_US) != OUTRIGGER_NO_SIDECAR;
}

/* await_room waits until the client can submit, and releases the lock meanwhile. FI_EAGAIN instead
 * would break the promise of the queues' size (fi_endpoint(3)). */
void await_room(void)
{
	while (client() != NULL && !sidecar_ended && ring_full()) {
		progress();
		unlock();
		sched_yield();
		lock();
	}
}

/* back_off is called after an empty poll at the time now, of polls in a row that began at since. It
 * yields, and after YIELD_NS sleeps until there is a completion. A thread that does not wait does not
 * sleep, even if it was preempted after now. back_off returns true if it has released the lock
 * meanwhile. */
bool back_off(uint64_t since, uint64_t now, bool waits)
{
	if (!waits && cpu_contended())
		return false;
	unlock();
	bool alive = yield_or_sleep(since, now);
	lock();
	sidecar_ended = sidecar_ended || !alive;
	program_returned(); /* even if another thread has handed over meanwhile */
	return true;
}

/* back_off_waiting is back_off for a call that has waited since begun, after so many polls. */
void back_off_waiting(uint64_t begun, unsigned polls)
{
	uint64_t now = nanoseconds();
	if (!polls_on(begun, polls, now, true))
		(void)back_off(begun, now, true);
}
