/* The sidecar allocates the arena piece by piece on request (LAYOUT §2.3). The functions here
 * are called within malloc: they allocate nothing, and their lock is the last in the order of
 * locks. System calls are made by syscall(), which is no cancellation point, because a thread
 * that is cancelled within malloc would never release malloc's locks. The Go client has it in
 * clientlib/pieces.go. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session.h"

/* How long callers that do not insist ask for nothing after the sidecar had no memory: each
 * request costs a round trip. */
#define REFUSED_PAUSE_NS 1000000000u

/* The least and the most that is requested at once beyond the present need; the Go client has
 * the same (shm.PieceEnd). */
#define PIECE_LEAST ((uint64_t)OR_PIECE_LEAST)
#define PIECE_MOST ((uint64_t)OR_PIECE_MOST)

/* units rounds up to the unit of allocation, but not above the limit. */
static uint64_t units(uint64_t bytes, uint64_t limit)
{
	uint64_t n = (bytes + OR_PIECE_UNIT - 1) & ~(uint64_t)(OR_PIECE_UNIT - 1);
	return n < limit ? n : limit;
}

/* piece_end returns up to where to request memory: an eighth more than is allocated, within the
 * two bounds, so that a growing heap makes few requests. */
static uint64_t piece_end(uint64_t ready, uint64_t end, uint64_t limit)
{
	uint64_t more = ready / 8;
	if (more < PIECE_LEAST)
		more = PIECE_LEAST;
	if (more > PIECE_MOST)
		more = PIECE_MOST;
	return units(end > ready + more ? end : ready + more, limit);
}

/* ask requests the bytes of the arena between two offsets from the sidecar and returns how many
 * of them it has allocated. After a malformed answer or the end of the socket nothing is
 * requested any more. */
static uint64_t ask(outrigger *s, uint64_t from, uint64_t to)
{
	unsigned char question[OR_ASK_BYTES] = {0}, answer[OR_ANSWER_BYTES + 1];
	uint32_t magic = OR_ASK_MAGIC;
	uint64_t bytes = to - from, at, got;
	long n;
	memcpy(question, &magic, sizeof magic);
	memcpy(question + 8, &from, sizeof from);
	memcpy(question + 16, &bytes, sizeof bytes);
	do
		n = syscall(SYS_sendto, s->socket, question, sizeof question, MSG_NOSIGNAL, NULL, 0);
	while (n < 0 && errno == EINTR);
	if (n == (long)sizeof question)
		do
			n = syscall(SYS_recvfrom, s->socket, answer, sizeof answer, 0, NULL, NULL);
		while (n < 0 && errno == EINTR);
	s->no_pieces = n != OR_ANSWER_BYTES;
	if (s->no_pieces)
		return 0;
	memcpy(&magic, answer, sizeof magic);
	memcpy(&at, answer + 8, sizeof at);
	memcpy(&got, answer + 16, sizeof got);
	s->no_pieces = magic != OR_ANSWER_MAGIC || at != from || got > bytes;
	return s->no_pieces ? 0 : got;
}

/* or_grow_arena has the sidecar allocate a part of the arena up to end. *ready is up to where that
 * part is allocated, and limit its end. A caller that does not insist fails at once for
 * REFUSED_PAUSE_NS after the sidecar had no memory. */
bool or_grow_arena(outrigger *s, uint64_t *ready, uint64_t end, uint64_t limit, bool insist)
{
	int saved = errno;
	pthread_mutex_lock(&s->pieces_lock);
	bool may = !s->forked && !s->no_pieces && (insist || s->pieces_retry == 0 || or_now() >= s->pieces_retry);
	/* First more than is needed; if the sidecar has not so much, exactly what is needed. */
	uint64_t to[] = {piece_end(*ready, end, limit), units(end, limit)};
	for (int i = 0; i < 2 && may && *ready < end && !s->no_pieces; i++)
		if (i == 0 || to[i] < to[0])
			*ready += ask(s, *ready, to[i]);
	bool ok = *ready >= end;
	if (may && !ok)
		s->pieces_retry = or_now() + REFUSED_PAUSE_NS;
	pthread_mutex_unlock(&s->pieces_lock);
	errno = saved;
	return ok;
}
