/* How sidecar and session wake each other: the doorbell of a sleeping engine, the word at which
 * threads of the session sleep (LAYOUT §8), and the socket, whose end is the sidecar's. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

/* or_ring rings the doorbell of a sleeping engine. A counter that is full is a rung bell. */
int or_ring(outrigger *s)
{
	uint64_t one = 1;
	ssize_t n;
	do
		n = write(s->doorbell, &one, sizeof one);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN) {
		s->gone = true; /* an engine that cannot be woken is as good as none */
		return OUTRIGGER_NO_SIDECAR;
	}
	return OUTRIGGER_OK;
}

/* or_sidecar_ended looks at the socket. What is sent on it is an answer about a piece of the
 * arena, which another thread waits for, and reads; without feature pieces nothing is, so
 * that whatever there is to read is its end. */
bool or_sidecar_ended(outrigger *s)
{
	char b;
	ssize_t n = recv(s->socket, &b, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n > 0 && (s->features & OR_FEATURE_PIECES) != 0)
		return s->gone;
	if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		s->gone = true;
	return s->gone;
}

void or_nap(const outrigger *s, uint32_t word, unsigned microseconds)
{
	struct timespec t = {(time_t)(microseconds / 1000000u), (long)(microseconds % 1000000u) * 1000};
	/* Not the private kind: the word is in the memory of two processes. */
	syscall(SYS_futex, or_word(s, OR_SEG_OFF_WAITING), FUTEX_WAIT, word, &t, NULL, 0);
}

void or_rouse(outrigger *s)
{
	s->roused++;
	atomic_store(or_word(s, OR_SEG_OFF_WAITING), 0);
	syscall(SYS_futex, or_word(s, OR_SEG_OFF_WAITING), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* or_back notes that the program is in the library again. */
void or_back(outrigger *s)
{
	if (!s->watch.armed)
		return;
	s->watch.armed = s->watch.away = false;
	if (s->sleepers == 0)
		atomic_store(or_word(s, OR_SEG_OFF_WAITING), 0);
}

/* or_watches reports that the caller is the watcher. */
bool or_watches(const outrigger *s)
{
	return atomic_load_explicit(&s->watch.there, memory_order_relaxed) && pthread_equal(s->watch.thread, pthread_self());
}
