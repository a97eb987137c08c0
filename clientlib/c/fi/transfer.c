/* Sends, tagged receives, and what libfabric calls them. */

#include <sched.h>

#include "inbox.h"
#include "openmpi.h"

static struct pool claims = {.bytes = sizeof(struct claimed)};

static struct endpoint *endpoint(struct fid_ep *fid) { return (struct endpoint *)fid; }

/* A message on its way out, however it was asked for. */
struct outgoing {
	const struct iovec *iov;
	size_t segments;
	fi_addr_t to;
	uint64_t tag, data;
	void *context;
	uint64_t flags;
	enum space space;
	bool inject; /* neither completion nor context */
};

/* What a call that submits twice keeps of the first request while it submits the second,
 * which may take the end of the first. */
struct beginning {
	bool ended;
	struct outrigger_result result;
};

static void on_sent(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct endpoint *ep = op->ep;
	if (op->beginning != NULL) {
		*op->beginning = (struct beginning){true, *r};
		return;
	}
	if (op->abandoned) {
		op_free(op);
		return;
	}
	count(ep->sent, r->status);
	if (!ep->closing && (op->reports || r->status != OUTRIGGER_OK) && !untold(op->context, r->status))
		cq_put(ep->tx, &(struct completion){.context = op->context, .flags = op->flags, .err = -to_errno(r->status), .status = r->status});
	op_free(op);
}

/* What this process has sent itself, small, and what of it is under way: its end follows
 * what its arrival has brought about (LAYOUT 5). Where an MPI has such messages in the
 * process they have come when they are sent, and programs look a few times. So a look waits
 * for them, SELF_NS at most: for a sidecar that gets no processor, or has no room for more
 * of them, no look waits again until all have come. */
#define SELF_NS UINT64_C(20000000)
static unsigned to_self;
static bool in_vain; /* was waited */

static void on_sent_self(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	to_self--;
	in_vain = in_vain && to_self > 0;
	if (op->silent)
		op_free(op);
	else
		on_sent(op, r);
}

bool await_self(void)
{
	if (to_self == 0 || in_vain)
		return false;
	uint64_t since = nanoseconds();
	while (to_self > 0 && !in_vain && !sidecar_ended) {
		sched_yield();
		progress();
		in_vain = to_self > 0 && nanoseconds() - since > SELF_NS;
	}
	return true;
}

/* comes_at_once: to this process, small, and over when it has come. */
static bool comes_at_once(const struct outgoing *o, const struct peer *p)
{
	return p->rank == outrigger_world(client()).rank && bytes_of(o->iov, o->segments) <= INJECT_MAX &&
	       (o->flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) == 0;
}

/* nobody sends a small message of which nothing is to be said. */
static bool silent(const struct endpoint *ep, const struct outgoing *o, bool reports)
{
	return !reports && ep->sent == NULL && (o->inject || bytes_of(o->iov, o->segments) <= INJECT_MAX);
}

/* send_beside sends an untagged message that does not fit into a letter, and then
 * the letter, whose place among the others is the message's. */
static int send_beside(struct op *op, const struct outgoing *o, struct outrigger_envelope to, unsigned flags)
{
	static uint64_t messages;
	uint64_t length = bytes_of(o->iov, o->segments);
	struct iovec letter = {&length, sizeof length};
	outrigger_request request;
	struct beginning b = {0};
	op->beginning = &b;
	to.tag = ++messages | TAG_BULK;
	int rc = outrigger_sendv(client(), o->iov, (int)o->segments, &to, flags, op->done, op, &request);
	if (rc != OUTRIGGER_OK) {
		op_free(op);
		return rc;
	}
	to.tag &= ~TAG_BULK;
	rc = outrigger_sendv(client(), &letter, 1, &to, 0, NULL, NULL, NULL);
	op->beginning = NULL;
	op->abandoned = rc != OUTRIGGER_OK;
	if (b.ended)
		on_sent(op, &b.result);
	else if (op->abandoned) /* without its letter nobody receives it */
		(void)outrigger_cancel(client(), request); /* it ends with the session too */
	return rc;
}

static ssize_t send_locked(struct endpoint *ep, const struct outgoing *o)
{
	struct peer p;
	if (!ep->enabled || !av_find(ep->av, o->to, &p) || o->segments > IOV_LIMIT)
		return -FI_EINVAL;
	struct outrigger_envelope to = {.peer = p.rank, .context = context_of(p.endpoint, o->space), .tag = o->tag, .data = (uint32_t)o->data};
	unsigned flags = OUTRIGGER_MODEST | ((o->flags & FI_REMOTE_CQ_DATA) != 0 ? OUTRIGGER_DATA : 0);
	bool reports = !o->inject && (!ep->tx_selective || (o->flags & FI_COMPLETION) != 0);
	bool quiet = silent(ep, o, reports), own = comes_at_once(o, &p);
	if (quiet && !own)
		return to_errno(outrigger_sendv(client(), o->iov, (int)o->segments, &to, flags, NULL, NULL, NULL));
	struct op *op = op_new(ep, OP_SEND, own ? on_sent_self : on_sent, o->context);
	if (op == NULL)
		return -FI_ENOMEM;
	op->reports = reports;
	op->silent = quiet;
	op->flags = FI_SEND | (o->space == SPACE_TAGGED ? FI_TAGGED : FI_MSG);
	if (quiet || o->inject || (o->flags & FI_INJECT) != 0)
		flags |= OUTRIGGER_COPY;
	if ((o->flags & FI_DELIVERY_COMPLETE) != 0)
		flags |= OUTRIGGER_ACKED;
	if ((o->flags & FI_MATCH_COMPLETE) != 0 && o->space == SPACE_TAGGED) /* an untagged one is matched by its letter */
		flags |= OUTRIGGER_SYNC;
	if (o->space == SPACE_MSG && bytes_of(o->iov, o->segments) > LETTER_MAX)
		return to_errno(send_beside(op, o, to, flags));
	to_self += own;
	int rc = outrigger_sendv(client(), o->iov, (int)o->segments, &to, flags, op->done, op, NULL);
	if (rc != OUTRIGGER_OK) {
		to_self -= own;
		op_free(op);
	}
	return to_errno(rc);
}

static ssize_t start_send(struct fid_ep *fid, const struct outgoing *o)
{
	lock();
	ssize_t rc = send_locked(endpoint(fid), o);
	if (rc == -FI_EAGAIN)
		progress(); /* what ends makes room */
	end_of_start(rc);
	return rc;
}

static struct completion described(const struct op *op, const struct outrigger_result *r)
{
	struct completion c = {.context = op->context, .flags = op->flags, .tag = r->tag, .len = r->length, .status = r->status, .err = -to_errno(r->status)};
	if (r->has_data) {
		c.flags |= FI_REMOTE_CQ_DATA;
		c.data = r->data;
	}
	return c;
}

static void on_received(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct endpoint *ep = op->ep;
	struct completion c = described(op, r);
	c.buf = op->buf;
	if (r->status == OUTRIGGER_TRUNCATED) {
		c.len = op->room;
		c.olen = r->length - op->room;
	}
	count(ep->received, r->status);
	if (!ep->closing && (op->reports || c.err != 0) && !untold(op->context, r->status))
		cq_put(ep->rx, &c);
	op_free(op);
}

static void keep_claimed(struct endpoint *ep, void *context, bool unwanted, const struct outrigger_result *r)
{
	struct claimed *c = pool_take(&claims);
	if (c == NULL)
		return; /* the claim that follows will say that there is none */
	c->context = context;
	c->unwanted = unwanted;
	c->message = *r;
	list_add(&ep->claimed, &c->node);
	ep->unwanted += unwanted;
}

static void on_peeked(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct endpoint *ep = op->ep;
	uint64_t asked = op->flags;
	op->flags = FI_RECV | FI_TAGGED;
	struct completion c = described(op, r);
	/* One that is to be discarded is kept as well: it is dropped by the next
	 * look, since nothing can be submitted from here. */
	if (r->status == OUTRIGGER_OK && (asked & (FI_CLAIM | FI_DISCARD)) != 0)
		keep_claimed(ep, op->context, (asked & FI_DISCARD) != 0, r);
	if (!ep->closing && !untold(op->context, r->status))
		cq_put(ep->rx, &c);
	op_free(op);
}

static ssize_t peek(struct endpoint *ep, const struct outrigger_envelope *from, void *context, uint64_t flags)
{
	struct op *op = op_new(ep, OP_PEEK, on_peeked, context);
	if (op == NULL)
		return -FI_ENOMEM;
	op->flags = flags;
	unsigned how = OUTRIGGER_NOW | ((flags & (FI_CLAIM | FI_DISCARD)) != 0 ? OUTRIGGER_CLAIM : 0);
	int rc = outrigger_probe(client(), from, how, op->done, op, &op->request);
	if (rc != OUTRIGGER_OK)
		op_free(op);
	return to_errno(rc);
}

/* take_claimed takes the first message that is to be thrown away, or the first of a
 * context that is not: NULL is a context like any other. */
static void on_swept(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	if (r->status == OUTRIGGER_OK) {
		keep_claimed(op->ep, NULL, true, r);
		op->ep->unswept |= 1u << op->space;
	}
	op_free(op);
}

/* sweep takes the oldest message of an endpoint that closes, for which there is no receive
 * and will be none: its sender waits for it, or has lent memory for it. */
void sweep(struct endpoint *ep, enum space space)
{
	struct outrigger_envelope any = {.peer = OUTRIGGER_ANY, .context = context_of(ep->number, space), .ignore = UINT64_MAX};
	struct op *op = op_new(ep, OP_SWEEP, on_swept, NULL);
	if (op == NULL)
		return;
	op->space = space;
	if (outrigger_probe(client(), &any, OUTRIGGER_NOW | OUTRIGGER_CLAIM, on_swept, op, &op->request) != OUTRIGGER_OK)
		op_free(op);
}

static struct claimed *take_claimed(struct endpoint *ep, void *context, bool unwanted)
{
	for (struct node *n = ep->claimed.next; n != &ep->claimed; n = n->next) {
		struct claimed *c = (struct claimed *)n;
		if (c->unwanted == unwanted && (unwanted || c->context == context)) {
			list_remove(n);
			return c;
		}
	}
	return NULL;
}

static struct op *receiver(struct endpoint *ep, const struct iovec *iov, size_t segments, void *context, uint64_t flags)
{
	struct op *op = op_new(ep, OP_RECV, on_received, context);
	if (op == NULL)
		return NULL;
	op->flags = FI_RECV | FI_TAGGED;
	op->reports = !ep->rx_selective || (flags & FI_COMPLETION) != 0;
	op->room = bytes_of(iov, segments);
	op->buf = segments > 0 ? iov[0].iov_base : NULL;
	list_add(by_context(ep->receives, context), &op->receive);
	return op;
}

/* A message that a peek has found, and that is not longer, has come: its receive is a copy. */
#define COME_MAX 65536u
#define COME_NS 1000000u /* at most, for a sidecar that gets no processor */

static void on_claimed(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	if (op->of != NULL)
		*(bool *)op->of = true;
	on_received(op, r);
}

/* await_claimed waits for the end of the receive of a message that has come, which *ended
 * tells: where an MPI has its messages in its own process it is over when it has begun, and
 * programs look once. */
static void await_claimed(struct op *op, const bool *ended)
{
	uint64_t since = nanoseconds();
	while (!*ended && nanoseconds() - since < COME_NS) {
		progress();
		if (!*ended)
			sched_yield();
	}
	if (!*ended)
		op->of = NULL;
}

/* acknowledge sends what Open MPI's synchronous sender waits for, if the message is one. */
static int acknowledge(struct endpoint *ep, struct claimed *c)
{
	uint64_t answer;
	const struct peer *p = NULL;
	if (c->acknowledged || !openmpi_acknowledges(c->message.tag, &answer))
		return OUTRIGGER_OK;
	for (size_t i = 0; p == NULL && ep->av != NULL && i < ep->av->count; i++)
		p = ep->av->list[i].rank == c->message.peer ? &ep->av->list[i] : NULL;
	if (p == NULL)
		return OUTRIGGER_OK; /* a peer without an address has no MPI that waits */
	struct outrigger_envelope to = {.peer = p->rank, .context = context_of(p->endpoint, SPACE_TAGGED), .tag = answer};
	int rc = outrigger_sendv(client(), NULL, 0, &to, OUTRIGGER_MODEST, NULL, NULL, NULL);
	c->acknowledged = rc == OUTRIGGER_OK;
	return rc;
}

/* claim receives, or throws away, the message that a peek with the same context
 * has found. */
static ssize_t claim(struct endpoint *ep, const struct iovec *iov, size_t segments, void *context, uint64_t flags)
{
	struct claimed *c = take_claimed(ep, context, false);
	if (c == NULL)
		return -FI_EINVAL;
	struct op *op = NULL;
	bool ended = false;
	int rc = acknowledge(ep, c);
	if (rc != OUTRIGGER_OK) {
		list_add(&ep->claimed, &c->node);
		return to_errno(rc);
	}
	if ((flags & FI_DISCARD) != 0) {
		rc = outrigger_drop(client(), c->message.handle);
	} else if ((op = receiver(ep, iov, segments, context, flags | FI_COMPLETION)) == NULL) {
		rc = OUTRIGGER_NO_MEMORY;
	} else {
		op->done = on_claimed;
		op->of = &ended;
		rc = outrigger_claim(client(), c->message.handle, iov, (int)segments, op->done, op, &op->request);
	}
	if (rc != OUTRIGGER_OK) { /* it can be claimed again */
		if (op != NULL)
			op_free(op);
		list_add(&ep->claimed, &c->node);
		return to_errno(rc);
	}
	if (op == NULL) {
		struct op gone = {.context = context, .flags = FI_RECV | FI_TAGGED};
		struct completion done = described(&gone, &c->message);
		cq_put(ep->rx, &done);
	}
	bool come = c->message.length <= COME_MAX;
	pool_give(&claims, c);
	if (op != NULL && come)
		await_claimed(op, &ended);
	else if (op != NULL)
		op->of = NULL;
	return 0;
}

static ssize_t recv_locked(struct endpoint *ep, const struct iovec *iov, size_t segments, fi_addr_t source, uint64_t tag, uint64_t ignore,
			   void *context, uint64_t flags)
{
	struct outrigger_envelope from = {.context = context_of(ep->number, SPACE_TAGGED), .tag = tag & ~ignore, .ignore = ignore};
	if (!ep->enabled || segments > IOV_LIMIT || source_of(ep, source, &from.peer) != 0)
		return -FI_EINVAL;
	if (crowded(LEFT_BY_RECEIVES))
		return -FI_EAGAIN;
	if ((flags & FI_PEEK) != 0)
		return peek(ep, &from, context, flags);
	if ((flags & FI_CLAIM) != 0)
		return claim(ep, iov, segments, context, flags);
	struct op *op = receiver(ep, iov, segments, context, flags);
	if (op == NULL)
		return -FI_ENOMEM;
	int rc = outrigger_recvv(client(), iov, (int)segments, &from, op->done, op, &op->request);
	if (rc != OUTRIGGER_OK)
		op_free(op);
	return to_errno(rc);
}

/* discard drops the messages that a peek was to throw away. */
void discard(struct endpoint *ep)
{
	struct claimed *c;
	while (ep->unwanted > 0 && (c = take_claimed(ep, NULL, true)) != NULL) {
		ep->unwanted--;
		(void)outrigger_drop(client(), c->message.handle); /* it ends with the session too */
		pool_give(&claims, c);
	}
}

/* drop_claimed drops those of an endpoint that closes. */
void drop_claimed(struct endpoint *ep)
{
	while (!list_empty(&ep->claimed)) {
		struct claimed *c = (struct claimed *)ep->claimed.next;
		if (client() != NULL)
			(void)outrigger_drop(client(), c->message.handle); /* as in discard */
		list_remove(&c->node);
		pool_give(&claims, c);
	}
	ep->unwanted = 0;
}

static ssize_t start_recv(struct fid_ep *fid, const struct iovec *iov, size_t segments, fi_addr_t source, uint64_t tag, uint64_t ignore,
			  void *context, uint64_t flags)
{
	struct endpoint *ep = endpoint(fid);
	lock();
	ssize_t rc = recv_locked(ep, iov, segments, source, tag, ignore, context, flags);
	if (rc == -FI_EAGAIN)
		progress();
	end_of_start(rc);
	return rc;
}

ssize_t cancel(struct endpoint *ep, void *context)
{
	if (cancel_untagged(ep, context))
		return 0;
	/* The newest first: an MPI cancels what it has just posted. Each once: others may have
	 * the same context. */
	struct node *all = by_context(ep->receives, context);
	for (struct node *n = all->prev; n != all; n = n->prev) {
		struct op *op = (struct op *)((char *)n - offsetof(struct op, receive));
		if (op->context == context) {
			list_remove(n);
			return to_errno(outrigger_cancel(client(), op->request));
		}
	}
	return -FI_ENOENT;
}

/* libfabric's calls. desc is for memory registrations, which nothing here needs. */

static ssize_t t_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t tag, uint64_t ignore, void *context)
{
	struct iovec v = {buf, len};
	(void)desc;
	return start_recv(ep, &v, 1, source, tag, ignore, context, endpoint(ep)->rx_flags);
}

static ssize_t t_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t segments, fi_addr_t source, uint64_t tag, uint64_t ignore, void *context)
{
	(void)desc;
	return start_recv(ep, iov, segments, source, tag, ignore, context, endpoint(ep)->rx_flags);
}

static ssize_t t_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	return start_recv(ep, m->msg_iov, m->iov_count, m->addr, m->tag, m->ignore, m->context, flags);
}

static ssize_t post(struct fid_ep *ep, const struct iovec *iov, size_t segments, fi_addr_t to, uint64_t tag, uint64_t data, void *context, uint64_t extra, enum space space)
{
	struct outgoing o = {iov, segments, to, tag, data, context, endpoint(ep)->tx_flags | extra, space, false};
	return start_send(ep, &o);
}

static ssize_t throw(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t tag, uint64_t data, uint64_t flags, enum space space)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	struct outgoing o = {&v, 1, to, tag, data, NULL, flags, space, true};
	return len > INJECT_MAX ? -FI_EINVAL : start_send(ep, &o);
}

static ssize_t t_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t tag, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return post(ep, &v, 1, to, tag, 0, context, 0, SPACE_TAGGED);
}

static ssize_t t_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t segments, fi_addr_t to, uint64_t tag, void *context)
{
	(void)desc;
	return post(ep, iov, segments, to, tag, 0, context, 0, SPACE_TAGGED);
}

static ssize_t t_sendmsg(struct fid_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	struct outgoing o = {m->msg_iov, m->iov_count, m->addr, m->tag, m->data, m->context, flags, SPACE_TAGGED, false};
	return start_send(ep, &o);
}

static ssize_t t_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t tag)
{
	return throw(ep, buf, len, to, tag, 0, 0, SPACE_TAGGED);
}

static ssize_t t_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t tag, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return post(ep, &v, 1, to, tag, data, context, FI_REMOTE_CQ_DATA, SPACE_TAGGED);
}

static ssize_t t_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t tag)
{
	return throw(ep, buf, len, to, tag, data, FI_REMOTE_CQ_DATA, SPACE_TAGGED);
}

struct fi_ops_tagged tagged_ops = {
	.size = sizeof tagged_ops, .recv = t_recv, .recvv = t_recvv, .recvmsg = t_recvmsg, .send = t_send, .sendv = t_sendv, .sendmsg = t_sendmsg,
	.inject = t_inject, .senddata = t_senddata, .injectdata = t_injectdata,
};

static ssize_t start_untagged(struct fid_ep *fid, const struct iovec *iov, size_t segments, fi_addr_t source, void *context, uint64_t flags)
{
	struct endpoint *ep = endpoint(fid);
	lock();
	ssize_t rc = post_untagged(ep, iov, segments, source, context, flags);
	end_of_start(rc);
	return rc;
}

static ssize_t m_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source, void *context)
{
	struct iovec v = {buf, len};
	(void)desc;
	return start_untagged(ep, &v, 1, source, context, endpoint(ep)->rx_flags);
}

static ssize_t m_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t segments, fi_addr_t source, void *context)
{
	(void)desc;
	return start_untagged(ep, iov, segments, source, context, endpoint(ep)->rx_flags);
}

static ssize_t m_recvmsg(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags)
{
	return start_untagged(ep, m->msg_iov, m->iov_count, m->addr, m->context, flags);
}

static ssize_t m_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return post(ep, &v, 1, to, 0, 0, context, 0, SPACE_MSG);
}

static ssize_t m_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t segments, fi_addr_t to, void *context)
{
	(void)desc;
	return post(ep, iov, segments, to, 0, 0, context, 0, SPACE_MSG);
}

static ssize_t m_sendmsg(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags)
{
	struct outgoing o = {m->msg_iov, m->iov_count, m->addr, 0, m->data, m->context, flags, SPACE_MSG, false};
	return start_send(ep, &o);
}

static ssize_t m_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to) { return throw(ep, buf, len, to, 0, 0, 0, SPACE_MSG); }

static ssize_t m_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return post(ep, &v, 1, to, 0, data, context, FI_REMOTE_CQ_DATA, SPACE_MSG);
}

static ssize_t m_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	return throw(ep, buf, len, to, 0, data, FI_REMOTE_CQ_DATA, SPACE_MSG);
}

struct fi_ops_msg msg_ops = {
	.size = sizeof msg_ops, .recv = m_recv, .recvv = m_recvv, .recvmsg = m_recvmsg, .send = m_send, .sendv = m_sendv, .sendmsg = m_sendmsg,
	.inject = m_inject, .senddata = m_senddata, .injectdata = m_injectdata,
};
