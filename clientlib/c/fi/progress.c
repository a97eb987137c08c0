/* What a call of the program moves on, and what a thread does that has found nothing to do. */
#define _GNU_SOURCE
#include <sched.h>

#include "provider.h"

#define POLL_LOOKS 64 /* before a thread that finds nothing yields, where each process has a processor */
/* Elsewhere: an MPI that has found something looks again, to no purpose, before its program
 * hears of it, and it may have a step of its own to take between. */
#define FIRST_LOOKS (TIGHT_MAX + 1)

pthread_mutex_t provider_lock = PTHREAD_MUTEX_INITIALIZER;
struct node endpoints = {&endpoints, &endpoints};
bool sidecar_ended;

static unsigned patient_looks; /* in vain, before a thread yields */

void set_patience(bool alone) { patient_looks = alone ? POLL_LOOKS : FIRST_LOOKS; }

static int take(void) { return behind() ? outrigger_attend(client()) : outrigger_progress(client(), NULL); }

void progress(void)
{
	if (client() == NULL)
		return;
	came_back();
	if (!sidecar_ended && take() == OUTRIGGER_NO_SIDECAR) {
		(void)take(); /* what it had said before counts; what comes later finds nobody */
		sidecar_ended = true;
	}
	for (struct node *n = endpoints.next; n != &endpoints; n = n->next) {
		struct endpoint *ep = (struct endpoint *)((char *)n - offsetof(struct endpoint, node));
		ep->serve(ep);
	}
}

#define YIELD_NS 200000u     /* before it sleeps */
#define SLEEP_US 500u        /* at most: MPI may have other things to look at */

/* rest reports that there is a sidecar. */
static bool rest(uint64_t since)
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

/* doze is what a thread does that has found nothing so many times in a row, the first time
 * at since: it yields, and then sleeps until something comes. One that does not wait does not
 * sleep. */
bool doze(uint64_t since, unsigned looks, bool waits)
{
	if (looks < patient_looks || (!waits && yields_badly()))
		return false;
	unlock();
	bool alive = rest(since);
	lock();
	sidecar_ended = sidecar_ended || !alive;
	came_back(); /* although another thread may have gone meanwhile */
	return true;
}
