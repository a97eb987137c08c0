#include "provider.h"

static const size_t sizes[] = {0, 1, 31, 32, 33, 4096, 8191, 8192, 8193, 65536, 300001};
enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = 300001 };

static unsigned char out[LARGEST], in[LARGEST + 8];
static int here, there;

/* calls tests every function that sends, with every length, into an ordinary receive. */
static void calls(struct side *s)
{
	scenario = "untagged messages";
	for (size_t i = 0; i < SIZES; i++) {
		size_t n = sizes[i], half = n / 3;
		struct iovec v[2] = {{out, half}, {out + half, n - half}}, w[2] = {{in, n - half}, {in + n - half, half}};
		struct fi_msg m = {.msg_iov = v, .iov_count = 2, .addr = s->partner, .context = &here, .data = 77};
		for (int call = 0; call < 6; call++) {
			bool inject = call == 3 || call == 5, data = call == 4 || call == 5 || call == 2;
			if (inject && n > s->info->tx_attr->inject_size)
				continue;
			fill(out, n, rank + (unsigned)i);
			memset(in, 0, n);
			must(fi_recvv(s->ep, w, NULL, 2, FI_ADDR_UNSPEC, &there));
			switch (call) {
			case 0: must(fi_send(s->ep, out, n, NULL, s->partner, &here)); break;
			case 1: must(fi_sendv(s->ep, v, NULL, 2, s->partner, &here)); break;
			case 2: must(fi_sendmsg(s->ep, &m, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMPLETION)); break;
			case 3: must(fi_inject(s->ep, out, n, s->partner)); break;
			case 4: must(fi_senddata(s->ep, out, n, NULL, 77, s->partner, &here)); break;
			case 5: must(fi_injectdata(s->ep, out, n, 77, s->partner)); break;
			}
			if (inject)
				memset(out, 0xff, n); /* the memory may be reused */
			else
				want((done(s->tx, &here).flags & (FI_SEND | FI_MSG)) == (FI_SEND | FI_MSG), "flags of a send");
			struct fi_cq_tagged_entry e = done(s->rx, &there);
			want(e.len == n && (e.flags & (FI_RECV | FI_MSG)) == (FI_RECV | FI_MSG), "call %d: %zu bytes came as %zu, flags %#llx", call, n, e.len, (unsigned long long)e.flags);
			want(((e.flags & FI_REMOTE_CQ_DATA) != 0) == data && (!data || e.data == 77), "call %d: data %llu", call, (unsigned long long)e.data);
			check(in, n, 1 - rank + (unsigned)i, "untagged message");
			meet(s);
		}
	}
}

/* many checks that one buffer receives messages until its rest is below the endpoint's minimum. */
static void many(struct side *s)
{
	enum { ROOM = 60000, LEAST = 20000 };
	static unsigned char room[ROOM];
	size_t least = LEAST;
	scenario = "one buffer for many messages";
	must(fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
	struct iovec v = {room, sizeof room};
	struct fi_msg m = {.msg_iov = &v, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &there};
	must(fi_recvmsg(s->ep, &m, FI_MULTI_RECV));
	const size_t parts[] = {100, 20000, 5, 30000};
	for (int i = 0; i < 4; i++) {
		fill(out, parts[i], (unsigned)i);
		must(fi_send(s->ep, out, parts[i], NULL, s->partner, &here));
		done(s->tx, &here);
	}
	unsigned char *last = room;
	bool seen[4] = {false};
	for (int i = 0; i < 4; i++) { /* long messages may be received later than short ones */
		struct fi_cq_tagged_entry e = done(s->rx, &there);
		int which = e.len == 100 ? 0 : e.len == 20000 ? 1 : e.len == 5 ? 2 : 3;
		want(e.len == parts[which] && !seen[which], "%zu bytes", e.len);
		seen[which] = true;
		check(e.buf, e.len, (unsigned)which, "message in a buffer for many");
		want((unsigned char *)e.buf >= room && (unsigned char *)e.buf + e.len <= room + ROOM, "a message lies outside of its buffer");
		want(((e.flags & FI_MULTI_RECV) != 0) == (i == 3), "message %d has flags %#llx", i, (unsigned long long)e.flags);
		last = e.buf > (void *)last ? e.buf : last;
	}
	want(last > room, "all messages lie at the start");
	meet(s);
}

static void ends(struct side *s)
{
	scenario = "untagged: cut off, cancelled, counted";
	for (size_t n = 100; n <= 100000; n *= 1000) {
		must(fi_recv(s->ep, in, n - 7, NULL, FI_ADDR_UNSPEC, &there));
		fill(out, n, rank);
		in[n - 7] = 0xee;
		must(fi_send(s->ep, out, n, NULL, s->partner, &here));
		done(s->tx, &here);
		struct fi_cq_err_entry e = fails(s->rx, &there);
		want(e.err == FI_ETRUNC && e.len == n - 7 && e.olen == 7, "cut off: error %d, len %zu, olen %zu", e.err, e.len, e.olen);
		check(in, n - 7, 1 - rank, "message that was cut off");
		want(in[n - 7] == 0xee, "bytes behind the buffer were written");
	}
	meet(s);
	uint64_t errors = fi_cntr_readerr(s->received);
	must(fi_recv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, &there));
	must(fi_cancel(&s->ep->fid, &there));
	want(fails(s->rx, &there).err == FI_ECANCELED, "a cancelled receive ended otherwise");
	want(fi_cntr_readerr(s->received) == errors + 1, "a cancelled receive is not counted");
	meet(s); /* otherwise the following messages could match it */
	uint64_t sent = fi_cntr_read(s->sent), received = fi_cntr_read(s->received);
	must(fi_recv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, &there));
	must(fi_inject(s->ep, out, 8, s->partner));
	must(fi_cntr_wait(s->sent, sent + 1, -1));
	must(fi_cntr_wait(s->received, received + 1, -1));
	done(s->rx, &there);
	want(nothing(s->tx), "an injected message has a completion");
	meet(s);
	must(fi_send(s->ep, out, 3, NULL, s->self, &here));
	must(fi_recv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, &there));
	done(s->tx, &here);
	want(done(s->rx, &there).len == 3, "a message to itself");
	meet(s);
}

/* directed checks that messages of another source that have no receive yet do not delay a receive
 * that names its source. They are received later, in order. */
static void directed(struct side *s)
{
	enum { MANY = 100, LONG = 100000 }; /* more than the provider receives in advance; the send of a long message completes with its receive */
	static unsigned char room[MANY / 10 * LONG + MANY * 64 + 40000]; /* larger than all messages */
	scenario = "untagged: from one source, behind messages of another one";
	for (int multi = 0; multi < 2; multi++) {
		for (int i = 0; i < MANY; i++) {
			size_t n = i % 10 == 0 ? LONG : (size_t)(i % 40);
			fill(out, n, (unsigned)i);
			must(fi_send(s->ep, out, n, NULL, s->partner, &here));
			if (n != LONG)
				done(s->tx, &here);
		}
		meet(s);
		static int mine;
		must(fi_recv(s->ep, in, 8, NULL, s->self, &mine));
		must(fi_inject(s->ep, out, 5, s->self));
		want(done(s->rx, &mine).len == 5, "a message of its own");
		struct iovec v = {room, sizeof room};
		struct fi_msg m = {.msg_iov = &v, .iov_count = 1, .addr = s->partner, .context = &there};
		bool seen[MANY] = {false}; /* long messages may be received later than short ones */
		if (multi)
			must(fi_recvmsg(s->ep, &m, FI_MULTI_RECV));
		for (int i = 0; i < MANY; i++) {
			if (!multi)
				must(fi_recv(s->ep, in, sizeof in, NULL, i % 2 == 0 ? s->partner : FI_ADDR_UNSPEC, &there));
			struct fi_cq_tagged_entry e = done(s->rx, &there);
			int which = multi && e.len == LONG ? 0 : i;
			while (multi && which < MANY && (seen[which] || e.len != (which % 10 == 0 ? LONG : (size_t)(which % 40))))
				which++;
			want(which < MANY && e.len == (which % 10 == 0 ? LONG : (size_t)(which % 40)), "message %d has %zu bytes", i, e.len);
			seen[which] = true;
			if (!multi)
				check(in, e.len, (unsigned)i, "message that waited for its receive");
		}
		if (multi) {
			must(fi_cancel(&s->ep->fid, &there));
			fails(s->rx, &there);
		}
		for (int i = 0; i < MANY; i += 10)
			done(s->tx, &here);
		want(nothing(s->tx) && nothing(s->rx), "a completion too many");
		meet(s);
	}
}

/* flood sends more messages than there are requests, on both sides at once: all must be received. */
static void flood(struct side *s)
{
	enum { MANY = 80000, SMALL = 100 };
	static unsigned char room[MANY / 4 * 112];
	unsigned started = 0, ended = 0, got = 0;
	scenario = "untagged: more than there are requests";
	struct iovec v = {room, sizeof room};
	struct fi_msg m = {.msg_iov = &v, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &there};
	must(fi_recvmsg(s->ep, &m, FI_MULTI_RECV));
	meet(s);
	while (ended < MANY || got < MANY) {
		struct fi_cq_tagged_entry e;
		ssize_t rc = started < MANY ? fi_send(s->ep, out, SMALL, NULL, s->partner, &here) : -FI_EAGAIN;
		started += rc == 0;
		if (rc == 0)
			continue;
		want(rc == -FI_EAGAIN, "fi_send: %zd", rc);
		ended += fi_cq_read(s->tx, &e, 1) == 1;
		if (fi_cq_read(s->rx, &e, 1) != 1)
			continue;
		got += (e.flags & FI_RECV) != 0;
		if ((e.flags & FI_MULTI_RECV) != 0)
			must(fi_recvmsg(s->ep, &m, FI_MULTI_RECV));
	}
	must(fi_cancel(&s->ep->fid, &there));
	fails(s->rx, &there);
	want(nothing(s->tx) && nothing(s->rx), "a completion too many");
	meet(s);
}

void messages(struct side *s)
{
	calls(s);
	many(s);
	ends(s);
	directed(s);
	flood(s);
}
