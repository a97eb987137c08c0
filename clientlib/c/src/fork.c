/* What fork does to sessions. A child has copies of all that the library knows, and of
 * the descriptors, and shares the memory: its looks would take its parent's completions,
 * its goodbye would be its parent's, and while it lives the sidecar would not learn of its
 * parent's death. So a child has no session. It closes its copies of the socket and of the
 * doorbell, and has private zeros where the control segment was. Other threads may have
 * been at work in the parent, so that nothing else of a copy is used. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <sys/mman.h>
#include <unistd.h>

#include "session.h"

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static outrigger *known; /* sessions of this process, by next_known */
static bool prepared; /* the handlers are known */

/* Only the list is locked: whoever holds a session's lock may wait for a lock of an
 * allocator, which may be held by the thread that forks. */
static void before_fork(void) { pthread_mutex_lock(&known_lock); }
static void in_parent(void) { pthread_mutex_unlock(&known_lock); }

static void part(outrigger *s)
{
	close(s->socket);
	close(s->doorbell);
	s->socket = s->doorbell = -1;
	s->gone = s->forked = true;
	s->place.wanted = false;
	if (mmap(s->control, s->control_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		munmap(s->control, s->control_bytes); /* a wrong look ends the child, and not the parent's session */
	pthread_mutex_init(&s->lock, NULL);
}

static void in_child(void)
{
	for (outrigger *s = known; s != NULL; s = s->next_known)
		part(s);
	known = NULL;
	pthread_mutex_init(&known_lock, NULL);
}

/* pthread_once would do for the handlers, but for its symbol of glibc 2.34. */
int or_know(outrigger *s)
{
	pthread_mutex_lock(&known_lock);
	prepared = prepared || pthread_atfork(before_fork, in_parent, in_child) == 0;
	if (prepared) {
		s->next_known = known;
		known = s;
	}
	int rc = prepared ? OUTRIGGER_OK : OUTRIGGER_NO_MEMORY;
	pthread_mutex_unlock(&known_lock);
	return rc;
}

void or_forget(outrigger *s)
{
	pthread_mutex_lock(&known_lock);
	for (outrigger **at = &known; *at != NULL; at = &(*at)->next_known)
		if (*at == s) {
			*at = s->next_known;
			break;
		}
	pthread_mutex_unlock(&known_lock);
}
