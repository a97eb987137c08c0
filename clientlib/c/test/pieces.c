/*
 * Tests the arena in pieces, with a thread instead of a sidecar. Memory that it has not
 * allocated is inaccessible, so that the program crashes if the allocator returns it early.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

#define ARENA (UINT64_C(64) << 20)
#define MIB (UINT64_C(1) << 20)

static outrigger s;
static int sidecar; /* the sidecar's end of the socket */
static unsigned char *memory;
static atomic_uint_fast64_t room; /* bytes that the sidecar still grants */
static atomic_uint asks;
static atomic_bool lies;

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "pieces: %s\n", what);
	_exit(1);
}

static void *serve(void *arg)
{
	unsigned char wish[OR_ASK_BYTES + 1], answer[OR_ANSWER_BYTES];
	(void)arg;
	while (recv(sidecar, wish, sizeof wish, 0) == OR_ASK_BYTES) {
		uint32_t magic = OR_ANSWER_MAGIC;
		uint64_t offset, bytes;
		memcpy(&offset, wish + 8, sizeof offset);
		memcpy(&bytes, wish + 16, sizeof bytes);
		want(offset % OR_PIECE_UNIT == 0 && bytes % OR_PIECE_UNIT == 0 && bytes > 0 && offset + bytes <= ARENA, "a request that is not a multiple of OR_PIECE_UNIT within the arena");
		asks++;
		if (bytes > room)
			bytes = 0;
		room -= bytes;
		want(bytes == 0 || mprotect(memory + offset, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
		memset(answer, 0, sizeof answer);
		if (lies)
			bytes = ARENA;
		memcpy(answer, &magic, sizeof magic);
		memcpy(answer + 8, &offset, sizeof offset);
		memcpy(answer + 16, &bytes, sizeof bytes);
		(void)send(sidecar, answer, sizeof answer, MSG_NOSIGNAL);
	}
	return NULL;
}

static pthread_t begin(uint64_t bytes)
{
	int pair[2];
	pthread_t t;
	memset(&s, 0, sizeof s);
	pthread_mutex_init(&s.lock, NULL);
	pthread_mutex_init(&s.pieces_lock, NULL);
	memory = mmap(NULL, ARENA, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	want(memory != MAP_FAILED && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 && or_arena_init(&s.arena, memory, ARENA) == 0, "preparing");
	s.socket = pair[0];
	sidecar = pair[1];
	s.features = OR_FEATURE_PIECES;
	s.arena.owner = &s;
	s.arena.ready = 0;
	room = bytes;
	asks = 0;
	lies = false;
	want(pthread_create(&t, NULL, serve, NULL) == 0, "a thread");
	return t;
}

static void end(pthread_t t)
{
	close(s.socket);
	pthread_join(t, NULL);
	close(sidecar);
	munmap(memory, ARENA);
	or_arena_free(&s.arena);
}

static void grows(void)
{
	pthread_t t = begin(ARENA);
	unsigned char *a = outrigger_alloc(&s, 100), *b = outrigger_alloc(&s, 5 * MIB), *c = outrigger_alloc(&s, 64);
	want(a != NULL && b != NULL && c != NULL, "allocating");
	memset(a, 1, 100);
	memset(b, 1, 5 * MIB);
	memset(c, 1, 64);
	unsigned before = asks;
	want(before <= 3 && s.arena.ready <= 8 * MIB, "the arena grew by more than it needs");
	want(outrigger_free(&s, b) == OUTRIGGER_OK && outrigger_alloc(&s, 4 * MIB) == b && asks == before, "freed memory was not reused");
	want(!or_sidecar_ended(&s), "the session has ended");
	end(t);
}

/* shortage checks an arena that cannot grow any more: an allocation that insists asks the
 * sidecar each time, one that does not asks again only after pieces_retry, and a page is
 * granted where a whole piece is not. */
static void shortage(void)
{
	pthread_t t = begin(3 * MIB / 2);
	uint64_t offset;
	errno = 77;
	want(outrigger_alloc(&s, 2 * MIB) == NULL && errno == 77 && asks > 0, "allocating more than the sidecar grants");
	unsigned before = asks;
	pthread_mutex_lock(&s.lock);
	want(!or_arena_alloc(&s.arena, 64, false, &offset) && asks == before, "the sidecar was asked again at once after a refusal");
	s.pieces_retry = or_now() - 1;
	want(or_arena_alloc(&s.arena, MIB + 64, false, &offset) && asks > before, "the sidecar was not asked again after pieces_retry");
	pthread_mutex_unlock(&s.lock);
	memset(memory + offset, 1, MIB + 64);
	want(s.arena.ready < 3 * MIB / 2, "the request was not reduced to the bytes needed");
	want(outrigger_alloc(&s, MIB) == NULL && outrigger_alloc(&s, 4096) != NULL, "a page");
	end(t);
}

static void lends(void)
{
	pthread_t t = begin(ARENA);
	size_t bytes;
	unsigned char *first = outrigger_alloc(&s, 64);
	want(first != NULL && outrigger_lend_pieces(&s, &bytes) == NULL && outrigger_free(&s, first) == OUTRIGGER_OK, "pieces were lent although memory was in use");
	unsigned char *lent = outrigger_lend_pieces(&s, &bytes);
	want(lent == memory && bytes == ARENA / 4 * 3, "lending");
	want(outrigger_extend(&s, MIB) == MIB && asks == 1, "what was allocated before is asked for again");
	want(outrigger_extend(&s, 3 * MIB + 1) == 3 * MIB + 1, "extending");
	memset(lent, 1, 3 * MIB + 1);
	unsigned char *rest = outrigger_alloc(&s, MIB);
	want(rest == memory + bytes, "the rest");
	memset(rest, 1, MIB);
	want(outrigger_extend(&s, 2 * ARENA) == bytes, "all of it");
	memset(lent, 1, bytes);
	room = 0;
	want(outrigger_alloc(&s, 8 * MIB) == NULL, "more than there is");
	end(t);
	t = begin(MIB);
	want(outrigger_lend(&s, &bytes) == NULL && bytes == 0, "lent without memory");
	end(t);
	t = begin(ARENA);
	lent = outrigger_lend(&s, &bytes);
	want(lent == memory && bytes == ARENA / 4 * 3, "lending at once");
	memset(lent, 1, bytes);
	end(t);
}

static void *one(void *arg)
{
	unsigned char mark = (unsigned char)(uintptr_t)arg;
	for (int i = 0; i < 100; i++) {
		unsigned char *p = outrigger_alloc(&s, 70000);
		want(p != NULL, "a thread's memory");
		memset(p, mark, 70000);
		(void)outrigger_extend(&s, (size_t)(i + 1) * 8192);
		want(p[0] == mark && p[69999] == mark, "a thread's bytes");
		if (i % 2 == 0)
			want(outrigger_free(&s, p) == OUTRIGGER_OK, "free");
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t = begin(ARENA), all[4];
	size_t bytes;
	want(outrigger_lend_pieces(&s, &bytes) != NULL, "lending");
	for (uintptr_t i = 0; i < 4; i++)
		want(pthread_create(&all[i], NULL, one, (void *)(i + 1)) == 0, "a thread");
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
	end(t);
}

/* forks checks that the child of a fork has no session, and that its parent's is unaffected. */
static void forks(void)
{
	pthread_t t = begin(ARENA);
	want(or_register_session(&s) == OUTRIGGER_OK && outrigger_alloc(&s, 64) != NULL, "the parent's memory");
	s.doorbell = s.files[0] = s.files[1] = -1;
	pid_t child = fork();
	if (child == 0)
		_exit(outrigger_alloc(&s, 8 * MIB) == NULL && outrigger_extend(&s, 64) == 0 ? 5 : 1);
	int status;
	want(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5, "a child");
	want(outrigger_alloc(&s, 8 * MIB) != NULL, "the parent's memory after a fork");
	int own = dup(s.socket);
	or_unregister_session(&s);
	s.socket = own;
	end(t);
}

/* lying checks that a sidecar that answers with an invalid size, or has ended, grants nothing
 * and is not asked again. */
static void lying(void)
{
	pthread_t t = begin(ARENA);
	lies = true;
	want(outrigger_alloc(&s, 64) == NULL && asks == 1, "an invalid answer was accepted");
	want(outrigger_alloc(&s, 64) == NULL && asks == 1, "the sidecar was asked again after an invalid answer");
	end(t);
	t = begin(ARENA);
	want(shutdown(sidecar, SHUT_RDWR) == 0 && outrigger_alloc(&s, 64) == NULL, "memory of a sidecar that has ended");
	end(t);
}

int main(void)
{
	grows();
	shortage();
	lends();
	threads();
	forks();
	lying();
	puts("pieces: all is well");
	return 0;
}
