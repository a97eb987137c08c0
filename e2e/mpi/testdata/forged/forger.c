/* Rank 1: the C client, which forges messages of the provider's protocol: headers of untagged
 * messages with the wrong length of their bulk message, and requests for accesses with wrong
 * keys, bounds, lengths, types and operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "forged.h"
#include "outrigger.h"

enum { TAGGED = 0x40000000, MSG, REQUEST, ANSWER };

#define BULK (UINT64_C(1) << 63)

static outrigger *s;

static void must(int rc, const char *what)
{
	if (rc == OUTRIGGER_OK)
		return;
	fprintf(stderr, "forger: %s: %s\n", what, outrigger_status_text(rc));
	exit(1);
}

static void fail(const char *what)
{
	fprintf(stderr, "forger: %s\n", what);
	exit(1);
}

static void send_forged(uint32_t context, uint64_t tag, const void *b, size_t n)
{
	struct outrigger_envelope to = {.peer = 0, .context = context, .tag = tag};
	must(outrigger_send(s, b, n, &to, OUTRIGGER_COPY, NULL), "send");
}

static void good(void)
{
	unsigned char b[GOOD_BYTES];
	for (int i = 0; i < GOOD_BYTES; i++)
		b[i] = (unsigned char)(GOOD_MARK + i);
	send_forged(MSG, 0, b, sizeof b);
}

/* send_header announces a message of one length and sends it with another. A good message that
 * is sent in between is received behind the announced length. */
static void send_header(uint64_t tag, uint64_t length, size_t really)
{
	static unsigned char bulk[65536];
	struct timespec pause = {.tv_nsec = 50000000};
	memset(bulk, 0xee, sizeof bulk);
	send_forged(MSG, tag, &length, sizeof length);
	good();
	nanosleep(&pause, NULL); /* until the good message was received */
	send_forged(MSG, tag | BULK, bulk, really);
}

struct request {
	uint8_t access, type, op, bulk;
	uint32_t endpoint;
	uint64_t key, addr, length;
	unsigned char data[8192 + 64];
};

static uint64_t seed = 88172645463325252u;

static uint64_t any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* near returns a number near 0 or near the limit, or any number. */
static uint64_t near(uint64_t limit)
{
	static const uint64_t odd[] = {0, 1, 7, 8, 4095, 4096, 4097, 8192, 8193, UINT64_C(1) << 32, UINT64_MAX - 4095, UINT64_MAX - 7, UINT64_MAX};
	switch (any() % 4) {
	case 0: return limit + odd[any() % 13];
	case 1: return odd[any() % 13];
	case 2: return any();
	}
	return limit - odd[any() % 13];
}

static void forge(const struct regions *t)
{
	static struct request q;
	memset(q.data, 0xcc, sizeof q.data);
	for (uint64_t i = 1; i <= 200; i++) {
		q.access = (uint8_t)(any() % 8);
		q.type = (uint8_t)(any() % 4 == 0 ? any() : any() % 14);
		q.op = (uint8_t)(any() % 4 == 0 ? any() : any() % 20);
		q.bulk = any() % 8 == 0;
		q.endpoint = any() % 4 == 0 ? (uint32_t)any() : 0;
		q.key = any() % 8 == 0 ? any() : t->key;
		q.addr = near(t->addr);
		q.length = near(any() % 2 == 0 ? REGION_BYTES : 64);
		size_t head = 32, payload = (size_t)(any() % 2 == 0 && q.length <= 8192 ? q.length : any() % 8192);
		send_forged(REQUEST, i << 8 | any() % 256, &q, any() % 16 == 0 ? any() % head : head + payload);
		if (q.bulk != 0) /* the victim waits for the bulk message */
			send_forged(REQUEST, i << 8 | BULK, q.data, (size_t)(any() % 8192));
	}
}

enum { WRITE = 1, READ, LATE = 1000 };

/* access_long requests to read or to write the long region. */
static void access_long(const struct regions *t, uint8_t how)
{
	static struct request q;
	q = (struct request){.access = how, .bulk = how == WRITE, .key = t->long_key, .addr = t->long_addr, .length = LONG_BYTES};
	send_forged(REQUEST, (uint64_t)(LATE + how) << 8, &q, 32);
}

/* refused checks that the answer is that the region does not exist. */
static void refused(uint8_t how)
{
	static unsigned char room[LONG_BYTES];
	struct outrigger_envelope from = {.peer = 0, .context = ANSWER, .tag = (uint64_t)(LATE + how) << 8, .ignore = 255};
	struct outrigger_result r;
	outrigger_request q;
	must(outrigger_recv(s, room, sizeof room, &from, &q), "receive");
	must(outrigger_wait(s, q, &r), "answer");
	if (r.length == 0 && (r.tag & 255) == OUTRIGGER_INVALID)
		return;
	fprintf(stderr, "forger: access %u of a closed region: %llu bytes, status %llu\n", how, (unsigned long long)r.length, (unsigned long long)(r.tag & 255));
	exit(1);
}

/* late sends the data of a write after its region was closed. */
static void late(void)
{
	static unsigned char data[LONG_BYTES];
	struct outrigger_envelope from = {.peer = 0, .context = TAGGED, .tag = TAG_CLOSED}, to = {.peer = 0, .context = REQUEST, .tag = (uint64_t)(LATE + WRITE) << 8 | BULK};
	outrigger_request q;
	memset(data, 0xdd, sizeof data);
	must(outrigger_recv(s, NULL, 0, &from, &q), "receive");
	must(outrigger_wait(s, q, NULL), "receive");
	must(outrigger_send(s, data, sizeof data, &to, 0, &q), "late data");
	must(outrigger_wait(s, q, NULL), "late data");
	refused(WRITE);
	refused(READ);
}

/* stuck starts to read and to write, and continues when the region has been closed. The data
 * that it reads must be that before the close. */
static void stuck(const struct regions *t)
{
	static unsigned char data[LONG_BYTES], room[LONG_BYTES];
	static struct request q;
	struct outrigger_envelope answer = {.peer = 0, .context = ANSWER, .ignore = 255}, to = {.peer = 0, .context = REQUEST};
	struct timespec pause = {.tv_nsec = 10000000};
	struct outrigger_result r;
	outrigger_request reads, sends, answers;
	q = (struct request){.access = READ, .key = t->begun_key, .addr = t->begun_addr, .length = LONG_BYTES};
	answer.tag = (uint64_t)(LATE + 10) << 8;
	must(outrigger_recv(s, room, sizeof room, &answer, &reads), "receive");
	send_forged(REQUEST, answer.tag, &q, 32);
	q.access = WRITE;
	q.bulk = 1;
	answer.tag = (uint64_t)(LATE + 11) << 8;
	must(outrigger_recv(s, NULL, 0, &answer, &answers), "receive");
	send_forged(REQUEST, answer.tag, &q, 32);
	memset(data, 0xdd, sizeof data);
	to.tag = answer.tag | BULK;
	must(outrigger_send(s, data, sizeof data, &to, 0, &sends), "data");
	send_forged(TAGGED, TAG_OVER, NULL, 0);
	while (access(CLOSED_FILE, F_OK) != 0)
		nanosleep(&pause, NULL);
	must(outrigger_wait(s, sends, NULL), "data");
	must(outrigger_wait(s, answers, &r), "answer");
	if ((r.tag & 255) != OUTRIGGER_INVALID)
		fail("a write to a closed region succeeded");
	must(outrigger_wait(s, reads, &r), "the data of the read");
	if (r.length == 0) /* the read had not begun */
		return;
	for (size_t i = 0; i < LONG_BYTES; i++)
		if (room[i] != BEGUN_MARK)
			fail("the data of the read is not that before the close");
}

int main(void)
{
	struct outrigger_config config = {0};
	char why[256];
	struct regions regions;
	outrigger_request q;
	if (outrigger_open(&config, &s, why, sizeof why) != OUTRIGGER_OK) {
		fprintf(stderr, "forger: %s\n", why);
		return 1;
	}
	struct outrigger_envelope from = {.peer = 0, .context = TAGGED, .ignore = UINT64_MAX};
	must(outrigger_recv(s, &regions, sizeof regions, &from, &q), "receive");
	must(outrigger_wait(s, q, NULL), "receive");
	send_header(5, UINT64_MAX - 7, 4096); /* a length that wraps around */
	send_header(6, 16, 4096);             /* longer than announced */
	send_header(7, 4096, 16);             /* shorter than announced */
	forge(&regions);
	access_long(&regions, WRITE);
	access_long(&regions, READ);
	send_forged(TAGGED, TAG_OVER, NULL, 0);
	late();
	send_forged(TAGGED, TAG_OVER, NULL, 0);
	stuck(&regions);
	puts("forger: all is sent");
	fflush(stdout);
	send_forged(TAGGED, TAG_OVER, NULL, 0);
	(void)outrigger_close(s); /* the victim ends the job */
	return 0;
}
