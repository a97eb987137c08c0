/*
 * Ranks that open a new session after they have closed one. Zero-copy, staged and small messages
 * go around a ring of the ranks, with contents that depend on the session. Some ranks open late.
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

#define SESSIONS 8

static const size_t sizes[] = {8, 5000, 300000};
static unsigned char out[300000], in[300000];

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "again: %s\n", what);
	_exit(1);
}

static void fill(unsigned char *b, size_t n, unsigned session, unsigned rank)
{
	for (size_t i = 0; i < n; i++)
		b[i] = (unsigned char)(i * 7 + session * 31 + rank * 3);
}

int main(void)
{
	struct outrigger_world w = {0};
	for (unsigned session = 0; session < SESSIONS; session++) {
		outrigger *s;
		char why[512];
		int rc = outrigger_open(&(struct outrigger_config){0}, &s, why, sizeof why);
		want(rc == OUTRIGGER_OK, why);
		w = outrigger_world(s);
		uint32_t to = (w.rank + 1) % w.ranks, from = (w.rank + w.ranks - 1) % w.ranks;
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			unsigned char expected[sizeof in];
			outrigger_request send, recv;
			fill(out, sizes[i], session, w.rank);
			fill(expected, sizes[i], session, from);
			want(outrigger_recv(s, in, sizes[i], &(struct outrigger_envelope){.peer = from, .tag = i}, &recv) == OUTRIGGER_OK, "recv");
			want(outrigger_send(s, out, sizes[i], &(struct outrigger_envelope){.peer = to, .tag = i}, 0, &send) == OUTRIGGER_OK, "send");
			want(outrigger_wait(s, recv, NULL) == OUTRIGGER_OK, "the end of a receive");
			want(outrigger_wait(s, send, NULL) == OUTRIGGER_OK, "the end of a send");
			want(memcmp(in, expected, sizes[i]) == 0, "bytes of another session");
		}
		if (session % w.ranks == w.rank)
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		want(outrigger_close(s) == OUTRIGGER_OK, "close");
	}
	printf("rank %u: %d sessions right\n", w.rank, SESSIONS);
	return 0;
}
