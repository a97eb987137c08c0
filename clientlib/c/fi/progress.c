/* Progress: handles the client's completions, serves the endpoints, and yields or sleeps for
 * threads that wait. */
#define _GNU_SOURCE
#include <sched.h>

#include "provider.h"

/* Empty polls before a thread yields, if each process of the job has a CPU. */
#define POLLS_ALONE 64
/* Otherwise: after a poll that returned a completion, an MPI usually polls three more times before
 * it returns to the application. Those empty polls do not yield. */
#define POLLS_SHARED (RAPID_MAX + 1)

pthread_mutex_t provider_lock = PTHREAD_MUTEX_INITIALIZER;
struct node endpoints = {&endpoints, &endpoints};
bool sidecar_ended;

static unsigned polls_before_yield; /* empty polls before a thread yields */

/* set_polls_before_yield sets how a thread waits. alone: each process of the job here has a CPU. */
void set_polls_before_yield(bool alone) { polls_before_yield = alone ? POLLS_ALONE : POLLS_SHARED; }

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

#define YIELD_NS 200000u     /* how long a thread yields before it sleeps */
#define SLEEP_US 500u        /* the longest sleep: the MPI may poll other queues, such as shared memory, too */

/* yield_or_sleep yields, or sleeps if the wait has lasted for YIELD_NS since it began. It reports whether
 * the sidecar runs. */
static bool yield_or_sleep(uint64_t since)
{
	if (client() == NULL) {
		sched_yield();
		return true;
	}
	if (nanoseconds() - since < YIELD_NS) {
		outrigger_yield(client());
		return true;
	}
	return outrigger_sleep(client(), SLEEP_US) != OUTRIGGER_NO_SIDECAR;
}

/* back_off is called after so many empty polls in a row, the first one at since. It yields, and after
 * YIELD_NS sleeps until there is a completion. A thread that does not wait does not sleep. back_off
 * returns true if it has released the lock meanwhile. */
bool back_off(uint64_t since, unsigned polls, bool waits)
{
	if (polls < polls_before_yield || (!waits && cpu_contended()))
		return false;
	unlock();
	bool alive = yield_or_sleep(since);
	lock();
	sidecar_ended = sidecar_ended || !alive;
	program_returned(); /* even if another thread has handed over meanwhile */
	return true;
}
