/* How sidecar and session wake each other: the doorbell of a sleeping engine, the word on which
 * threads of the session sleep (LAYOUT §8), and the socket, whose end of file tells that the
 * sidecar has ended. The Go client has it in api/shm/wake and clientlib/wait.go. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

/* or_ring_doorbell wakes a sleeping engine by its eventfd. EAGAIN means that the counter is full: the
 * doorbell has been rung already. */
int or_ring_doorbell(outrigger *s)
{
	uint64_t one = 1;
	ssize_t n;
	do
		n = write(s->doorbell, &one, sizeof one);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN) {
		or_set(s->gone, true); /* an engine that cannot be woken makes no progress */
		return OUTRIGGER_NO_SIDECAR;
	}
	return OUTRIGGER_OK;
}

/* or_sidecar_ended reports whether the sidecar has closed the socket. With the feature pieces,
 * data on the socket is an answer about a piece of the arena, which another thread waits for
 * and reads. Without that feature the sidecar sends nothing, and data is a protocol violation,
 * which is treated as the sidecar's end. */
bool or_sidecar_ended(outrigger *s)
{
	char b;
	ssize_t n = recv(s->socket, &b, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n > 0 && (s->features & OR_FEATURE_PIECES) != 0)
		return s->gone;
	if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		or_set(s->gone, true);
	return s->gone;
}

/* or_sleep_on_word sleeps on the waiting word while it has the given value, at most so many
 * microseconds. */
void or_sleep_on_word(const outrigger *s, uint32_t word, unsigned microseconds)
{
	struct timespec t = {(time_t)(microseconds / 1000000u), (long)(microseconds % 1000000u) * 1000};
	/* Not FUTEX_PRIVATE: the word is in the memory of two processes. */
	syscall(SYS_futex, or_word(s, OR_SEG_OFF_WAITING), FUTEX_WAIT, word, &t, NULL, 0);
}

/* or_wake_sleepers wakes every thread that sleeps on the waiting word. */
void or_wake_sleepers(outrigger *s)
{
	s->wakeups++;
	atomic_store(or_word(s, OR_SEG_OFF_WAITING), 0);
	syscall(SYS_futex, or_word(s, OR_SEG_OFF_WAITING), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* or_program_back ends the watcher's turn: the program is in the library again and takes completions
 * itself. */
void or_program_back(outrigger *s)
{
	if (!s->watch.armed)
		return;
	s->watch.away = false;
	or_set(s->watch.armed, false);
	if (s->sleepers == 0)
		atomic_store(or_word(s, OR_SEG_OFF_WAITING), 0);
}

/* or_is_watcher reports whether the calling thread is the watcher. */
bool or_is_watcher(const outrigger *s)
{
	return atomic_load_explicit(&s->watch.there, memory_order_relaxed) && pthread_equal(s->watch.thread, pthread_self());
}
