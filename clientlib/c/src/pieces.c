/* The arena is allocated piece by piece: LAYOUT §2.3. This is called within malloc, by
 * whatever allocates, so that it allocates nothing, and its lock is taken last. Its system
 * calls are made by syscall, which is no cancellation point: a thread that is cancelled
 * within malloc would keep malloc's locks. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session.h"

#define REFUSED_PAUSE_NS 1000000000u

/* The least and the most that is asked for at once beyond what is needed; the Go client has
 * the same (shm.PieceEnd). */
#define PIECE_LEAST ((uint64_t)OR_PIECE_LEAST)
#define PIECE_MOST ((uint64_t)OR_PIECE_MOST)

static uint64_t units(uint64_t bytes, uint64_t limit)
{
	uint64_t n = (bytes + OR_PIECE_UNIT - 1) & ~(uint64_t)(OR_PIECE_UNIT - 1);
	return n < limit ? n : limit;
}

static uint64_t piece_end(uint64_t ready, uint64_t end, uint64_t limit)
{
	uint64_t more = ready / 8;
	if (more < PIECE_LEAST)
		more = PIECE_LEAST;
	if (more > PIECE_MOST)
		more = PIECE_MOST;
	return units(end > ready + more ? end : ready + more, limit);
}

/* ask wants the bytes of the arena from one offset to another, and answers how many of them
 * are allocated. */
static uint64_t ask(outrigger *s, uint64_t from, uint64_t to)
{
	unsigned char wish[OR_ASK_BYTES] = {0}, answer[OR_ANSWER_BYTES + 1];
	uint32_t magic = OR_ASK_MAGIC;
	uint64_t bytes = to - from, at, got;
	long n;
	memcpy(wish, &magic, sizeof magic);
	memcpy(wish + 8, &from, sizeof from);
	memcpy(wish + 16, &bytes, sizeof bytes);
	do
		n = syscall(SYS_sendto, s->socket, wish, sizeof wish, MSG_NOSIGNAL, NULL, 0);
	while (n < 0 && errno == EINTR);
	if (n == (long)sizeof wish)
		do
			n = syscall(SYS_recvfrom, s->socket, answer, sizeof answer, 0, NULL, NULL);
		while (n < 0 && errno == EINTR);
	s->mute = n != OR_ANSWER_BYTES;
	if (s->mute)
		return 0;
	memcpy(&magic, answer, sizeof magic);
	memcpy(&at, answer + 8, sizeof at);
	memcpy(&got, answer + 16, sizeof got);
	s->mute = magic != OR_ANSWER_MAGIC || at != from || got > bytes;
	return s->mute ? 0 : got;
}

/* or_grow makes the bytes up to an end usable, of a part of the arena that is allocated
 * up to ready, and has a limit. */
bool or_grow(outrigger *s, uint64_t *ready, uint64_t end, uint64_t limit, bool insist)
{
	int saved = errno;
	pthread_mutex_lock(&s->asking);
	bool may = !s->forked && !s->mute && (insist || s->asks_again == 0 || or_now() >= s->asks_again);
	/* More than is needed, or else no more. */
	uint64_t to[] = {piece_end(*ready, end, limit), units(end, limit)};
	for (int i = 0; i < 2 && may && *ready < end && !s->mute; i++)
		if (i == 0 || to[i] < to[0])
			*ready += ask(s, *ready, to[i]);
	bool ok = *ready >= end;
	if (may && !ok)
		s->asks_again = or_now() + REFUSED_PAUSE_NS;
	pthread_mutex_unlock(&s->asking);
	errno = saved;
	return ok;
}
