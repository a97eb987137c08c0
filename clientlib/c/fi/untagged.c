/*
 * Untagged messages. One buffer takes many of them (FI_MULTI_RECV), one after the
 * other, which the engine's matching does not know: where a message goes is known
 * when its length is. So they come as letters (inbox.c), of which short ones are
 * copied into place. A long one's letter says how long the message is that is
 * then received into its place. A letter of a source for which there is no buffer, while
 * there is one for others, is laid aside until there is: it does not hold up theirs.
 */
#include <stdlib.h>
#include <string.h>

#include "inbox.h"

#define ALIGN 16u /* of a message in a buffer for many */
#define ASIDE_MAX QUEUE_SIZE /* letters that are laid aside; one more waits, with all behind it */

static struct pool buffers = {.bytes = sizeof(struct posted)};

static struct posted *posted_of(struct node *n) { return (struct posted *)n; }

/* unpost takes a buffer out of those that take messages. */
static void unpost(struct posted *p)
{
	list_remove(&p->node);
	list_remove(&p->receive);
}

/* What a letter is about. */
struct envelope {
	uint64_t length;
	bool bulk; /* the message travels beside the letter */
};

static bool open_letter(const struct letter *l, struct envelope *e)
{
	e->bulk = l->message.tag != 0;
	e->length = e->bulk ? l->length : l->message.length;
	return l->message.status == OUTRIGGER_OK && (!e->bulk || l->message.length == sizeof l->length);
}

/* retire ends a buffer that takes no more messages; the last message in it says
 * so, or nobody else will. */
static void retire(struct endpoint *ep, struct posted *p)
{
	if (!p->retired)
		unpost(p);
	p->retired = true;
	if (p->under_way > 0)
		return;
	if (p->multi)
		cq_put(ep->rx, &(struct completion){.context = p->context, .flags = FI_MULTI_RECV});
	pool_give(&buffers, p);
}

/* placed ends a message: in a buffer, or cut off at its end. */
static void placed(struct endpoint *ep, struct posted *p, struct completion *c, size_t room)
{
	if (c->status == OUTRIGGER_TRUNCATED) {
		c->olen = c->len - room;
		c->len = room;
	}
	count(ep->received, c->status);
	bool last = p->retired && p->under_way == 0;
	if (last && p->multi)
		c->flags |= FI_MULTI_RECV;
	if (!ep->closing && (p->reports || c->err != 0 || (c->flags & FI_MULTI_RECV) != 0) && !untold(p->context, c->status))
		cq_put(ep->rx, c);
	if (last)
		pool_give(&buffers, p);
}

static struct completion described(const struct posted *p, void *buf, const struct outrigger_result *r, int status)
{
	struct completion c = {.context = p->context, .buf = buf, .flags = FI_RECV | FI_MSG, .len = r->length, .status = status, .err = -to_errno(status)};
	if (r->has_data) {
		c.flags |= FI_REMOTE_CQ_DATA;
		c.data = r->data;
	}
	return c;
}

static void on_placed(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct posted *p = op->posted;
	struct completion c = described(p, op->buf, r, r->status);
	p->under_way--;
	placed(op->ep, p, &c, op->room);
	op_free(op);
}

/* find is the first buffer for a message; one that it does not fit is retired. */
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

/* use takes room out of a buffer; it may be its end. Preconditions: it has as much. */
static void use(struct endpoint *ep, struct posted *p, size_t length)
{
	size_t used = p->used + length;
	used = (used + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	p->used = used < p->room ? used : p->room;
	if (!p->multi || p->room - p->used < ep->min_multi)
		retire(ep, p);
}

static void copy_out(const struct letter *l, const struct iovec *iov, int segments)
{
	size_t done = 0, length = (size_t)l->message.length;
	for (int i = 0; i < segments && done < length; i++) {
		size_t n = iov[i].iov_len < length - done ? iov[i].iov_len : length - done;
		if (n > 0)
			memcpy(iov[i].iov_base, l->bytes + done, n);
		done += n;
	}
}

/* place brings the message of a letter into a buffer. */
static bool place(struct endpoint *ep, struct posted *p, const struct letter *l, const struct envelope *e)
{
	/* In a buffer for many it has the room that its letter says, however long the
	 * message is that comes later: the next one lies behind it. */
	size_t left = p->room - p->used;
	struct iovec one = {(char *)p->iov[0].iov_base + p->used, e->length < left ? (size_t)e->length : left};
	const struct iovec *iov = p->multi ? &one : p->iov;
	int segments = p->multi ? 1 : p->segments;
	size_t room = p->multi ? one.iov_len : p->room;
	void *buf = segments > 0 ? iov[0].iov_base : NULL;
	p->under_way++;
	if (!e->bulk) {
		copy_out(l, iov, segments);
		struct completion c = described(p, buf, &l->message, e->length > room ? OUTRIGGER_TRUNCATED : OUTRIGGER_OK);
		use(ep, p, one.iov_len);
		p->under_way--;
		placed(ep, p, &c, room);
		return true;
	}
	struct op *op = op_new(ep, OP_UNTAGGED, on_placed, p->context);
	if (op != NULL) {
		struct outrigger_envelope from = {.peer = l->message.peer, .context = context_of(ep->number, SPACE_MSG), .tag = l->message.tag | TAG_BULK};
		op->posted = p;
		op->buf = buf;
		op->room = room;
		if (outrigger_recvv(client(), iov, segments, &from, op->done, op, &op->request) == OUTRIGGER_OK) {
			use(ep, p, one.iov_len);
			return true;
		}
		op_free(op);
	}
	p->under_way--;
	return false;
}

/* fail_untagged ends all buffers: nothing comes for them any more. */
void fail_untagged(struct endpoint *ep, int status)
{
	while (!list_empty(&ep->posted)) {
		struct posted *p = posted_of(ep->posted.next);
		if (p->under_way > 0) {
			retire(ep, p); /* its last message ends it, with the same */
			continue;
		}
		struct completion c = described(p, NULL, &(struct outrigger_result){.status = status}, status);
		unpost(p);
		p->retired = true;
		placed(ep, p, &c, 0);
	}
}

/* over reports that a letter has ended with all that is under way, since the job has failed. */
static bool over(const struct letter *l) { return l->message.status == OUTRIGGER_ABORTED || l->message.status == OUTRIGGER_PEER_FAILED; }

/* lay_aside keeps the message of a letter. False: it stays where it is. */
static bool lay_aside(struct endpoint *ep, const struct letter *l)
{
	struct letter *copy = ep->laid_aside < ASIDE_MAX ? inbox_copy(l) : NULL;
	if (copy == NULL)
		return false;
	list_add(&ep->aside, &copy->node);
	ep->laid_aside++;
	return true;
}

static void forget_aside(struct endpoint *ep, struct letter *l)
{
	list_remove(&l->node);
	ep->laid_aside--;
	free(l);
}

/* want_aside notes for which letters that were laid aside there is a new buffer. */
static void want_aside(struct endpoint *ep, const struct posted *p)
{
	for (struct node *n = ep->aside.next; n != &ep->aside; n = n->next) {
		struct letter *l = (struct letter *)n;
		l->wanted = l->wanted || p->from == OUTRIGGER_ANY || p->from == l->message.peer;
		ep->wanted = ep->wanted || l->wanted;
	}
}

/* serve_aside brings those into buffers, the oldest first. False: it is to be called again
 * before what has come later is looked at. */
static bool serve_aside(struct endpoint *ep)
{
	for (struct node *n = ep->aside.next, *next; ep->wanted && n != &ep->aside; n = next) {
		struct letter *l = (struct letter *)n;
		struct envelope e;
		next = n->next;
		if (!l->wanted)
			continue;
		(void)open_letter(l, &e); /* it was good */
		struct posted *p = find(ep, l->message.peer, e.length);
		l->wanted = p != NULL;
		if (p == NULL)
			continue;
		if (!place(ep, p, l, &e))
			return false;
		forget_aside(ep, l);
	}
	ep->wanted = false;
	return true;
}

/* serve_new brings letters that were laid aside into a buffer that was just posted: no other
 * one is for them, unless some are to be served already. */
static void serve_new(struct endpoint *ep, struct posted *p)
{
	if (ep->wanted) {
		want_aside(ep, p);
		return;
	}
	for (struct node *n = ep->aside.next, *next; n != &ep->aside; n = next) {
		struct letter *l = (struct letter *)n;
		struct envelope e;
		next = n->next;
		if (p->from != OUTRIGGER_ANY && p->from != l->message.peer)
			continue;
		(void)open_letter(l, &e); /* it was good */
		if (p->multi && p->used > 0 && p->room - p->used < e.length) {
			retire(ep, p);
			return;
		}
		if (!place(ep, p, l, &e)) {
			want_aside(ep, p);
			return;
		}
		forget_aside(ep, l);
		if (ep->posted.prev != &p->node)
			return; /* it is used up */
	}
}

void serve_untagged(struct endpoint *ep)
{
	struct letter *l;
	while (!ep->closing && !sidecar_ended && !list_empty(&ep->posted) && serve_aside(ep) && (l = inbox_first(ep, &ep->untagged)) != NULL) {
		struct envelope e;
		if (open_letter(l, &e)) { /* else it is of no provider of this kind */
			struct posted *p = find(ep, l->message.peer, e.length);
			bool kept = p != NULL ? place(ep, p, l, &e) : !list_empty(&ep->posted) && lay_aside(ep, l);
			if (!kept)
				return;
		} else if (over(l)) {
			fail_untagged(ep, l->message.status);
		}
		inbox_next(l);
	}
}

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
	serve_new(ep, p);
	serve_untagged(ep);
	return 0;
}

bool cancel_untagged(struct endpoint *ep, void *context)
{
	struct node *all = by_context(ep->buffers, context);
	for (struct node *n = all->next; n != all; n = n->next) {
		struct posted *p = (struct posted *)((char *)n - offsetof(struct posted, receive));
		if (p->context != context)
			continue;
		if (p->under_way > 0) {
			retire(ep, p); /* its last message ends it */
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

/* drop_untagged lets go of what an endpoint that closes still has. */
void drop_untagged(struct endpoint *ep)
{
	inbox_close(&ep->untagged);
	while (!list_empty(&ep->aside))
		forget_aside(ep, (struct letter *)ep->aside.next);
	while (!list_empty(&ep->posted)) {
		struct posted *p = posted_of(ep->posted.next);
		unpost(p);
		p->multi = false; /* nobody is told of its end */
		p->retired = true;
		if (p->under_way == 0)
			pool_give(&buffers, p);
	}
}
