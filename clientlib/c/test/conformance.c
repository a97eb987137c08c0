/*
 * The conformance scenarios in C. e2e/mpi/conformance_rank_test.go has the same
 * scenarios in Go. The number of ranks n is even; rank r is the partner of rank
 * r + n/2, and the lower half leads. Partners may use different clients.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outrigger.h"

static outrigger *session;
static struct outrigger_world world;
static uint32_t partner;
static int leads;
static const char *scenario;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
	va_list a;
	va_start(a, format);
	fprintf(stderr, "conformance (C): rank %u: %s: ", world.rank, scenario);
	vfprintf(stderr, format, a);
	fputc('\n', stderr);
	va_end(a);
	exit(1);
}

static void must(int rc, const char *what)
{
	char why[256] = "";
	if (rc == OUTRIGGER_OK)
		return;
	if (session != NULL)
		outrigger_failure(session, why, sizeof why);
	die("%s: %s %s", what, outrigger_status_text(rc), why);
}

/* pattern returns byte number at of the message that a rank sends with a tag. */
static unsigned char pattern(uint32_t rank, uint64_t tag, size_t at)
{
	return (unsigned char)(at * 31 + tag * 7 + rank * 13 + at / 251);
}

static void fill(unsigned char *b, size_t n, uint32_t rank, uint64_t tag)
{
	for (size_t i = 0; i < n; i++)
		b[i] = pattern(rank, tag, i);
}

static void check(const unsigned char *b, size_t n, uint32_t rank, uint64_t tag)
{
	for (size_t i = 0; i < n; i++)
		if (b[i] != pattern(rank, tag, i))
			die("byte %zu of %zu from rank %u tag %llu is %#x, want %#x", i, n, rank, (unsigned long long)tag, b[i], pattern(rank, tag, i));
}

static outrigger_request isend(const void *b, size_t n, uint64_t tag, unsigned flags)
{
	struct outrigger_envelope to = {.peer = partner, .tag = tag};
	outrigger_request r;
	must(outrigger_send(session, b, n, &to, flags, &r), "send");
	return r;
}

static outrigger_request irecv_from(void *b, size_t n, uint32_t source, uint64_t tag, uint64_t ignore)
{
	struct outrigger_envelope from = {.peer = source, .tag = tag, .ignore = ignore};
	outrigger_request r;
	must(outrigger_recv(session, b, n, &from, &r), "receive");
	return r;
}

static outrigger_request irecv(void *b, size_t n, uint64_t tag) { return irecv_from(b, n, partner, tag, 0); }

static struct outrigger_result finish(outrigger_request r)
{
	struct outrigger_result result;
	must(outrigger_wait(session, r, &result), "wait");
	return result;
}

static void swap_empty(uint64_t tag)
{
	outrigger_request r = irecv(NULL, 0, tag), s = isend(NULL, 0, tag, 0);
	finish(s);
	finish(r);
}

static const size_t sizes[] = {0, 1, 31, 32, 33, 64, 4096, 8191, 8192, 8193, 8256, 8257, 65535, 65536, 65537, 262144, 1048579};
#define SIZES (sizeof sizes / sizeof *sizes)

static void *memory(int shared, size_t n)
{
	void *p = shared ? outrigger_alloc(session, n) : malloc(n + 1);
	if (p == NULL)
		die("no memory for %zu bytes", n);
	return p;
}

static void give(int shared, void *p)
{
	if (!shared)
		free(p);
	else
		must(outrigger_free(session, p), "free");
}

/* play_sizes sends every size both ways, in private or in shared memory. */
static void play_sizes(int shared)
{
	for (size_t i = 0; i < SIZES; i++) {
		size_t n = sizes[i];
		unsigned char *out = memory(shared, n), *in = memory(shared, n);
		fill(out, n, world.rank, i);
		outrigger_request r = irecv(in, n, i), s = isend(out, n, i, 0);
		finish(s);
		struct outrigger_result got = finish(r);
		if (got.length != n || got.peer != partner || got.tag != i)
			die("%zu bytes became %llu, of rank %u tag %llu", n, (unsigned long long)got.length, got.peer, (unsigned long long)got.tag);
		check(in, n, partner, i);
		give(shared, out);
		give(shared, in);
	}
}

static void private_memory(void) { play_sizes(0); }
static void shared_memory(void) { play_sizes(1); }

/* unexpected receives messages that arrived before their receives in reverse order of tags. */
static void unexpected(void)
{
	enum { N = 20, BYTES = 9000 };
	static unsigned char b[N][BYTES];
	outrigger_request s[N];
	if (leads) {
		for (int i = 0; i < N; i++) {
			size_t n = i % 2 ? BYTES : 20;
			fill(b[i], n, world.rank, (uint64_t)i);
			s[i] = isend(b[i], n, (uint64_t)i, 0);
		}
		swap_empty(100);
		for (int i = 0; i < N; i++)
			finish(s[i]);
		return;
	}
	swap_empty(100);
	for (int i = N - 1; i >= 0; i--) {
		struct outrigger_result got = finish(irecv(b[i], BYTES, (uint64_t)i));
		check(b[i], got.length, partner, (uint64_t)i);
	}
}

/* order checks that messages of one source and tag are received in the order sent. */
static void order(void)
{
	enum { N = 500 };
	if (leads) {
		static uint32_t v[N][700];
		outrigger_request s[N];
		for (uint32_t i = 0; i < N; i++) {
			v[i][0] = i;
			s[i] = isend(v[i], i % 3 == 0 ? sizeof v[i] : 4, 5, 0);
		}
		for (int i = 0; i < N; i++)
			finish(s[i]);
		return;
	}
	for (uint32_t i = 0; i < N; i++) {
		uint32_t v[700];
		finish(irecv_from(v, sizeof v, OUTRIGGER_ANY, 0, UINT64_MAX));
		if (v[0] != i)
			die("message %u arrived as number %u", v[0], i);
	}
}

/* truncated receives messages that are longer than the buffer. */
static void truncated(void)
{
	static const size_t lengths[] = {20, 100, 9000, 200000};
	static unsigned char b[200000];
	for (size_t i = 0; i < 4; i++) {
		if (leads) {
			fill(b, lengths[i], world.rank, i);
			finish(isend(b, lengths[i], i, 0));
			continue;
		}
		struct outrigger_result got;
		memset(b, 0xee, sizeof b);
		int rc = outrigger_wait(session, irecv(b, lengths[i] - 5, i), &got);
		if (rc != OUTRIGGER_TRUNCATED)
			die("%zu bytes into %zu: %s", lengths[i], lengths[i] - 5, outrigger_status_text(rc));
		if (b[lengths[i] - 5] != 0xee)
			die("bytes beyond a buffer of %zu were written", lengths[i] - 5);
	}
	swap_empty(101);
}

/* synchronous checks that a synchronous send does not complete before its receive is posted. */
static void synchronous(void)
{
	char b[40] = {0};
	if (leads) {
		outrigger_request s = isend(b, sizeof b, 1, OUTRIGGER_SYNC);
		int over;
		must(outrigger_test(session, s, &over, NULL), "test");
		if (over)
			die("a synchronous send has completed before its receive was posted");
		swap_empty(102);
		finish(s);
		return;
	}
	swap_empty(102);
	finish(irecv(b, sizeof b, 1));
}

/* own checks that a small message to the rank itself has arrived when its send completes. */
static void own(void)
{
	for (size_t i = 0; i < 2 * SIZES && sizes[i / 2] <= 8192; i++) {
		int shared = i % 2 != 0, over;
		size_t n = sizes[i / 2];
		unsigned char *out = memory(shared, n), *in = memory(shared, n);
		struct outrigger_envelope to = {.peer = world.rank, .tag = i};
		fill(out, n, world.rank, i);
		outrigger_request s, r = irecv_from(in, n, world.rank, i, 0);
		must(outrigger_send(session, out, n, &to, 0, &s), "send");
		finish(s);
		must(outrigger_test(session, r, &over, NULL), "test");
		if (!over)
			die("the send of %zu bytes to the rank itself completed before its receive", n);
		check(in, n, world.rank, i);
		give(shared, out);
		give(shared, in);
	}
}

/* cancelled cancels receives that match no message. */
static void cancelled(void)
{
	static char b[100000];
	static const size_t lengths[] = {8, 1000, 100000};
	for (int i = 0; i < 3; i++) {
		outrigger_request r = irecv(b, lengths[i], 77);
		must(outrigger_cancel(session, r), "cancel");
		int rc = outrigger_wait(session, r, NULL);
		if (rc != OUTRIGGER_CANCELLED)
			die("a cancelled receive: %s", outrigger_status_text(rc));
	}
	swap_empty(103);
}

static struct outrigger_result probe(uint64_t tag, unsigned flags, int *found)
{
	struct outrigger_envelope from = {.peer = OUTRIGGER_ANY, .tag = tag};
	struct outrigger_result got = {0};
	outrigger_request r;
	must(outrigger_probe(session, &from, flags, NULL, NULL, &r), "probe");
	int rc = outrigger_wait(session, r, &got);
	*found = rc == OUTRIGGER_OK;
	if (rc != OUTRIGGER_OK && rc != OUTRIGGER_NO_MESSAGE)
		must(rc, "probe");
	return got;
}

/* probed checks that a probe finds a message, and that a message that a probe has claimed
 * matches no other receive. */
static void probed(void)
{
	static unsigned char b[9000];
	if (leads) {
		swap_empty(104);
		fill(b, 300, world.rank, 9);
		finish(isend(b, 300, 9, 0));
		fill(b, sizeof b, world.rank, 10);
		finish(isend(b, sizeof b, 10, 0));
		return;
	}
	int found;
	probe(9, OUTRIGGER_NOW, &found);
	if (found)
		die("a probe found a message before it was sent");
	swap_empty(104);
	struct outrigger_result got = probe(9, 0, &found);
	if (!found || got.length != 300 || got.peer != partner)
		die("a probe found %llu bytes of rank %u", (unsigned long long)got.length, got.peer);
	finish(irecv(b, 300, 9));
	check(b, 300, partner, 9);
	got = probe(10, OUTRIGGER_CLAIM, &found);
	struct iovec v[2] = {{b, 1000}, {b + 1000, sizeof b - 1000}};
	outrigger_request r;
	must(outrigger_claim(session, got.handle, v, 2, NULL, NULL, &r), "claim");
	finish(r);
	check(b, sizeof b, partner, 10);
}

/* foreseen checks that a receive gets the message that a probe of the same pattern has
 * found, and the data that this message carries with its tag. One of two messages is the
 * rank's own, the other its partner's. */
static void foreseen(void)
{
	enum { ROUNDS = 2000, MOST = 120 };
	static unsigned char b[MOST];
	for (uint64_t i = 0; i < ROUNDS; i++) {
		for (uint32_t to = 0; to < 2; to++) {
			struct outrigger_envelope e = {.peer = to == 0 ? world.rank : partner, .tag = i, .data = world.rank};
			struct iovec v = {b, world.rank % 2 == 0 ? 20 : MOST - world.rank % 50};
			must(outrigger_sendv(session, &v, 1, &e, OUTRIGGER_DATA, NULL, NULL, NULL), "send");
		}
		for (int n = 0; n < 2; n++) {
			int found;
			struct outrigger_result seen = probe(i, 0, &found);
			struct outrigger_result got = finish(irecv_from(b, MOST, OUTRIGGER_ANY, i, n == 0 ? 0 : UINT64_C(1) << 60));
			if (got.peer != seen.peer || got.length != seen.length)
				die("round %d: a probe saw %u bytes of rank %u, the receive got %u of rank %u", (int)i, (unsigned)seen.length, seen.peer, (unsigned)got.length, got.peer);
			if (!seen.has_data || !got.has_data || seen.data != got.peer || got.data != got.peer)
				die("data %u and %u of rank %u", seen.data, got.data, got.peer);
		}
	}
}

/* fleeting overwrites arena memory as soon as a send with OUTRIGGER_COPY has returned. */
static void fleeting(void)
{
	enum { ROUNDS = 200 };
	for (uint64_t i = 0; i < ROUNDS; i++) {
		for (size_t k = 0; k < SIZES; k++) {
			unsigned char *b = memory(1, sizes[k]);
			fill(b, sizes[k], world.rank, i);
			outrigger_request s = isend(b, sizes[k], i, OUTRIGGER_COPY);
			memset(b, 0xee, sizes[k]);
			finish(irecv(b, sizes[k], i));
			finish(s);
			check(b, sizes[k], partner, i);
			give(1, b);
		}
	}
}

/* crowded exchanges more large messages at once than there are chunks. */
static void crowded(void)
{
	enum { N = 24, BYTES = 700001 };
	unsigned char *out = memory(0, N * BYTES), *in = memory(0, N * BYTES);
	outrigger_request s[N], r[N];
	for (int i = 0; i < N; i++) {
		fill(out + i * BYTES, BYTES, world.rank, (uint64_t)i);
		s[i] = isend(out + i * BYTES, BYTES, (uint64_t)i, 0);
	}
	for (int i = N - 1; i >= 0; i--)
		r[i] = irecv(in + i * BYTES, BYTES, (uint64_t)i);
	for (int i = 0; i < N; i++) {
		finish(r[i]);
		check(in + i * BYTES, BYTES, partner, (uint64_t)i);
		finish(s[i]);
	}
	free(out);
	free(in);
}

static void counted(void *arg, const struct outrigger_result *result)
{
	int *count = arg;
	*count += result->status == OUTRIGGER_OK ? 1 : -1000000;
}

/* flood sends small messages without a request or a callback, and receives with callbacks. */
static void flood(void)
{
	enum { N = 6000 };
	struct outrigger_envelope to = {.peer = partner, .tag = 6};
	int count = 0;
	for (int i = 0; i < N; i++) {
		struct iovec v[2] = {{&i, sizeof i}, {&count, sizeof count}};
		must(outrigger_sendv(session, v, 2, &to, 0, NULL, NULL, NULL), "send");
		int b[2];
		if (i % 2 == 0) {
			outrigger_request r = irecv(b, sizeof b, 6);
			finish(r);
			if (b[0] != i / 2)
				die("message %d arrived as number %d", b[0], i / 2);
		}
	}
	static int b[N / 2][2];
	for (int i = 0; i < N / 2; i++) {
		struct iovec v = {b[i], sizeof b[i]};
		must(outrigger_recvv(session, &v, 1, &to, counted, &count, NULL), "receive");
	}
	while (count >= 0 && count < N / 2) {
		unsigned taken;
		must(outrigger_progress(session, &taken), "progress");
		if (taken == 0)
			must(outrigger_sleep(session, 1000), "sleep");
	}
	for (int i = 0; i < N / 2; i++)
		if (b[i][0] != N / 2 + i)
			die("message %d arrived as number %d", b[i][0], N / 2 + i);
}

/* in_use checks that outrigger_free refuses memory with a send or receive in flight. */
static void in_use(void)
{
	static const size_t lengths[] = {20, 9000, 300000};
	for (size_t i = 0; i < 3; i++) {
		unsigned char *p = memory(1, lengths[i] + 100);
		fill(p + 50, lengths[i], world.rank, i);
		if (leads) {
			outrigger_request s = isend(p + 50, lengths[i], i, OUTRIGGER_SYNC);
			if (lengths[i] > 20 && outrigger_free(session, p) != OUTRIGGER_BUSY)
				die("memory from which %zu bytes are sent can be freed", lengths[i]);
			swap_empty(102);
			finish(s);
		} else {
			outrigger_request r = irecv(p + 50, lengths[i], i + 10);
			if (outrigger_free(session, p) != OUTRIGGER_BUSY)
				die("memory into which %zu bytes are received can be freed", lengths[i]);
			must(outrigger_cancel(session, r), "cancel");
			if (outrigger_wait(session, r, NULL) != OUTRIGGER_CANCELLED)
				die("a receive is not cancelled");
			swap_empty(102);
			finish(irecv(p + 50, lengths[i], i));
		}
		give(1, p);
	}
}

static const struct {
	const char *name;
	void (*play)(void);
} scenarios[] = { /* the Go client has the same scenarios in the same order */
	{"private memory", private_memory}, {"shared memory", shared_memory}, {"unexpected", unexpected},
	{"order", order},		    {"truncated", truncated},	      {"synchronous", synchronous},
	{"to itself", own},
	{"cancelled", cancelled},	    {"probed", probed},		      {"crowded", crowded},
	{"flood", flood},		    {"in use", in_use},
};

/* play_own plays a scenario that only this client has: foreseen, which needs data with the
 * tag, or fleeting, which needs sends with OUTRIGGER_COPY. */
static void play_own(const char *name)
{
	scenario = name;
	if (strcmp(name, "foreseen") == 0)
		foreseen();
	else if (strcmp(name, "fleeting") == 0)
		fleeting();
	else
		return;
	swap_empty(999);
}

/* main plays all scenarios, or only the one named by its argument. */
int main(int argc, char **argv)
{
	struct outrigger_config config = {0};
	char why[256];
	scenario = "open";
	int rc = outrigger_open(&config, &session, why, sizeof why);
	if (rc != OUTRIGGER_OK)
		die("%s: %s", outrigger_status_text(rc), why);
	world = outrigger_world(session);
	if (world.ranks % 2 != 0)
		die("%u ranks, want an even number", world.ranks);
	leads = world.rank < world.ranks / 2;
	partner = (world.rank + world.ranks / 2) % world.ranks;
	if (argc > 1)
		play_own(argv[1]);
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
		scenario = scenarios[i].name;
		if (argc > 1 && strcmp(argv[1], scenario) != 0)
			continue;
		scenarios[i].play();
		swap_empty(1000 + i);
	}
	scenario = "close";
	must(outrigger_close(session), "close");
	printf("conformance: rank %u played %zu scenarios\n", world.rank, sizeof scenarios / sizeof *scenarios);
	return 0;
}
