/*
 * Untagged messages. One buffer may receive many of them one behind the other (FI_MULTI_RECV).
 * The engine's matching does not have that, because the position of a message in the buffer
 * depends on the lengths of those before it. Therefore the provider receives eager messages
 * (rxqueue.c): a short message is copied from there into a buffer, and for a long one the eager
 * message has the length of a bulk message, which is then received into the buffer. If there is
 * no buffer for the source of a message, but there are buffers for other sources, the message is
 * deferred until there is one, so that it does not delay messages of other sources.
 */
#include <stdlib.h>
#include <string.h>

#include "rxqueue.h"

#define ALIGN 16u /* alignment of messages in a multi-receive buffer */
#define DEFERRED_MAX QUEUE_SIZE /* the most deferred messages, which bounds memory; one more blocks all behind it */

static struct pool buffers = {.bytes = sizeof(struct posted)};

static struct posted *posted_of(struct node *n) { return (struct posted *)n; }

/* unpost removes a buffer from the buffers that receive messages. */
static void unpost(struct posted *p)
{
	list_remove(&p->node);
	list_remove(&p->receive);
}

/* The length of the message that an eager message carries or announces. */
struct envelope {
	uint64_t length;
	bool bulk; /* the message announces a bulk message */
};

/* decode_eager decodes an eager message. false: its receive has failed, or it is malformed. */
static bool decode_eager(const struct eager *m, struct envelope *e)
{
	e->bulk = m->message.tag != 0;
	e->length = e->bulk ? m->length : m->message.length;
	return m->message.status == OUTRIGGER_OK && (!e->bulk || m->message.length == sizeof m->length);
}

/* retire ends a buffer: it receives no more messages. The completion of its last message has
 * FI_MULTI_RECV; if none is in flight, retire writes a completion of its own. */
static void retire(struct endpoint *ep, struct posted *p)
{
	if (!p->retired)
		unpost(p);
	p->retired = true;
	if (p->in_flight > 0)
		return;
	if (p->multi)
		cq_put(ep->rx, &(struct completion){.context = p->context, .flags = FI_MULTI_RECV});
	pool_give(&buffers, p);
}

/* delivered completes a message that was received into a buffer, and perhaps truncated. */
static void delivered(struct endpoint *ep, struct posted *p, struct completion *c, size_t room)
{
	if (c->status == OUTRIGGER_TRUNCATED) {
		c->olen = c->len - room;
		c->len = room;
	}
	count(ep->received, c->status);
	bool last = p->retired && p->in_flight == 0;
	if (last && p->multi)
		c->flags |= FI_MULTI_RECV;
	if (!ep->closing && (p->reports || c->err != 0 || (c->flags & FI_MULTI_RECV) != 0) && !unreportable(p->context, c->status))
		cq_put(ep->rx, c);
	if (last)
		pool_give(&buffers, p);
}

/* completion_of returns the completion of a message. */
static struct completion completion_of(const struct posted *p, void *buf, const struct outrigger_result *r, int status)
{
	struct completion c = {.context = p->context, .buf = buf, .flags = FI_RECV | FI_MSG, .len = r->length, .status = status, .err = -to_errno(status)};
	if (r->has_data) {
		c.flags |= FI_REMOTE_CQ_DATA;
		c.data = r->data;
	}
	return c;
}

static void on_delivered(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct posted *p = op->posted;
	struct completion c = completion_of(p, op->buf, r, r->status);
	p->in_flight--;
	delivered(op->ep, p, &c, op->room);
	op_free(op);
}

/* find returns the first buffer for a message, or NULL. It retires multi-receive buffers into which
 * the message does not fit. */
static struct posted *find(struct endpoint *ep, uint32_t source, uint64_t length)
{
	for (struct node *n = ep->posted.next, *next; n != &ep->posted; n = next) {
		struct posted *p = posted_of(n);
		next = n->next;
		if (p->from != OUTRIGGER_ANY && p->from != source)
			continue;
		if (!p->multi || p->room - p->used >= length || p->used == 0)
			return p;
		retire(ep, p);
	}
	return NULL;
}

/* consume advances the position in a buffer by a message, and retires the buffer if it is used up. The
 * buffer must have so many free bytes. */
static void consume(struct endpoint *ep, struct posted *p, size_t length)
{
	size_t used = p->used + length;
	used = (used + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	p->used = used < p->room ? used : p->room;
	if (!p->multi || p->room - p->used < ep->min_multi)
		retire(ep, p);
}

/* copy_out copies an eager message to segments. */
static void copy_out(const struct eager *m, const struct iovec *iov, int segments)
{
	size_t done = 0, length = (size_t)m->message.length;
	for (int i = 0; i < segments && done < length; i++) {
		size_t n = iov[i].iov_len < length - done ? iov[i].iov_len : length - done;
		if (n > 0)
			memcpy(iov[i].iov_base, m->bytes + done, n);
		done += n;
	}
}

/* deliver receives a message into a buffer. false: there is no request, memory or room in the ring
 * for a bulk message. */
static bool deliver(struct endpoint *ep, struct posted *p, const struct eager *m, const struct envelope *e)
{
	if (e->bulk && ring_full())
		return false;
	/* In a multi-receive buffer the message gets as many bytes as the eager message announces,
	 * however long the bulk message is: the next message lies behind them. */
	size_t left = p->room - p->used;
	struct iovec one = {(char *)p->iov[0].iov_base + p->used, e->length < left ? (size_t)e->length : left};
	const struct iovec *iov = p->multi ? &one : p->iov;
	int segments = p->multi ? 1 : p->segments;
	size_t room = p->multi ? one.iov_len : p->room;
	void *buf = segments > 0 ? iov[0].iov_base : NULL;
	p->in_flight++;
	if (!e->bulk) {
		copy_out(m, iov, segments);
		struct completion c = completion_of(p, buf, &m->message, e->length > room ? OUTRIGGER_TRUNCATED : OUTRIGGER_OK);
		consume(ep, p, one.iov_len);
		p->in_flight--;
		delivered(ep, p, &c, room);
		return true;
	}
	struct op *op = op_new(ep, OP_UNTAGGED, on_delivered, p->context);
	if (op != NULL) {
		struct outrigger_envelope from = {.peer = m->message.peer, .context = context_of(ep->number, SPACE_MSG), .tag = m->message.tag | TAG_BULK};
		op->posted = p;
		op->buf = buf;
		op->room = room;
		if (outrigger_recvv(client(), iov, segments, &from, op->done, op, &op->request) == OUTRIGGER_OK) {
			consume(ep, p, one.iov_len);
			return true;
		}
		op_free(op);
	}
	p->in_flight--;
	return false;
}

/* fail_untagged completes all buffers with an error: no more messages arrive. */
void fail_untagged(struct endpoint *ep, int status)
{
	while (!list_empty(&ep->posted)) {
		struct posted *p = posted_of(ep->posted.next);
		if (p->in_flight > 0) {
			retire(ep, p); /* its last message completes it, with the same error */
			continue;
		}
		struct completion c = completion_of(p, NULL, &(struct outrigger_result){.status = status}, status);
		unpost(p);
		p->retired = true;
		delivered(ep, p, &c, 0);
	}
}

/* job_failed reports whether the receive of an eager message has failed because the job has. */
static bool job_failed(const struct eager *m) { return m->message.status == OUTRIGGER_ABORTED || m->message.status == OUTRIGGER_PEER_FAILED; }

/* defer_message defers a message. false: it stays in the queue. */
static bool defer_message(struct endpoint *ep, const struct eager *m)
{
	struct eager *copy = ep->deferred_count < DEFERRED_MAX ? rx_copy(m) : NULL;
	if (copy == NULL)
		return false;
	list_add(&ep->deferred, &copy->node);
	ep->deferred_count++;
	return true;
}

/* free_deferred frees a deferred message. */
static void free_deferred(struct endpoint *ep, struct eager *m)
{
	list_remove(&m->node);
	ep->deferred_count--;
	free(m);
}

/* mark_deferred marks the deferred messages that a new buffer can receive. */
static void mark_deferred(struct endpoint *ep, const struct posted *p)
{
	for (struct node *n = ep->deferred.next; n != &ep->deferred; n = n->next) {
		struct eager *m = (struct eager *)n;
		m->retry = m->retry || p->from == OUTRIGGER_ANY || p->from == m->message.peer;
		ep->retry_deferred = ep->retry_deferred || m->retry;
	}
}

/* receive_deferred receives marked messages into buffers, the oldest first. false: it must be called
 * again before later messages are handled. */
static bool receive_deferred(struct endpoint *ep)
{
	for (struct node *n = ep->deferred.next, *next; ep->retry_deferred && n != &ep->deferred; n = next) {
		struct eager *m = (struct eager *)n;
		struct envelope e;
		next = n->next;
		if (!m->retry)
			continue;
		(void)decode_eager(m, &e); /* it was decoded before it was deferred */
		struct posted *p = find(ep, m->message.peer, e.length);
		m->retry = p != NULL;
		if (p == NULL)
			continue;
		if (!deliver(ep, p, m, &e))
			return false;
		free_deferred(ep, m);
	}
	ep->retry_deferred = false;
	return true;
}

/* receive_into_new receives deferred messages into a buffer that was just posted. No other buffer is for
 * them, unless some are marked already. */
static void receive_into_new(struct endpoint *ep, struct posted *p)
{
	if (ep->retry_deferred) {
		mark_deferred(ep, p);
		return;
	}
	for (struct node *n = ep->deferred.next, *next; n != &ep->deferred; n = next) {
		struct eager *m = (struct eager *)n;
		struct envelope e;
		next = n->next;
		if (p->from != OUTRIGGER_ANY && p->from != m->message.peer)
			continue;
		(void)decode_eager(m, &e); /* it was decoded before it was deferred */
		if (p->multi && p->used > 0 && p->room - p->used < e.length) {
			retire(ep, p);
			return;
		}
		if (!deliver(ep, p, m, &e)) {
			mark_deferred(ep, p);
			return;
		}
		free_deferred(ep, m);
		if (ep->posted.prev != &p->node)
			return; /* the buffer is used up */
	}
}

/* serve_untagged receives the messages that have arrived into buffers, as long as there are any. */
void serve_untagged(struct endpoint *ep)
{
	struct eager *m;
	while (!ep->closing && !sidecar_ended && !list_empty(&ep->posted) && receive_deferred(ep) && (m = rx_first(ep, &ep->untagged)) != NULL) {
		struct envelope e;
		if (decode_eager(m, &e)) { /* otherwise its sender is no provider of this kind, or the receive has failed */
			struct posted *p = find(ep, m->message.peer, e.length);
			bool handled = p != NULL ? deliver(ep, p, m, &e) : !list_empty(&ep->posted) && defer_message(ep, m);
			if (!handled)
				return;
		} else if (job_failed(m)) {
			fail_untagged(ep, m->message.status);
		}
		rx_repost(m);
	}
}

/* untagged_served reports whether serve_untagged has nothing to do until the client has a completion. */
bool untagged_served(const struct endpoint *ep)
{
	return list_empty(&ep->posted) || (!ep->retry_deferred && rx_waits(&ep->untagged));
}

/* post_untagged posts a buffer. */
ssize_t post_untagged(struct endpoint *ep, const struct iovec *iov, size_t segments, fi_addr_t from, void *context, uint64_t flags)
{
	bool multi = (flags & FI_MULTI_RECV) != 0;
	if (!ep->enabled || segments > IOV_LIMIT || (multi && segments != 1) || (flags & (FI_PEEK | FI_CLAIM)) != 0)
		return -FI_EINVAL;
	if (sidecar_ended)
		return to_errno(OUTRIGGER_NO_SIDECAR);
	struct posted *p = pool_take(&buffers);
	if (p == NULL)
		return -FI_ENOMEM;
	if (source_of(ep, from, &p->from) != 0) {
		pool_give(&buffers, p);
		return -FI_EINVAL;
	}
	p->context = context;
	p->multi = multi;
	p->reports = !ep->rx_selective || (flags & FI_COMPLETION) != 0;
	p->segments = (int)segments;
	for (size_t i = 0; i < segments; i++) {
		p->iov[i] = iov[i];
		p->room += iov[i].iov_len;
	}
	list_add(&ep->posted, &p->node);
	list_add(by_context(ep->buffers, context), &p->receive);
	receive_into_new(ep, p);
	serve_untagged(ep);
	return 0;
}

/* cancel_untagged cancels the oldest buffer with a context. false: there is none. */
bool cancel_untagged(struct endpoint *ep, void *context)
{
	struct node *all = by_context(ep->buffers, context);
	for (struct node *n = all->next; n != all; n = n->next) {
		struct posted *p = (struct posted *)((char *)n - offsetof(struct posted, receive));
		if (p->context != context)
			continue;
		if (p->in_flight > 0) {
			retire(ep, p); /* its last message completes it */
			return true;
		}
		cq_put(ep->rx, &(struct completion){.context = context, .flags = FI_RECV | FI_MSG, .err = FI_ECANCELED, .status = OUTRIGGER_CANCELLED});
		count(ep->received, OUTRIGGER_CANCELLED);
		unpost(p);
		pool_give(&buffers, p);
		return true;
	}
	return false;
}

/* drop_untagged frees the messages and buffers of an endpoint that closes. */
void drop_untagged(struct endpoint *ep)
{
	rx_close(&ep->untagged);
	while (!list_empty(&ep->deferred))
		free_deferred(ep, (struct eager *)ep->deferred.next);
	while (!list_empty(&ep->posted)) {
		struct posted *p = posted_of(ep->posted.next);
		unpost(p);
		p->multi = false; /* its end is not reported */
		p->retired = true;
		if (p->in_flight == 0)
			pool_give(&buffers, p);
	}
}
