/*
 * A rank that attaches through the library, and then writes invalid data into the memory
 * that it shares with its sidecar:
 *
 *     hostile lie NAME       submits what no correct client submits, waits until the sidecar
 *                            expels it, prints the reason, and exits with 77
 *     hostile mischief       does all that must not end its session, then says goodbye
 *     hostile greet          sends invalid greetings, then attaches and says goodbye
 *     hostile shrink         tries to truncate the files that it was given, and ends without
 *                            a goodbye
 *     hostile list           lists the names of the lies
 *
 * Ranks that die are in dying.c, the honest ranks of the job in honest.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

#define EXPELLED 77
#define UNALLOCATED UINT64_C(65536) /* bytes at the end of the arena that are never allocated */
#define FAR (UINT64_MAX - 4095) /* wraps to zero if a page is added */

static outrigger *s;

static void stop(const char *what) __attribute__((noreturn));

static void stop(const char *what)
{
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void open_session(void)
{
	struct outrigger_config config = {0};
	char why[256];
	if (outrigger_open(&config, &s, why, sizeof why) != OUTRIGGER_OK)
		stop(why);
	if (!allocated(s, s->arena.size - UNALLOCATED))
		stop("the arena");
}

static void nap(long ms)
{
	struct timespec t = {.tv_nsec = ms * 1000000};
	nanosleep(&t, NULL);
}

/* push submits a descriptor unchanged. It ignores errors, because the sidecar may have
 * expelled the rank already. */
static void push(struct or_descriptor d)
{
	while (or_submit(s, &d) == OUTRIGGER_TOO_MANY && !or_sidecar_ended(s)) {
		(void)or_handle_completions(s);
		sched_yield();
	}
}

static struct or_descriptor memory(uint8_t op, uint8_t class, uint64_t addr, uint64_t len, uint64_t aux)
{
	return (struct or_descriptor){.op = op, .class = class, .addr = addr, .len = len, .aux = aux};
}

static void unknown_op(void) { push((struct or_descriptor){.op = 99}); }
static void completion_op(void) { push((struct or_descriptor){.op = OR_OP_DONE}); }
static void no_op(void) { push((struct or_descriptor){0}); }
static void all_flags(void) { push((struct or_descriptor){.op = OR_OP_SEND, .class = OR_CLASS_INLINE, .flags = 0xff}); }
static void context(void) { push((struct or_descriptor){.op = OR_OP_PROBE, .context = 1u << 31}); }
static void unknown_class(void) { push(memory(OR_OP_SEND, 9, 0, 8, 0)); }
static void beyond_arena(void) { push(memory(OR_OP_SEND, OR_CLASS_ARENA, s->arena.size - 7, 8, 0)); }
static void beyond_pieces(void) { push(memory(OR_OP_SEND, OR_CLASS_ARENA, s->arena.size - UNALLOCATED, 8, 0)); }
static void across_pieces(void) { push(memory(OR_OP_RECV, OR_CLASS_ARENA, s->arena.size - UNALLOCATED - 8, 16, 0)); }
static void window_of_no_piece(void) { push((struct or_descriptor){.op = OR_OP_WIN, .class = OR_CLASS_ARENA, .context = 7, .addr = s->arena.size - 4096, .len = 4096}); }

/* ask submits a request for a piece of the arena, without the library's checks. */
static void ask(uint64_t offset, uint64_t bytes)
{
	unsigned char b[OR_ASK_BYTES] = {0};
	uint32_t magic = OR_ASK_MAGIC;
	memcpy(b, &magic, sizeof magic);
	memcpy(b + 8, &offset, sizeof offset);
	memcpy(b + 16, &bytes, sizeof bytes);
	(void)send(s->socket, b, sizeof b, MSG_NOSIGNAL);
}

static void piece_twice(void) { ask(0, 4096); }
static void piece_of_no_unit(void) { ask(s->arena.size - UNALLOCATED, 100); }
static void piece_beyond(void) { ask(s->arena.size - UNALLOCATED, UINT64_C(1) << 40); }

static void beyond_slab(void) { push(memory(OR_OP_RECV, OR_CLASS_SLAB, UINT64_C(1) << 40, 8, 0)); }
static void length_wraps(void) { push(memory(OR_OP_SEND, OR_CLASS_ARENA, 4096, UINT64_MAX - 8, 0)); }
static void address_wraps(void) { push(memory(OR_OP_RECV, OR_CLASS_ARENA, FAR, 8192, 0)); }
static void rank_too_high(void) { push((struct or_descriptor){.op = OR_OP_SEND, .class = OR_CLASS_INLINE, .peer = 1000}); }
static void inline_too_long(void) { push((struct or_descriptor){.op = OR_OP_SEND, .class = OR_CLASS_INLINE, .inline_length = 255}); }
static void room_too_long(void) { push((struct or_descriptor){.op = OR_OP_RECV, .class = OR_CLASS_INLINE, .inline_length = 33}); }
static void request_number(void) { push((struct or_descriptor){.op = OR_OP_PROBE, .req = OR_MAX_REQUESTS}); }
static void silent_and_large(void) { push((struct or_descriptor){.op = OR_OP_SEND, .flags = OR_FLAG_SILENT, .class = OR_CLASS_ARENA, .len = 64}); }
static void stage_unasked(void) { push(memory(OR_OP_STAGE, OR_CLASS_ARENA, 0, 8, 0)); }
static void drop_unknown(void) { push(memory(OR_OP_DROP, 0, 0, 0, 12345)); }
static void receive_unknown(void) { push(memory(OR_OP_MRECV, OR_CLASS_ARENA, 0, 8, 0)); }
static void reduced_unasked(void)
{
	push((struct or_descriptor){.op = OR_OP_RECV, .req = 4, .class = OR_CLASS_INLINE, .tag = 1});
	push((struct or_descriptor){.op = OR_OP_REDUCED, .req = 4});
}
static void block_too_short(void) { push(memory(OR_OP_COLL, OR_CLASS_ARENA, 0, 8, 0)); }
static void block_beyond(void) { push(memory(OR_OP_COLL, OR_CLASS_ARENA, s->arena.size - 8, OR_COLL_BLOCK_BYTES, 0)); }
static void group_beyond(void) { push((struct or_descriptor){.op = OR_OP_COMM, .class = OR_CLASS_ARENA, .context = 7, .addr = FAR, .len = 8}); }
static void window_beyond(void) { push((struct or_descriptor){.op = OR_OP_WIN, .class = OR_CLASS_ARENA, .context = 7, .addr = s->arena.size - 8, .len = 16}); }
static void window_unknown(void) { push((struct or_descriptor){.op = OR_OP_WIN_FREE, .context = 77}); }
static void abort_beyond(void) { push(memory(OR_OP_ABORT, OR_CLASS_ARENA, s->arena.size, 1, 0)); }
static void word_on_socket(void) { (void)send(s->socket, "anybody there?", 14, MSG_NOSIGNAL); }

static void now_on_a_receive(void) { push((struct or_descriptor){.op = OR_OP_RECV, .flags = OR_FLAG_NOW, .class = OR_CLASS_INLINE}); }
static void exclusive_flush(void) { push((struct or_descriptor){.op = OR_OP_FLUSH, .flags = OR_FLAG_EXCLUSIVE}); }
static void silent_and_synchronous(void) { push((struct or_descriptor){.op = OR_OP_SEND, .flags = OR_FLAG_SILENT | OR_FLAG_SYNC, .class = OR_CLASS_INLINE}); }

/* chunk starts the operation of descriptor of as request 4 and lends it a chunk. */
static void chunk(struct or_descriptor of, uint64_t bytes)
{
	struct or_descriptor d = memory(OR_OP_STAGE, OR_CLASS_ARENA, 0, bytes, 0);
	of.req = d.req = 4;
	push(of);
	push(d);
}

static void chunk_of_a_probe(void) { chunk((struct or_descriptor){.op = OR_OP_PROBE, .tag = 1}, 64); }
static void chunk_of_a_receive(void) { chunk((struct or_descriptor){.op = OR_OP_RECV, .class = OR_CLASS_INLINE, .tag = 1}, 64); }
static void chunk_beyond(void) { chunk((struct or_descriptor){.op = OR_OP_SEND, .class = OR_CLASS_STAGED, .tag = 1, .len = 100}, 200); }

static void chunk_too_early(void)
{
	struct or_descriptor d = {.op = OR_OP_RECV, .class = OR_CLASS_STAGED, .tag = 1, .len = 100000};
	chunk(d, 64);
}

static void chunks_without_end(void)
{
	chunk((struct or_descriptor){.op = OR_OP_SEND, .class = OR_CLASS_STAGED, .tag = 1, .len = 1 << 30}, 1);
	for (int i = 0; i < 100000 && !s->gone; i++) {
		struct or_descriptor d = memory(OR_OP_STAGE, OR_CLASS_ARENA, 0, 1, 0);
		d.req = 4;
		push(d);
	}
}

static void silent_without_end(void)
{
	for (int i = 0; i < 1000000 && !s->gone; i++)
		push((struct or_descriptor){.op = OR_OP_SEND, .flags = OR_FLAG_SILENT, .class = OR_CLASS_INLINE, .inline_length = 32, .peer = 3, .tag = 1});
}

static void number_twice(void)
{
	struct or_descriptor d = {.op = OR_OP_RECV, .class = OR_CLASS_INLINE, .inline_length = 8, .tag = UINT64_C(1) << 40};
	push(d);
	push(d);
}

/* members creates a communicator with two given members. */
static void members(uint32_t a, uint32_t b)
{
	uint32_t *list = outrigger_alloc(s, 8);
	list[0] = a;
	list[1] = b;
	struct or_descriptor d = named(s, OR_OP_COMM, list, 8);
	d.context = 7;
	push(d);
}

static void unknown_member(void) { members(HOSTILE, 1000); }
static void member_twice(void) { members(HOSTILE, HOSTILE); }
static void no_member(void) { members(0, 2); }

/* sum returns the block of a valid collective, in which the caller falsifies one field. */
static struct sum *sum(void)
{
	struct sum *a = sum_new(s);
	if (a == NULL)
		stop("no room");
	return a;
}

static void submit_sum(struct sum *a) { push(named(s, OR_OP_COLL, &a->block, sizeof a->block)); }

static void vectors_without_end(void)
{
	struct sum *a = sum();
	a->block.vectors = UINT32_MAX;
	submit_sum(a);
}

static void result_beyond(void)
{
	struct sum *a = sum();
	a->block.out = s->arena.size - 8;
	submit_sum(a);
}

static void scratch_beyond(void)
{
	struct sum *a = sum();
	a->block.scratch = FAR;
	submit_sum(a);
}

/* window exposes a window with the same number as the honest ranks', so that this rank can
 * access theirs. */
static unsigned char *window(void)
{
	unsigned char *w = outrigger_alloc(s, 2 * LARGE);
	struct or_descriptor d = named(s, OR_OP_WIN, w, WINDOW_BYTES);
	outrigger_request q;
	d.context = WINDOW;
	if (w == NULL || raw(s, d, &q) != OUTRIGGER_OK || outrigger_wait(s, q, NULL) != OUTRIGGER_OK)
		stop("no window");
	return w;
}

static void operand_of_no_class(void)
{
	(void)window();
	push((struct or_descriptor){.op = OR_OP_FETCH, .class = OR_CLASS_ARENA, .context = WINDOW, .req = 7, .status = OR_TYPE_UINT64 << 8 | OR_REDUCE_SUM});
}

/* claimed sends a message to this rank, claims it, and returns its handle. */
static uint64_t claimed(void)
{
	struct outrigger_envelope e = {.peer = HOSTILE, .tag = 5};
	struct outrigger_result got = {0};
	outrigger_request q;
	if (outrigger_send(s, "to myself", 9, &e, OUTRIGGER_COPY, NULL) != OUTRIGGER_OK || outrigger_probe(s, &e, OUTRIGGER_CLAIM, NULL, NULL, &q) != OUTRIGGER_OK || outrigger_wait(s, q, &got) != OUTRIGGER_OK)
		stop("claiming");
	return got.handle;
}

static void drop_twice(void)
{
	uint64_t handle = claimed();
	(void)outrigger_drop(s, handle);
	(void)outrigger_drop(s, handle);
}

static void handle_of_another_time(void) { (void)outrigger_drop(s, claimed() ^ UINT64_C(1) << 32); }

/* fill makes the sidecar publish more completions than the ring has entries. */
static void fill(void)
{
	for (uint64_t i = 0; i <= s->complete.view.mask + 1; i++)
		if (or_push(&s->submit, &(struct or_descriptor){.op = OR_OP_PROBE, .flags = OR_FLAG_NOW, .peer = OR_ANY_SOURCE, .req = (uint32_t)i}) <= 0) {
			uint64_t one = 1;
			if (write(s->doorbell, &one, sizeof one) < 0 || or_sidecar_ended(s))
				return;
			i--;
			nap(1);
		}
	push((struct or_descriptor){.op = OR_OP_PROBE, .flags = OR_FLAG_NOW, .peer = OR_ANY_SOURCE, .req = 60000});
}

static void head_ahead(void)
{
	atomic_store(s->complete.view.head, UINT64_C(1) << 50);
	fill();
}

/* head_back moves the head of the completion ring back, as if entries were unread again. */
static void head_back(void)
{
	fill();
	for (uint64_t i = 1; i <= s->complete.view.mask / 2; i++)
		atomic_store(s->complete.view.head, i);
	nap(20);
	atomic_store(s->complete.view.head, 0);
	fill();
}

static void garbage(void)
{
	uint64_t x = 88172645463325252u;
	for (int i = 0; i < 1000; i++) {
		uint64_t words[OR_WORDS];
		for (int k = 0; k < OR_WORDS; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			words[k] = x;
		}
		struct or_descriptor d;
		memcpy(&d, words, sizeof d);
		push(d);
	}
}

/* Shared memory to which another thread writes two values in turn, for as long as the
 * process runs, so that two reads of the sidecar may differ. */
static _Atomic(_Atomic uint64_t *) flipped;
static uint64_t flip_a, flip_b;

static void *flip(void *arg)
{
	for (uint64_t i = 0;; i++)
		atomic_store_explicit(flipped, i % 2 == 0 ? flip_a : flip_b, memory_order_relaxed);
	return arg;
}

static void flip_between(void *at, uint64_t a, uint64_t b)
{
	pthread_t t;
	flip_a = a;
	flip_b = b;
	flipped = at;
	if (pthread_create(&t, NULL, flip, NULL) != 0)
		stop("thread");
}

/* flood submits a descriptor many times, each as a separate request, and ignores their
 * completions. */
static void flood(struct or_descriptor d)
{
	for (d.req = 0; d.req < 60000 && !or_sidecar_ended(s);) {
		struct or_descriptor answer;
		uint64_t one = 1;
		int pushed = or_push(&s->submit, &d);
		if (pushed < 0 || write(s->doorbell, &one, sizeof one) < 0)
			return;
		while (or_pop(&s->complete, &answer))
			;
		or_publish_head(&s->complete);
		d.req += (uint32_t)pushed;
		if (pushed == 0)
			sched_yield();
	}
}

/* entries_that_change flips the length of a published entry between a valid value and an
 * invalid one. */
static void entries_that_change(void)
{
	unsigned char *e = or_entry(&s->submit.view, s->submit.tail + 3);
	flip_between(e + offsetof(struct or_descriptor, len), 64, UINT64_MAX - 64);
	flood((struct or_descriptor){.op = OR_OP_RECV, .class = OR_CLASS_ARENA, .tag = 1, .addr = 64, .len = 64});
}

/* blocks_that_change flips the result offset of a collective between one inside the arena
 * and one far outside. */
static void blocks_that_change(void)
{
	struct sum *a = sum();
	flip_between(&a->block.out, a->block.out, FAR);
	flood(named(s, OR_OP_COLL, &a->block, sizeof a->block));
}

static const struct {
	const char *name;
	void (*act)(void);
} lies[] = {
	{"unknown-op", unknown_op}, {"completion-op", completion_op}, {"no-op", no_op}, {"all-flags", all_flags}, {"context", context},
	{"unknown-class", unknown_class}, {"beyond-arena", beyond_arena}, {"beyond-pieces", beyond_pieces}, {"across-pieces", across_pieces},
	{"window-of-no-piece", window_of_no_piece}, {"piece-twice", piece_twice}, {"piece-of-no-unit", piece_of_no_unit}, {"piece-beyond", piece_beyond}, {"beyond-slab", beyond_slab}, {"length-wraps", length_wraps},
	{"address-wraps", address_wraps}, {"rank-too-high", rank_too_high}, {"inline-too-long", inline_too_long}, {"room-too-long", room_too_long},
	{"request-number", request_number}, {"number-twice", number_twice}, {"silent-and-large", silent_and_large}, {"stage-unasked", stage_unasked},
	{"drop-unknown", drop_unknown}, {"drop-twice", drop_twice}, {"handle-of-another-time", handle_of_another_time},
	{"receive-unknown", receive_unknown}, {"reduced-unasked", reduced_unasked}, {"block-too-short", block_too_short}, {"block-beyond", block_beyond},
	{"unknown-member", unknown_member}, {"member-twice", member_twice}, {"no-member", no_member}, {"group-beyond", group_beyond},
	{"vectors-without-end", vectors_without_end}, {"result-beyond", result_beyond}, {"scratch-beyond", scratch_beyond},
	{"window-beyond", window_beyond}, {"window-unknown", window_unknown}, {"operand-of-no-class", operand_of_no_class},
	{"now-on-a-receive", now_on_a_receive}, {"exclusive-flush", exclusive_flush}, {"silent-and-synchronous", silent_and_synchronous},
	{"chunk-of-a-probe", chunk_of_a_probe}, {"chunk-of-a-receive", chunk_of_a_receive}, {"chunk-beyond", chunk_beyond},
	{"chunk-too-early", chunk_too_early}, {"chunks-without-end", chunks_without_end}, {"silent-without-end", silent_without_end},
	{"abort-beyond", abort_beyond}, {"head-ahead", head_ahead}, {"head-back", head_back}, {"word-on-socket", word_on_socket}, {"garbage", garbage},
	{"entries-that-change", entries_that_change}, {"blocks-that-change", blocks_that_change},
};

/* lie submits an invalid request and waits until the sidecar expels this rank for it. */
static int lie(const char *name)
{
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		if (strcmp(lies[i].name, name) != 0)
			continue;
		open_session();
		lies[i].act();
		struct pollfd p = {.fd = s->socket, .events = POLLIN};
		char why[256];
		if (poll(&p, 1, 20000) != 1)
			stop("the sidecar does not hang up");
		outrigger_failure(s, why, sizeof why);
		printf("expelled: %s\n", why);
		return EXPELLED;
	}
	errno = EINVAL;
	stop(name);
}

/* Mischief: misuse that must not end the session. */

/* flushed flushes the accesses to a rank's window and returns the status. */
static int flushed(uint32_t to)
{
	outrigger_request q;
	struct or_descriptor d = {.op = OR_OP_FLUSH, .peer = to, .context = WINDOW};
	return raw(s, d, &q) != OUTRIGGER_OK ? OUTRIGGER_NO_SIDECAR : outrigger_wait(s, q, NULL);
}

/* access_beyond accesses memory outside the window of an honest rank, and values of types
 * that do not exist. */
static void access_beyond(void)
{
	static const uint64_t offsets[] = {WINDOW_BYTES - 7, WINDOW_BYTES, UINT64_C(1) << 40, FAR, UINT64_MAX};
	static const uint8_t ops[] = {OR_OP_PUT, OR_OP_GET, OR_OP_ACC, OR_OP_FETCH, OR_OP_CAS};
	unsigned char *w = window();
	for (uint32_t to = 0; to < 4; to++)
		for (size_t i = 0; i < 5; i++)
			for (size_t k = 0; k < 5; k++) {
				struct or_descriptor d = named(s, ops[k], w, ops[k] == OR_OP_PUT && i == 0 ? LARGE : 8);
				bool value = ops[k] == OR_OP_FETCH || ops[k] == OR_OP_CAS;
				d.peer = to;
				d.context = WINDOW;
				d.aux = offsets[i];
				d.tag = value ? offsets[i] : OR_TYPE_UINT64 << 8 | OR_REDUCE_SUM;
				if (value) {
					d.status = OR_TYPE_UINT64 << 8 | (ops[k] == OR_OP_FETCH ? OR_REDUCE_SUM : 0);
					d.class = OR_CLASS_INLINE;
					d.inline_length = ops[k] == OR_OP_CAS ? 16 : 8;
				}
				/* Put and accumulate complete when their local memory can be reused: only the next
				 * flush reports their error, once. */
				bool reported = ops[k] != OR_OP_PUT && ops[k] != OR_OP_ACC;
				(void)flushed(to); /* clears the errors of earlier accesses */
				outrigger_request q;
				int rc = raw(s, d, &q) != OUTRIGGER_OK ? OUTRIGGER_NO_SIDECAR : outrigger_wait(s, q, NULL);
				if (!reported && rc == OUTRIGGER_OK)
					rc = flushed(to);
				if (!reported && rc == OUTRIGGER_INVALID && flushed(to) != OUTRIGGER_OK)
					stop("an error is reported twice");
				if (rc != OUTRIGGER_INVALID) {
					fprintf(stderr, "hostile: operation %u at %#llx of rank %u: %s\n", ops[k], (unsigned long long)offsets[i], to, outrigger_status_text(rc));
					_exit(1);
				}
			}
}

/* refused_alone checks that a descriptor completes with status invalid. */
static void refused_alone(struct or_descriptor d)
{
	outrigger_request q;
	if (raw(s, d, &q) != OUTRIGGER_OK || outrigger_wait(s, q, NULL) != OUTRIGGER_INVALID)
		stop("it is not invalid");
}

static void count_wraps(void)
{
	struct sum *a = sum();
	a->block.count = UINT64_C(1) << 61;
	refused_alone(named(s, OR_OP_COLL, &a->block, sizeof a->block));
}

static void window_of_no_rank(void)
{
	struct or_descriptor d = named(s, OR_OP_GET, s->arena.memory, 8);
	d.context = 77;
	refused_alone(d);
}

static void header_overwritten(void)
{
	unsigned char first[64];
	memcpy(first, s->control, sizeof first);
	memset(s->control, 0xff, OR_SEG_OFF_FAILURE);
	memset(s->control + OR_SEG_OFF_FAILURE, 0xff, OR_SEG_OFF_RINGS - OR_SEG_OFF_FAILURE);
	nap(5);
	memcpy(s->control, first, sizeof first);
	atomic_store(or_word(s, OR_SEG_OFF_WAITING), 0);
	atomic_store(s->submit.view.head, 0); /* the sidecar's own word */
}

/* memory_taken tries to remove the pages of the arena and of the control segment while a
 * message is in the arena. */
static void memory_taken(void)
{
	struct outrigger_envelope e = {.peer = 3, .tag = 1234};
	unsigned char *b = outrigger_alloc(s, LARGE);
	outrigger_request q;
	if (b == NULL || outrigger_send(s, b, LARGE, &e, 0, &q) != OUTRIGGER_OK)
		stop("send");
	nap(20); /* the sidecar has sealed both */
	if (madvise(s->arena.memory, s->arena.size, MADV_REMOVE) == 0 || madvise(s->control, s->control_bytes, MADV_REMOVE) == 0)
		stop("pages of sealed memory can be removed");
	(void)outrigger_cancel(s, q);
	(void)outrigger_wait(s, q, NULL);
}

static void entries_out_of_order(void)
{
	for (uint64_t ahead = 5; ahead > 0; ahead--) {
		unsigned char *e = or_entry(&s->submit.view, s->submit.tail + ahead);
		memset(e + 4, 0xff, OR_DESCRIPTOR_BYTES - 4);
		atomic_store((_Atomic uint32_t *)(void *)e, (uint32_t)(s->submit.tail + 1)); /* the sequence number of another entry */
	}
}

static void places(void)
{
	static const uint32_t words[] = {0xffffffff, 0xffff, 0x8000ffff, 0x40000001, 0x7fff0000, 2};
	for (int i = 0; i < 600; i++) {
		atomic_store(or_word(s, OR_SEG_OFF_PLACE), words[i % 6]);
		if (i % 100 == 0)
			nap(1);
	}
}

/* doorbells fills the doorbell's counter, makes its descriptor blocking, and reads it empty. */
static void doorbells(void)
{
	uint64_t most = UINT64_MAX - 1, seen;
	int flags = fcntl(s->doorbell, F_GETFL);
	(void)!read(s->doorbell, &seen, sizeof seen);
	if (write(s->doorbell, &most, sizeof most) != sizeof most || fcntl(s->doorbell, F_SETFL, flags & ~O_NONBLOCK) != 0)
		stop("doorbell");
	nap(5);
	if (read(s->doorbell, &seen, sizeof seen) != sizeof seen || fcntl(s->doorbell, F_SETFL, flags) != 0)
		stop("doorbell");
}

static void waiting_always(void)
{
	for (int i = 0; i < 100; i++) {
		struct outrigger_envelope e = {.peer = HOSTILE, .tag = 6};
		atomic_store(or_word(s, OR_SEG_OFF_WAITING), (uint32_t)i | 1u);
		if (outrigger_send(s, &e, 8, &e, OUTRIGGER_COPY, NULL) != OUTRIGGER_OK)
			stop("send");
	}
}

/* deaf submits many requests and does not read their completions for a while. */
static void deaf(void)
{
	uint64_t one = 1;
	uint32_t asked = 0, answered = 0;
	struct or_descriptor d = {.op = OR_OP_PROBE, .flags = OR_FLAG_NOW, .peer = OR_ANY_SOURCE}, answer;
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < 30; nap(2), i++)
		for (; or_push(&s->submit, &d) > 0; asked++)
			d.req = asked % 60000;
	while (answered < asked) {
		if (or_pop(&s->complete, &answer)) {
			answered++;
			continue;
		}
		or_publish_head(&s->complete);
		if (write(s->doorbell, &one, sizeof one) != sizeof one)
			stop("doorbell");
		sched_yield();
	}
	pthread_mutex_unlock(&s->lock);
}

static void feature_not_named(void)
{
	struct or_descriptor d = {.op = OR_OP_START, .peer = 0, .context = WINDOW};
	outrigger_request q;
	for (int i = 0; i < 80; i++) /* 64 at most may be open */
		if (raw(s, d, &q) != OUTRIGGER_OK)
			stop("start");
}

static const struct {
	const char *name;
	void (*act)(void);
} mischief[] = {
	{"access-beyond", access_beyond}, {"count-wraps", count_wraps}, {"window-of-no-rank", window_of_no_rank}, {"places", places}, {"doorbells", doorbells}, {"waiting-always", waiting_always},
	{"entries-out-of-order", entries_out_of_order}, {"header-overwritten", header_overwritten}, {"memory-taken", memory_taken},
	{"deaf", deaf}, {"feature-not-named", feature_not_named},
};

static int play_mischief(void)
{
	open_session();
	for (size_t i = 0; i < sizeof mischief / sizeof *mischief; i++) {
		mischief[i].act();
		printf("did %s\n", mischief[i].name);
		fflush(stdout);
	}
	push((struct or_descriptor){.op = OR_OP_DETACH});
	return 0;
}

/* Greetings. */

static int connected(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	(void)snprintf(to.sun_path, sizeof to.sun_path, "%s", getenv(OR_NAME_ENV_SOCKET));
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		stop("connect");
	return fd;
}

#define DESCRIPTORS 250

/* strange opens descriptors of several kinds that a greeting must not carry. */
static void strange(int fds[DESCRIPTORS])
{
	for (int i = 0; i < DESCRIPTORS; i++) {
		int p[2];
		switch (i % 5) {
		case 0: fds[i] = memfd_create("unsealed", 0); break;
		case 1: fds[i] = memfd_create("sealed", MFD_ALLOW_SEALING); break;
		case 2: fds[i] = eventfd(0, 0); break;
		case 3: fds[i] = open("/dev/null", O_PATH); break;
		default:
			if (pipe(p) != 0)
				stop("pipe");
			fds[i] = p[0];
			close(p[1]);
		}
		if (fds[i] < 0)
			stop("descriptor");
	}
}

/* send_hello sends a greeting of n bytes, with descriptors attached if with is set. */
static void send_hello(int fd, const unsigned char *b, size_t n, bool with)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control = {0};
	int fds[DESCRIPTORS];
	struct iovec v = {(void *)(uintptr_t)b, n};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	if (with) {
		strange(fds);
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fds);
		memcpy(CMSG_DATA(c), fds, sizeof fds);
	}
	if (sendmsg(fd, &m, MSG_NOSIGNAL) < 0)
		stop("greeting");
	for (int i = 0; with && i < DESCRIPTORS; i++)
		close(fds[i]);
}

/* answer reads the sidecar's Welcome and prints whether it refuses the session, and why. */
static void answer(const char *name, int fd)
{
	unsigned char b[OR_WELCOME_BYTES + 1];
	struct or_welcome w;
	ssize_t n = recv(fd, b, sizeof b, 0);
	bool good = n > 0 && or_decode_welcome(b, (size_t)n, &w);
	printf("%s: %s %s\n", name, !good ? "no welcome" : w.accepted ? "accepted" : "refused:", good ? w.text : "");
	fflush(stdout);
	close(fd);
}

struct greeting {
	const char *name;
	size_t bytes;
	size_t at; /* offset of the falsified field */
	uint64_t value;
	bool with;
};

static const struct greeting greetings[] = {
	{"no-magic", OR_HELLO_BYTES, 0, 0, false}, {"version-99", OR_HELLO_BYTES, 4, 99, false}, {"no-features", OR_HELLO_BYTES, 8, 0, false},
	{"only-new-features", OR_HELLO_BYTES, 8, UINT64_MAX & ~(uint64_t)OR_FEATURES_REQUIRED, false},
	{"rank-of-an-honest-one", OR_HELLO_BYTES, 16, 0, false}, {"rank-of-another-pod", OR_HELLO_BYTES, 16, 3, false},
	{"rank-of-no-pod", OR_HELLO_BYTES, 16, UINT32_MAX, false}, {"arena-without-end", OR_HELLO_BYTES, 24, UINT64_MAX, false},
	{"too-short", OR_HELLO_BYTES - 1, 0, OR_HELLO_MAGIC, false}, {"too-long", OR_HELLO_BYTES + 1, 0, OR_HELLO_MAGIC, false}, {"one-byte", 1, 0, OR_HELLO_MAGIC, false},
	{"descriptors-and-no-magic", OR_HELLO_BYTES, 0, 0, true}, {"descriptors-and-a-rank-of-another-pod", OR_HELLO_BYTES, 16, 3, true},
};

static void greet(const struct greeting *g)
{
	unsigned char b[OR_HELLO_BYTES + 1] = {0};
	or_encode_hello(b, HOSTILE, 0);
	memcpy(b + g->at, &g->value, g->at == 8 || g->at == 24 ? 8 : 4);
	int fd = connected();
	send_hello(fd, b, g->bytes, g->with);
	answer(g->name, fd);
}

/* shrink tries to truncate the files that it was given, and to remove their seals. */
static void shrink(void)
{
	unsigned char b[OR_WELCOME_BYTES + 1] = {0};
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control;
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	int fds[3], fd = connected(), cut = 0;
	or_encode_hello(b, HOSTILE, 0);
	uint64_t all = UINT64_MAX; /* unknown features are ignored */
	memcpy(b + 8, &all, 8);
	send_hello(fd, b, OR_HELLO_BYTES, true);
	if (recvmsg(fd, &m, 0) != OR_WELCOME_BYTES || CMSG_FIRSTHDR(&m) == NULL)
		stop("welcome");
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fds);
	for (int i = 0; i < 2; i++) {
		cut += ftruncate(fds[i], 0) == 0 || ftruncate(fds[i], 1 << 30) == 0 || fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE) == 0;
		if (fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) != 0)
			stop("punching a hole");
	}
	nap(20);
	printf("shrink: %s\n", cut == 0 ? "the size is sealed" : "the size could be changed");
	(void)send(fd, "now what?", 9, MSG_NOSIGNAL); /* which ends the session */
	nap(20);
}

static int play_greetings(void)
{
	for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++)
		greet(&greetings[i]);
	open_session();
	struct greeting twice = {"attached-twice", OR_HELLO_BYTES, 0, OR_HELLO_MAGIC, false};
	greet(&twice);
	return outrigger_close(s) == OUTRIGGER_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "lie") == 0)
		return lie(argv[2]);
	if (argc == 2 && strcmp(argv[1], "mischief") == 0)
		return play_mischief();
	if (argc == 2 && strcmp(argv[1], "greet") == 0)
		return play_greetings();
	if (argc == 2 && strcmp(argv[1], "shrink") == 0) {
		shrink();
		return 0;
	}
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
		puts(lies[i].name);
	return 0;
}
