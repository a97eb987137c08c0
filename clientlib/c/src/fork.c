/* What fork does to sessions. A child has copies of all that the library knows, and of
 * the descriptors, and shares the memory: its looks would take its parent's completions,
 * its goodbye would be its parent's, and while it lives the sidecar would not learn of its
 * parent's death. So a child has no session. It closes its copies of the descriptors, and
 * has private zeros where the control segment was. Other threads may have been at work in
 * the parent, so that nothing else of a copy is used.
 *
 * A descriptor that a child did not know of would stay open in it. So a session is known
 * before it has any, and until it has none, and one comes or goes together with what the
 * session says of it while forks are held up. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <sys/mman.h>
#include <unistd.h>

#include "session.h"

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static outrigger *known; /* sessions of this process, by next_known */
static bool prepared; /* the handlers are known */

/* Not a session's own lock: whoever holds that may wait for a lock of an allocator, which
 * may be held by the thread that forks. */
void or_hold_forks(void) { pthread_mutex_lock(&known_lock); }
void or_let_fork(void) { pthread_mutex_unlock(&known_lock); }

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void shut_all(outrigger *s)
{
	shut(&s->socket);
	shut(&s->doorbell);
	shut(&s->files[0]);
	shut(&s->files[1]);
}

static void part(outrigger *s)
{
	shut_all(s);
	s->gone = s->forked = true;
	s->place.wanted = false;
	if (s->control != NULL && mmap(s->control, s->control_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		munmap(s->control, s->control_bytes); /* a wrong look ends the child, and not the parent's session */
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->asking, NULL);
}

static void in_child(void)
{
	or_place_forked();
	for (outrigger *s = known; s != NULL; s = s->next_known)
		part(s);
	known = NULL;
	pthread_mutex_init(&known_lock, NULL);
}

static bool prepare(void)
{
	prepared = prepared || pthread_atfork(or_hold_forks, or_let_fork, in_child) == 0;
	return prepared;
}

/* A fork that has begun does not call handlers that come later. So they are there before
 * anything else is; pthread_once would do for a second try, but for its symbol of glibc
 * 2.34. */
__attribute__((constructor)) static void begin(void) { (void)prepare(); }

int or_know(outrigger *s)
{
	or_hold_forks();
	bool ok = prepare();
	if (ok) {
		s->next_known = known;
		known = s;
	}
	or_let_fork();
	return ok ? OUTRIGGER_OK : OUTRIGGER_NO_MEMORY;
}

void or_forget(outrigger *s)
{
	or_hold_forks();
	shut_all(s);
	for (outrigger **at = &known; *at != NULL; at = &(*at)->next_known)
		if (*at == s) {
			*at = s->next_known;
			break;
		}
	or_let_fork();
}
