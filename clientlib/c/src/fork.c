/* What fork does to sessions. A child inherits copies of the library's state and of the
 * descriptors, and shares the mapped memory. If it used them, it would consume its parent's
 * completions, its detach would detach the parent, and as long as it lives the sidecar would
 * not notice its parent's death. Therefore a child has no session: it closes its copies of the
 * descriptors and maps private zeros over the control segment. Other threads of the parent may
 * have been changing the rest of the state during the fork, so the child uses none of it.
 *
 * A descriptor that is not recorded in a session would stay open in the child. Therefore a
 * session is registered before it has a descriptor and until it has closed all, and a
 * descriptor is opened or closed, and recorded, while forks are locked out. The Go client has
 * no such file: a Go program does not fork without exec. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <sys/mman.h>
#include <unistd.h>

#include "session.h"

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static outrigger *known; /* sessions of this process, linked by next_session */
static bool prepared; /* the handlers of fork are registered */

/* A lock of its own, and not the session's: a thread that holds the session's lock may wait for
 * a lock of an allocator, which the forking thread may hold. */
void or_lock_forks(void) { pthread_mutex_lock(&known_lock); }
void or_unlock_forks(void) { pthread_mutex_unlock(&known_lock); }

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_all(outrigger *s)
{
	close_fd(&s->socket);
	close_fd(&s->doorbell);
	close_fd(&s->files[0]);
	close_fd(&s->files[1]);
}

/* disconnect makes the child's copy of a session unusable for everything but outrigger_close. */
static void disconnect(outrigger *s)
{
	close_all(s);
	s->gone = s->forked = true;
	s->activity.watched = false;
	if (s->control != NULL && mmap(s->control, s->control_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		munmap(s->control, s->control_bytes); /* a stray access then kills the child and does not harm the parent's session */
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->pieces_lock, NULL);
}

/* in_child is the handler that fork calls in the child. */
static void in_child(void)
{
	or_activity_forked();
	for (outrigger *s = known; s != NULL; s = s->next_session)
		disconnect(s);
	known = NULL;
	pthread_mutex_init(&known_lock, NULL);
}

/* prepare registers the handlers of fork once. The caller holds known_lock, or is the
 * constructor. */
static bool prepare(void)
{
	prepared = prepared || pthread_atfork(or_lock_forks, or_unlock_forks, in_child) == 0;
	return prepared;
}

/* A fork that has begun does not call handlers that are registered later. Therefore they are
 * registered when the library is loaded. If that fails, or_register_session tries again. pthread_once is
 * not used because its symbol is one of glibc 2.34. */
__attribute__((constructor)) static void begin(void) { (void)prepare(); }

/* or_register_session adds s to the sessions that a child disconnects. It is called before s has a
 * descriptor. */
int or_register_session(outrigger *s)
{
	or_lock_forks();
	bool ok = prepare();
	if (ok) {
		s->next_session = known;
		known = s;
	}
	or_unlock_forks();
	return ok ? OUTRIGGER_OK : OUTRIGGER_NO_MEMORY;
}

/* or_unregister_session closes the descriptors of s and removes it from the sessions of this process. */
void or_unregister_session(outrigger *s)
{
	or_lock_forks();
	close_all(s);
	for (outrigger **at = &known; *at != NULL; at = &(*at)->next_session)
		if (*at == s) {
			*at = s->next_session;
			break;
		}
	or_unlock_forks();
}
