/*
 * Prints the bytes that this client exchanges with the sidecar, one structure per line: a
 * name, then the bytes in hexadecimal. A Go test compares them with the golden files of
 * api/shm.
 */
#include <stdio.h>

#include "session.h"

static void show(const char *name, const unsigned char *b, size_t n)
{
	printf("%s ", name);
	for (size_t i = 0; i < n; i++)
		printf("%02x", b[i]);
	printf("\n");
}

/* entry writes a descriptor into a ring and prints it from its fifth byte on, because the
 * ring owns the first four (the sequence number). */
static void entry(const char *name, const struct or_descriptor *d)
{
	static _Alignas(64) unsigned char memory[OR_RING_HEADER + 16 * OR_DESCRIPTOR_BYTES];
	struct or_producer p = {0};
	struct or_consumer c = {0};
	struct or_descriptor back;
	memset(memory, 0, sizeof memory);
	or_view_init(&p.view, memory, 16);
	or_view_init(&c.view, memory, 16);
	if (or_push(&p, d) != 1 || !or_pop(&c, &back) || memcmp((char *)d + 4, (char *)&back + 4, sizeof back - 4) != 0)
		printf("%s did not come through the ring\n", name);
	show(name, memory + OR_RING_HEADER + 4, OR_DESCRIPTOR_BYTES - 4);
}

int main(void)
{
	unsigned char hello[OR_HELLO_BYTES];
	or_encode_hello(hello, 7, UINT64_C(1) << 40);
	show("hello", hello, sizeof hello);
	struct or_descriptor send = {
		.op = OR_OP_SEND, .flags = OR_FLAG_SYNC, .class = OR_CLASS_ARENA, .req = 7, .peer = 3, .context = 5,
		.tag = UINT64_C(0x1122334455667788), .addr = 0x10000, .len = 1 << 16,
		.aux = UINT64_C(0xa1a2a3a4a5a6a7a8), .aux2 = UINT64_C(0xb1b2b3b4b5b6b7b8),
	};
	entry("descriptor-send", &send);
	struct or_descriptor done = {
		.op = OR_OP_DONE, .class = OR_CLASS_INLINE, .inline_length = 5, .req = OR_MAX_REQUESTS - 1, .peer = 2,
		.status = OR_STATUS_TRUNCATED, .tag = 9, .payload = "hello",
	};
	entry("descriptor-inline", &done);
	return 0;
}
