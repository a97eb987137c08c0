#include "provider.h"

static const size_t sizes[] = {0, 1, 32, 33, 8192, 8193, 65537, 1000003};
enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = 1000003, WAITS = 100000 }; /* a send of WAITS bytes completes with its receive */

static unsigned char out[LARGEST], in[LARGEST];
static int here, there;

static void calls(struct side *s)
{
	scenario = "tagged messages";
	for (size_t i = 0; i < SIZES; i++) {
		size_t n = sizes[i], half = n / 3;
		uint64_t tag = UINT64_C(0xa500000000000000) + i;
		struct iovec v[2] = {{out, half}, {out + half, n - half}}, w[2] = {{in, n - half}, {in + n - half, half}};
		struct fi_msg_tagged m = {.msg_iov = v, .iov_count = 2, .addr = s->partner, .tag = tag, .context = &here, .data = 78};
		struct fi_msg_tagged r = {.msg_iov = w, .iov_count = 2, .addr = s->partner, .tag = tag, .context = &there};
		for (int call = 0; call < 6; call++) {
			bool inject = call == 3 || call == 5, data = call == 2 || call == 4 || call == 5;
			if (inject && n > s->info->tx_attr->inject_size)
				continue;
			fill(out, n, rank + (unsigned)i);
			memset(in, 0, n);
			if (call % 2 == 0)
				must(fi_trecvmsg(s->ep, &r, FI_COMPLETION));
			else
				must(fi_trecvv(s->ep, w, NULL, 2, FI_ADDR_UNSPEC, 1, ~UINT64_C(0), &there));
			switch (call) {
			case 0: must(fi_tsend(s->ep, out, n, NULL, s->partner, tag, &here)); break;
			case 1: must(fi_tsendv(s->ep, v, NULL, 2, s->partner, tag, &here)); break;
			case 2: must(fi_tsendmsg(s->ep, &m, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMPLETION)); break;
			case 3: must(fi_tinject(s->ep, out, n, s->partner, tag)); break;
			case 4: must(fi_tsenddata(s->ep, out, n, NULL, 78, s->partner, tag, &here)); break;
			case 5: must(fi_tinjectdata(s->ep, out, n, 78, s->partner, tag)); break;
			}
			if (inject)
				memset(out, 0xff, n);
			else
				want((done(s->tx, &here).flags & (FI_SEND | FI_TAGGED)) == (FI_SEND | FI_TAGGED), "flags of a send");
			struct fi_cq_tagged_entry e = done(s->rx, &there);
			want(e.len == n && e.tag == tag && (e.flags & (FI_RECV | FI_TAGGED)) == (FI_RECV | FI_TAGGED), "call %d: %zu bytes came as %zu with tag %#llx", call, n, e.len, (unsigned long long)e.tag);
			want(((e.flags & FI_REMOTE_CQ_DATA) != 0) == data && (!data || e.data == 78), "call %d: data %llu", call, (unsigned long long)e.data);
			check(in, n, 1 - rank + (unsigned)i, "tagged message");
			meet(s);
		}
	}
}

static struct fi_msg_tagged pattern(struct side *s, uint64_t tag, void *context)
{
	return (struct fi_msg_tagged){.addr = s->partner, .tag = tag, .context = context};
}

/* peek probes until there is a message with the tag. */
static struct fi_cq_tagged_entry peek(struct side *s, uint64_t tag, uint64_t flags, void *context)
{
	struct fi_msg_tagged p = pattern(s, tag, context);
	for (;;) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry bad = {0};
		ssize_t n;
		must(fi_trecvmsg(s->ep, &p, FI_PEEK | flags));
		while ((n = fi_cq_read(s->rx, &e, 1)) == -FI_EAGAIN)
			;
		if (n == 1)
			return e;
		want(fi_cq_readerr(s->rx, &bad, 0) == 1 && bad.err == FI_ENOMSG && bad.op_context == context, "a peek: error %d", bad.err);
	}
}

static void peeks(struct side *s)
{
	static int found;
	scenario = "peek, claim, discard";
	struct fi_msg_tagged none = pattern(s, 99, &found);
	must(fi_trecvmsg(s->ep, &none, FI_PEEK));
	want(fails(s->rx, &found).err == FI_ENOMSG, "a peek found a message that was not sent");
	for (int i = 0; i < 3; i++) {
		fill(out, WAITS, rank + (unsigned)i);
		must(fi_tsend(s->ep, out, WAITS, NULL, s->partner, 5, &here));
		want(peek(s, 5, 0, &found).len == WAITS, "the length that a peek reports");
		struct iovec v = {in, WAITS};
		struct fi_msg_tagged c = pattern(s, 5, &found);
		if (i == 2) {
			peek(s, 5, FI_CLAIM, &found);
			must(fi_trecvmsg(s->ep, &c, FI_CLAIM | FI_DISCARD));
			done(s->rx, &found);
		} else {
			if (i == 1)
				peek(s, 5, FI_CLAIM, &found);
			c.msg_iov = &v;
			c.iov_count = 1;
			must(fi_trecvmsg(s->ep, &c, i == 1 ? FI_CLAIM : 0));
			done(s->rx, &found);
			check(in, WAITS, 1 - rank + (unsigned)i, "message that was looked at");
		}
		done(s->tx, &here);
	}
	/* NULL is a context like any other. Discarding a message by a peek does not claim it. */
	bool ended = false;
	fill(out, WAITS, rank);
	for (int i = 0; i < 2; i++) {
		must(fi_tsend(s->ep, out, WAITS, NULL, s->partner, 5 + (uint64_t)i, &here));
		peek(s, 5 + (uint64_t)i, i == 0 ? FI_DISCARD : FI_CLAIM, NULL);
		if (i == 1)
			continue;
		/* It is discarded at once, and not by the next receive. Its send completes as if it was
		 * received, while both ranks only poll. */
		while (!ended) {
			struct fi_cq_tagged_entry e;
			want(fi_cq_read(s->rx, &e, 1) == -FI_EAGAIN, "a peek has two completions");
			ended = fi_cq_read(s->tx, &e, 1) == 1;
		}
	}
	struct iovec v = {in, WAITS};
	struct fi_msg_tagged c = pattern(s, 6, NULL);
	c.msg_iov = &v;
	c.iov_count = 1;
	memset(in, 0, WAITS);
	must(fi_trecvmsg(s->ep, &c, FI_CLAIM));
	done(s->rx, NULL);
	check(in, WAITS, 1 - rank, "message that was claimed without a context");
	done(s->tx, &here);
	meet(s);
}

/* matched checks that a send with FI_MATCH_COMPLETE does not complete before it is matched. */
static void matched(struct side *s)
{
	scenario = "FI_MATCH_COMPLETE";
	for (size_t n = 0; n <= WAITS; n = n * 40 + 25) {
		struct iovec v = {out, n};
		struct fi_msg_tagged m = {.msg_iov = &v, .iov_count = 1, .addr = s->partner, .tag = 7, .context = &here};
		must(fi_tsendmsg(s->ep, &m, FI_MATCH_COMPLETE | FI_COMPLETION));
		peek(s, 7, 0, &there);
		meet(s); /* each has the other's message, and no receive for it */
		want(nothing(s->tx), "%zu bytes were sent before they were matched", n);
		meet(s);
		must(fi_trecv(s->ep, in, n, NULL, s->partner, 7, 0, &there));
		done(s->rx, &there);
		done(s->tx, &here);
	}
	meet(s);
}

static void ends(struct side *s)
{
	scenario = "tagged: cut off, cancelled, directed, to itself";
	for (size_t n = 20; n <= 200000; n *= 100) {
		must(fi_trecv(s->ep, in, n - 5, NULL, s->partner, 1, 0, &there));
		must(fi_tsend(s->ep, out, n, NULL, s->partner, 1, &here));
		done(s->tx, &here);
		struct fi_cq_err_entry e = fails(s->rx, &there);
		want(e.err == FI_ETRUNC && e.olen == 5 && e.tag == 1, "cut off: error %d, olen %zu", e.err, e.olen);
	}
	meet(s);
	must(fi_trecv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
	must(fi_cancel(&s->ep->fid, &there));
	want(fails(s->rx, &there).err == FI_ECANCELED, "a cancelled receive ended otherwise");
	for (int i = 0; i < 3; i++)
		must(fi_trecv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
	for (int i = 0; i < 3; i++)
		must(fi_cancel(&s->ep->fid, &there));
	want(fi_cancel(&s->ep->fid, &there) == -FI_ENOENT, "a receive is cancelled twice");
	for (int i = 0; i < 3; i++)
		want(fails(s->rx, &there).err == FI_ECANCELED, "one of three cancelled receives of a context ended otherwise");
	/* A receive from this rank itself does not match the partner's message. */
	static int mine;
	must(fi_trecv(s->ep, in, 8, NULL, s->self, 2, 0, &mine));
	must(fi_trecv(s->ep, in + 8, 8, NULL, s->partner, 2, 0, &there));
	must(fi_tsend(s->ep, out, 6, NULL, s->partner, 2, &here));
	done(s->tx, &here);
	want(done(s->rx, &there).len == 6, "a directed receive");
	must(fi_tsend(s->ep, out, 4, NULL, s->self, 2, &here));
	want(done(s->rx, &mine).len == 4, "a message to itself");
	done(s->tx, &here);
	meet(s);
}

/* own checks that a message to the rank itself has arrived when it is sent: a few polls find it and
 * the completion of its send, in whatever way it was sent. */
static void own(struct side *s)
{
	enum { POLLS = 10, ROUNDS = 300 };
	scenario = "a message to itself, at once";
	for (int i = 0; i < ROUNDS; i++) {
		struct fi_cq_tagged_entry e;
		size_t n = (size_t)i % 5 * 2048;
		int arrived = 0, sent = 0;
		bool injected = i % 2 != 0;
		must(fi_trecv(s->ep, in, n, NULL, s->self, 3, 0, &there));
		must(injected ? fi_tinject(s->ep, out, n, s->self, 3) : fi_tsend(s->ep, out, n, NULL, s->self, 3, &here));
		for (int poll = 0; poll < POLLS && arrived == 0; poll++)
			arrived = fi_cq_read(s->rx, &e, 1) == 1;
		want(arrived == 1 && e.op_context == &there && e.len == n, "round %d: %zu bytes have not arrived after %d polls", i, n, POLLS);
		for (int poll = 0; poll < POLLS && sent == 0 && !injected; poll++)
			sent = fi_cq_read(s->tx, &e, 1) == 1;
		want(injected || (sent == 1 && e.op_context == &here), "round %d: the send has not ended", i);
	}
	meet(s);
	want(nothing(s->tx), "an injected message has a completion");
}

void tagged(struct side *s)
{
	calls(s);
	own(s);
	peeks(s);
	matched(s);
	ends(s);
}

/* leave_receives posts more receives than a ring has entries, which the close of the endpoint must
 * cancel while messages arrive for them. */
void leave_receives(struct side *s)
{
	enum { MANY = 5000, SENT = 1200 }; /* messages that arrive after the close are discarded */
	scenario = "closing while messages arrive";
	for (int i = 0; i < MANY; i++)
		must(fi_trecv(s->ep, in, 8, NULL, s->partner, 12345, 0, &there));
	meet(s);
	for (int i = 0; i < SENT; i++)
		must(fi_tinject(s->ep, out, 8, s->partner, 12345));
}

/* leave_message sends the partner a message for which it has no receive. The send stays open until
 * the partner's endpoint closes. */
void leave_message(struct side *s)
{
	scenario = "closing with a message that was not received";
	must(fi_tsend(s->ep, out, LARGEST, NULL, s->partner, 777, &here));
}

/* send_after sends more messages to a closed endpoint than its sidecar would keep. Sends that do not
 * wait for the receiver succeed; those that wait have an error with the context of the send. None
 * stays open. */
void send_after(struct side *s)
{
	enum { SMALL = 8000, SENT = 1000 };
	scenario = "sending to an endpoint that is closed";
	for (int i = 0; i < SENT; i++) {
		struct fi_cq_tagged_entry e;
		ssize_t n;
		must(fi_tsend(s->ep, out, SMALL, NULL, s->partner, 778, &here));
		while ((n = fi_cq_read(s->tx, &e, 1)) == -FI_EAGAIN)
			;
		if (n == -FI_EAVAIL)
			want(fails(s->tx, &here).err == FI_ESHUTDOWN, "message %d ended otherwise", i);
		else
			want(n == 1 && e.op_context == &here, "message %d: fi_cq_read: %zd", i, n);
	}
	must(fi_tsend(s->ep, out, LARGEST, NULL, s->partner, 779, &here));
	want(fails(s->tx, &here).err == FI_ESHUTDOWN, "a large message ended otherwise");
}
