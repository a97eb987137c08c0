/* Sends, tagged receives, peeks and claims, and libfabric's calls for them (fi_tagged(3),
 * fi_msg(3)). Untagged receives are in untagged.c. */

#include <sched.h>

#include "rxqueue.h"
#include "openmpi.h"

static struct pool claims = {.bytes = sizeof(struct claimed)};

static struct endpoint *endpoint(struct fid_ep *fid) { return (struct endpoint *)fid; }

/* The arguments of any call that sends. */
struct outgoing {
	const struct iovec *iov;
	size_t segments;
	fi_addr_t to;
	uint64_t tag, data;
	void *context;
	uint64_t flags;
	enum space space;
	bool inject; /* the operation writes no completion and has no context */
};

/* The first of two requests that one call submits. While the call submits the second one, the
 * client may complete the first. */
struct first_request {
	bool ended;
	struct outrigger_result result;
};

static void on_sent(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct endpoint *ep = op->ep;
	if (op->first != NULL) {
		*op->first = (struct first_request){true, *r};
		return;
	}
	if (op->abandoned) {
		op_free(op);
		return;
	}
	count(ep->sent, r->status);
	if (!ep->closing && (op->reports || r->status != OUTRIGGER_OK) && !unreportable(op->context, r->status))
		cq_put(ep->tx, &(struct completion){.context = op->context, .flags = op->flags, .err = -to_errno(r->status), .status = r->status});
	op_free(op);
}

/* Small messages from this process to itself. Programs expect them to be there after a few polls,
 * because an MPI that delivers such messages within the process has delivered them when the send
 * returns. Therefore an empty poll waits until all of them have arrived: the completion of such a
 * send follows the completions that its arrival causes (LAYOUT §5). The wait is bounded by
 * SELF_NS, for a sidecar that gets no CPU time or has no room for more messages; after a wait that
 * was too long, no poll waits until all have arrived. */
#define SELF_NS UINT64_C(20000000)
static unsigned to_self; /* number of messages of this process to itself that are in flight */
static bool self_wait_failed; /* a wait was too long */

static void on_sent_self(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	to_self--;
	self_wait_failed = self_wait_failed && to_self > 0;
	if (op->silent)
		op_free(op);
	else
		on_sent(op, r);
}

/* awaits_self reports whether an empty poll waits for messages from this process to itself. */
bool awaits_self(void) { return to_self > 0 && !self_wait_failed; }

/* await_self waits until messages from this process to itself have arrived, or found has counted
 * something. It reports false if there are none or the last wait was too long. */
bool await_self(const size_t *found)
{
	if (!awaits_self())
		return false;
	uint64_t since = nanoseconds();
	while (awaits_self() && *found == 0 && !sidecar_ended) {
		unlock();
		sched_yield();
		lock();
		progress();
		if (to_self > 0 && nanoseconds() - since > SELF_NS)
			self_wait_failed = true; /* until all have arrived */
	}
	return true;
}

/* is_small_to_self reports whether a message is a small one from this process to itself whose send
 * completes when it has arrived. */
static bool is_small_to_self(const struct outgoing *o, const struct peer *p)
{
	return p->rank == outrigger_world(client()).rank && bytes_of(o->iov, o->segments) <= INJECT_MAX &&
	       (o->flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) == 0;
}

/* needs_no_completion reports whether a small message needs no completion, neither in a queue nor in a counter,
 * and can be sent without a request. */
static bool needs_no_completion(const struct endpoint *ep, const struct outgoing *o, bool reports)
{
	return !reports && ep->sent == NULL && (o->inject || bytes_of(o->iov, o->segments) <= INJECT_MAX);
}

/* send_bulk sends an untagged message that does not fit into an eager message as a bulk message,
 * and then the eager message that announces it and determines its order. */
static int send_bulk(struct op *op, const struct outgoing *o, struct outrigger_envelope to, unsigned flags)
{
	static uint64_t messages;
	uint64_t length = bytes_of(o->iov, o->segments);
	struct iovec announcement = {&length, sizeof length};
	outrigger_request request;
	struct first_request b = {0};
	op->first = &b;
	to.tag = ++messages | TAG_BULK;
	int rc = outrigger_sendv(client(), o->iov, (int)o->segments, &to, flags, op->done, op, &request);
	if (rc != OUTRIGGER_OK) {
		op_free(op);
		return rc;
	}
	to.tag &= ~TAG_BULK;
	rc = outrigger_sendv(client(), &announcement, 1, &to, 0, NULL, NULL, NULL);
	op->first = NULL;
	op->abandoned = rc != OUTRIGGER_OK;
	if (b.ended)
		on_sent(op, &b.result);
	else if (op->abandoned) /* no peer receives a bulk message that is not announced */
		(void)outrigger_cancel(client(), request); /* if it fails, the session has ended */
	return rc;
}

/* A blocking send of Open MPI waits for its completion in a loop that neither yields nor waits for its
 * turn. If several threads do that, they take the processors from the sidecars, which end the wait.
 * Therefore such a send is copied and completes at once, up to COPIED_EACH bytes, as long as all
 * copies that the sidecar has not sent yet have at most COPIED_MAX. MPI allows that (MPI 4.1, 3.4). */
#define COPIED_EACH (UINT64_C(1) << 20)
#define COPIED_MAX (UINT64_C(8) << 20)

static uint64_t copied; /* bytes of the copies that the sidecar has not sent yet */

/* on_copy_sent ends a copied send, which was reported already unless op->reports is set. */
static void on_copy_sent(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	copied -= op->room;
	if (op->reports)
		on_sent(op, r);
	else
		op_free(op);
}

/* The context of a blocking send is in the frame of a caller of this call. */
#define FRAMES_BYTES 65536u

static bool is_blocking(const void *context)
{
	return (uintptr_t)context - (uintptr_t)__builtin_frame_address(0) < FRAMES_BYTES;
}

/* may_copy reports whether a send is copied and completes at once. */
static bool may_copy(const struct outgoing *o, uint64_t bytes)
{
	bool plain = o->space == SPACE_TAGGED && (o->flags & (FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) == 0;
	return plain && bytes <= COPIED_EACH && bytes <= COPIED_MAX - copied && is_blocking(o->context) && threads_of_openmpi();
}

/* send_copy sends a copy of a message and completes the send, if the sidecar has all of the copy. The
 * rest of a longer one moves by later calls of this process, which may compute for hours before. */
static int send_copy(struct endpoint *ep, const struct outgoing *o, const struct outrigger_envelope *to, unsigned flags, uint64_t bytes)
{
	struct op *op = op_new(ep, OP_SEND, on_copy_sent, o->context);
	if (op == NULL)
		return OUTRIGGER_NO_MEMORY;
	op->flags = FI_SEND | FI_TAGGED;
	op->room = bytes;
	copied += bytes;
	int rc = outrigger_sendv(client(), o->iov, (int)o->segments, to, flags | OUTRIGGER_COPY, op->done, op, &op->request);
	if (rc != OUTRIGGER_OK) {
		copied -= bytes;
		op_free(op);
		return rc;
	}
	op->reports = !outrigger_taken(client(), op->request);
	if (op->reports)
		return rc;
	count(ep->sent, rc);
	cq_put(ep->tx, &(struct completion){.context = o->context, .flags = op->flags});
	return rc;
}

/* send_locked sends a message. Without a completion to report, it needs no request of the client. */
static ssize_t send_locked(struct endpoint *ep, const struct outgoing *o)
{
	struct peer p;
	if (!ep->enabled || !av_find(ep->av, o->to, &p) || o->segments > IOV_LIMIT)
		return -FI_EINVAL;
	struct outrigger_envelope to = {.peer = p.rank, .context = context_of(p.endpoint, o->space), .tag = o->tag, .data = (uint32_t)o->data};
	unsigned flags = OUTRIGGER_MODEST | ((o->flags & FI_REMOTE_CQ_DATA) != 0 ? OUTRIGGER_DATA : 0);
	bool reports = !o->inject && (!ep->tx_selective || (o->flags & FI_COMPLETION) != 0);
	bool quiet = needs_no_completion(ep, o, reports), own = is_small_to_self(o, &p);
	if (quiet && !own)
		return to_errno(outrigger_sendv(client(), o->iov, (int)o->segments, &to, flags, NULL, NULL, NULL));
	uint64_t bytes = bytes_of(o->iov, o->segments);
	if (reports && !own && may_copy(o, bytes))
		return to_errno(send_copy(ep, o, &to, flags, bytes));
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
	if ((o->flags & FI_MATCH_COMPLETE) != 0 && o->space == SPACE_TAGGED) /* an untagged message is matched by the provider, and not by the sidecar */
		flags |= OUTRIGGER_SYNC;
	if (o->space == SPACE_MSG && bytes > EAGER_MAX)
		return to_errno(send_bulk(op, o, to, flags));
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
	await_room();
	ssize_t rc = send_locked(endpoint(fid), o);
	if (rc == -FI_EAGAIN)
		progress(); /* completions free requests */
	end_start(rc);
	return rc;
}

/* completion_of returns the completion of a receive or peek. */
static struct completion completion_of(const struct op *op, const struct outrigger_result *r)
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
	struct completion c = completion_of(op, r);
	c.buf = op->buf;
	if (r->status == OUTRIGGER_TRUNCATED) {
		c.len = op->room;
		c.olen = r->length - op->room;
	}
	count(ep->received, r->status);
	if (!ep->closing && (op->reports || c.err != 0) && !unreportable(op->context, r->status))
		cq_put(ep->rx, &c);
	op_free(op);
}

/* record_claimed records a claimed message, for fi_trecv with FI_CLAIM or to be dropped. */
static void record_claimed(struct endpoint *ep, void *context, bool unwanted, const struct outrigger_result *r)
{
	struct claimed *c = pool_take(&claims);
	if (c == NULL)
		return; /* the program's claim will fail with FI_EINVAL */
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
	struct completion c = completion_of(op, r);
	/* A message to be discarded is recorded, too: a callback cannot submit, so the next poll drops
	 * it. */
	if (r->status == OUTRIGGER_OK && (asked & (FI_CLAIM | FI_DISCARD)) != 0)
		record_claimed(ep, op->context, (asked & FI_DISCARD) != 0, r);
	if (!ep->closing && !unreportable(op->context, r->status))
		cq_put(ep->rx, &c);
	op_free(op);
}

/* peek probes for a message (FI_PEEK), and claims it if the flags say so. */
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

static void on_swept(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	if (r->status == OUTRIGGER_OK) {
		record_claimed(op->ep, NULL, true, r);
		op->ep->unswept |= 1u << op->space;
	}
	op_free(op);
}

/* sweep claims the oldest message in a context of an endpoint that closes. No receive will match it,
 * and its sender may wait for it or have lent memory for it. */
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

/* remove_claimed removes and returns the first message to be dropped, or the first one with a context
 * that is not to be dropped. NULL is a valid context. */
static struct claimed *remove_claimed(struct endpoint *ep, void *context, bool unwanted)
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

/* new_receive returns a request for a tagged receive. */
static struct op *new_receive(struct endpoint *ep, const struct iovec *iov, size_t segments, void *context, uint64_t flags)
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

/* A message up to this size that a peek has found has arrived completely: its receive only copies
 * it. */
#define ARRIVED_MAX 65536u
#define ARRIVED_WAIT_NS 1000000u /* the longest wait for that copy, for a sidecar that gets no CPU time */

static void on_claimed(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	if (op->of != NULL)
		*(bool *)op->of = true;
	on_received(op, r);
}

/* await_claimed waits until the receive of a message that has arrived completes, which sets *ended.
 * Programs expect one poll to find it, because in an MPI that has messages in its own process such
 * a receive completes at once. Other threads poll meanwhile. */
static void await_claimed(struct op *op, const bool *ended)
{
	uint64_t since = nanoseconds();
	while (!*ended && nanoseconds() - since < ARRIVED_WAIT_NS) {
		progress();
		if (*ended)
			break;
		unlock();
		sched_yield();
		lock();
	}
	if (!*ended)
		op->of = NULL;
}

/* acknowledge sends the acknowledgement that Open MPI's sender waits for, if the message is one of a
 * synchronous send. */
static int acknowledge(struct endpoint *ep, struct claimed *c)
{
	uint64_t answer;
	const struct peer *p = NULL;
	if (c->acknowledged || !openmpi_acknowledges(c->message.tag, &answer))
		return OUTRIGGER_OK;
	for (size_t i = 0; p == NULL && ep->av != NULL && i < ep->av->count; i++)
		p = ep->av->list[i].rank == c->message.peer ? &ep->av->list[i] : NULL;
	if (p == NULL)
		return OUTRIGGER_OK; /* a peer without an address is no process of this MPI */
	struct outrigger_envelope to = {.peer = p->rank, .context = context_of(p->endpoint, SPACE_TAGGED), .tag = answer};
	int rc = outrigger_sendv(client(), NULL, 0, &to, OUTRIGGER_MODEST, NULL, NULL, NULL);
	c->acknowledged = rc == OUTRIGGER_OK;
	return rc;
}

/* claim receives or drops the message that a peek with the same context has claimed. */
static ssize_t claim(struct endpoint *ep, const struct iovec *iov, size_t segments, void *context, uint64_t flags)
{
	struct claimed *c = remove_claimed(ep, context, false);
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
	} else if ((op = new_receive(ep, iov, segments, context, flags | FI_COMPLETION)) == NULL) {
		rc = OUTRIGGER_NO_MEMORY;
	} else {
		op->done = on_claimed;
		op->of = &ended;
		rc = outrigger_claim(client(), c->message.handle, iov, (int)segments, op->done, op, &op->request);
	}
	if (rc != OUTRIGGER_OK) { /* the program may try again */
		if (op != NULL)
			op_free(op);
		list_add(&ep->claimed, &c->node);
		return to_errno(rc);
	}
	if (op == NULL) {
		struct op gone = {.context = context, .flags = FI_RECV | FI_TAGGED};
		struct completion done = completion_of(&gone, &c->message);
		cq_put(ep->rx, &done);
	}
	bool arrived = c->message.length <= ARRIVED_MAX;
	pool_give(&claims, c);
	if (op != NULL && arrived)
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
	if (requests_below(LEFT_BY_RECEIVES))
		return -FI_EAGAIN;
	if ((flags & FI_PEEK) != 0)
		return peek(ep, &from, context, flags);
	if ((flags & FI_CLAIM) != 0)
		return claim(ep, iov, segments, context, flags);
	struct op *op = new_receive(ep, iov, segments, context, flags);
	if (op == NULL)
		return -FI_ENOMEM;
	int rc = outrigger_recvv(client(), iov, (int)segments, &from, op->done, op, &op->request);
	if (rc != OUTRIGGER_OK)
		op_free(op);
	return to_errno(rc);
}

/* discard drops the messages that peeks with FI_DISCARD have found. */
void discard(struct endpoint *ep)
{
	struct claimed *c;
	while (ep->unwanted > 0 && !ring_full() && (c = remove_claimed(ep, NULL, true)) != NULL) {
		ep->unwanted--;
		(void)outrigger_drop(client(), c->message.handle); /* if it fails, the session has ended */
		pool_give(&claims, c);
	}
}

/* drop_claimed drops all claimed messages of an endpoint that closes. */
void drop_claimed(struct endpoint *ep)
{
	for (await_room(); !list_empty(&ep->claimed); await_room()) {
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
	await_room();
	ssize_t rc = recv_locked(ep, iov, segments, source, tag, ignore, context, flags);
	if (rc == -FI_EAGAIN)
		progress();
	end_start(rc);
	return rc;
}

/* cancel cancels a receive by its context. */
ssize_t cancel(struct endpoint *ep, void *context)
{
	if (cancel_untagged(ep, context))
		return 0;
	/* The newest receive first: an MPI cancels a receive that it has just posted. Each receive is
	 * cancelled once: a second call cancels another one with the same context. */
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

/* libfabric's calls. desc names a memory registration, which this provider does not need. */

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

static ssize_t inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t tag, uint64_t data, uint64_t flags, enum space space)
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
	return inject(ep, buf, len, to, tag, 0, 0, SPACE_TAGGED);
}

static ssize_t t_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t tag, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return post(ep, &v, 1, to, tag, data, context, FI_REMOTE_CQ_DATA, SPACE_TAGGED);
}

static ssize_t t_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t tag)
{
	return inject(ep, buf, len, to, tag, data, FI_REMOTE_CQ_DATA, SPACE_TAGGED);
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
	end_start(rc);
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

static ssize_t m_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to) { return inject(ep, buf, len, to, 0, 0, 0, SPACE_MSG); }

static ssize_t m_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return post(ep, &v, 1, to, 0, data, context, FI_REMOTE_CQ_DATA, SPACE_MSG);
}

static ssize_t m_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	return inject(ep, buf, len, to, 0, data, FI_REMOTE_CQ_DATA, SPACE_MSG);
}

struct fi_ops_msg msg_ops = {
	.size = sizeof msg_ops, .recv = m_recv, .recvv = m_recvv, .recvmsg = m_recvmsg, .send = m_send, .sendv = m_sendv, .sendmsg = m_sendmsg,
	.inject = m_inject, .senddata = m_senddata, .injectdata = m_injectdata,
};
