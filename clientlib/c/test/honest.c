/*
 * An honest rank of a job with a hostile rank (hostile.c). It exchanges checked messages
 * with the other honest ranks until a file exists or the job has failed. With the hostile
 * rank it has operations of each kind in flight: a large message each way, a window, a sum.
 * It exits with 0 if every message was right and the job did not fail, with 3 and the
 * reason if the job failed, and with 1 if anything was wrong.
 *
 *     honest FILE
 */
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "raw.h"

#define GUARD 0x5au

static outrigger *session;
static uint32_t me;
static unsigned rounds;
static const uint32_t honest[] = {0, 2, 3};

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
	va_list a;
	va_start(a, format);
	fprintf(stderr, "honest: rank %u: round %u: wrong: ", me, rounds);
	vfprintf(stderr, format, a);
	fputc('\n', stderr);
	va_end(a);
	_exit(1);
}

/* failed ends the process after the job has failed, and prints the reason. */
static void failed(int status) __attribute__((noreturn));

static void failed(int status)
{
	char why[256];
	outrigger_failure(session, why, sizeof why);
	printf("honest: rank %u: %u rounds right, then %s: %s\n", me, rounds, outrigger_status_text(status), why);
	fflush(stdout);
	if (*why == 0)
		die("%s, and outrigger_failure has no reason", outrigger_status_text(status));
	int rc = outrigger_close(session);
	_exit(rc == OUTRIGGER_OK ? 3 : 1);
}

static void must(int rc, const char *what)
{
	if (rc == OUTRIGGER_ABORTED || rc == OUTRIGGER_PEER_FAILED)
		failed(rc);
	if (rc != OUTRIGGER_OK)
		die("%s: %s", what, outrigger_status_text(rc));
}

static const size_t sizes[] = {0, 8, 32, 4096, 8256, 65536, 300001};
#define SIZES (sizeof sizes / sizeof *sizes)
#define MOST 300001

static unsigned char pattern(uint32_t rank, unsigned round, size_t at) { return (unsigned char)(at * 31 + rank * 13 + round * 7 + at / 251); }

static void fill(unsigned char *b, size_t n, unsigned round)
{
	for (size_t i = 0; i < n; i++)
		b[i] = pattern(me, round, i);
}

static void check(const unsigned char *b, size_t n, uint32_t from, unsigned round)
{
	for (size_t i = 0; i < n; i++)
		if (b[i] != pattern(from, round, i))
			die("byte %zu of %zu from rank %u is %#x, want %#x", i, n, from, b[i], pattern(from, round, i));
}

/* exchange passes a message back and forth with another honest rank. */
static void exchange(uint32_t other, unsigned char *out, unsigned char *in, size_t n)
{
	struct outrigger_envelope e = {.peer = other, .tag = rounds};
	struct outrigger_result got;
	outrigger_request r, s;
	fill(out, n, rounds);
	must(outrigger_recv(session, in, n, &e, &r), "receive");
	must(outrigger_send(session, out, n, &e, 0, &s), "send");
	must(outrigger_wait(session, s, NULL), "waiting for a send");
	must(outrigger_wait(session, r, &got), "waiting for a receive");
	if (got.length != n || got.peer != other)
		die("%zu bytes of rank %u became %llu of rank %u", n, other, (unsigned long long)got.length, got.peer);
	check(in, n, other, rounds);
}

/* agreed reports whether rank 0 has seen the file. */
static bool agreed(const char *file)
{
	uint32_t over = me == 0 && access(file, F_OK) == 0;
	for (size_t i = 1; i < 3; i++) {
		struct outrigger_envelope e = {.peer = me == 0 ? honest[i] : 0, .tag = rounds, .context = 1};
		outrigger_request q;
		if (me != 0 && me != honest[i])
			continue;
		must(me == 0 ? outrigger_send(session, &over, sizeof over, &e, 0, &q) : outrigger_recv(session, &over, sizeof over, &e, &q), "agreeing");
		must(outrigger_wait(session, q, NULL), "agreeing");
	}
	return over != 0;
}

/* with_it has the operations in flight with the hostile rank. */
static struct {
	unsigned char *window, *sent, *received;
	struct sum *sum;
	outrigger_request asked[3];
} with_it;

static unsigned char *room(size_t n)
{
	unsigned char *p = outrigger_alloc(session, n);
	if (p == NULL)
		die("no room for %zu bytes", n);
	return p;
}

/* engage starts the operations with the hostile rank. The memory before and behind the
 * window must not be written to. */
static void engage(void)
{
	struct outrigger_envelope in = {.peer = HOSTILE, .tag = FROM_HOSTILE}, out = {.peer = HOSTILE, .tag = TO_HOSTILE};
	outrigger_request q;
	with_it.window = room(3 * WINDOW_BYTES);
	memset(with_it.window, GUARD, 3 * WINDOW_BYTES);
	struct or_descriptor win = named(session, OR_OP_WIN, with_it.window + WINDOW_BYTES, WINDOW_BYTES);
	win.context = WINDOW;
	must(raw(session, win, &q), "window");
	must(outrigger_wait(session, q, NULL), "window");
	with_it.received = room(LARGE);
	with_it.sent = me == 0 ? malloc(LARGE) : room(LARGE); /* staged, and in place */
	with_it.sum = sum_new(session);
	if (with_it.sent == NULL || with_it.sum == NULL)
		die("no memory");
	memset(with_it.sent, (int)me, LARGE);
	must(outrigger_recv(session, with_it.received, LARGE, &in, &with_it.asked[0]), "receive");
	must(outrigger_send(session, with_it.sent, LARGE, &out, 0, &with_it.asked[1]), "send");
	must(raw(session, named(session, OR_OP_COLL, &with_it.sum->block, sizeof with_it.sum->block), &with_it.asked[2]), "sum");
}

static void unspoilt(void)
{
	for (size_t i = 0; i < WINDOW_BYTES; i++)
		if (with_it.window[i] != GUARD || with_it.window[2 * WINDOW_BYTES + i] != GUARD)
			die("memory outside the window was written to");
}

/* part waits for the operations with a hostile rank that has left. */
static void part(void)
{
	for (size_t i = 0; i < 3; i++) {
		int rc = outrigger_wait(session, with_it.asked[i], NULL);
		if (rc != OUTRIGGER_PEER_LEFT)
			must(rc, "what was open with the hostile rank");
		if (i == 2 && rc == OUTRIGGER_OK)
			for (size_t k = 0; k < ELEMENTS; k++)
				if (with_it.sum->out[k] != 1 + 2 + 3 + 4)
					die("sum %zu is %llu", k, (unsigned long long)with_it.sum->out[k]);
	}
	unspoilt();
}

int main(int argc, char **argv)
{
	struct outrigger_config config = {0};
	char why[256];
	int rc = outrigger_open(&config, &session, why, sizeof why);
	if (argc != 2 || rc != OUTRIGGER_OK) {
		fprintf(stderr, "honest: %s\n", why);
		return 1;
	}
	me = session->world.rank;
	unsigned char *shared[2] = {room(MOST), room(MOST)}, *own[2] = {malloc(MOST), malloc(MOST)};
	if (own[0] == NULL || own[1] == NULL)
		die("no memory");
	engage();
	printf("honest: rank %u is ready\n", me);
	fflush(stdout);
	for (bool over = false; !over; rounds++) {
		for (size_t i = 0; i < 3; i++) {
			unsigned char **b = rounds / SIZES % 2 == 0 ? shared : own;
			if (honest[i] != me)
				exchange(honest[i], b[0], b[1], sizes[rounds % SIZES]);
		}
		unspoilt();
		over = agreed(argv[1]);
	}
	part();
	free(own[0]);
	free(own[1]);
	if (me == 0)
		free(with_it.sent);
	must(outrigger_close(session), "close");
	printf("honest: rank %u: every message of %u rounds right\n", me, rounds);
	return 0;
}
