/*
 * Untagged receives. One buffer takes many messages (FI_MULTI_RECV), one after
 * the other, which the engine's matching does not know: where a message goes is
 * known when its length is. So probes wait for messages and take them out of
 * matching, in order, and each is then received into its place.
 */
#include <stdlib.h>

#include "provider.h"

#define PROBES 8 /* that wait at once, so that messages do not wait for each other */
#define ALIGN 16u /* of a message in a buffer for many */

static struct posted *posted_of(struct node *n) { return (struct posted *)n; }

static void on_claimed(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct endpoint *ep = op->ep;
	struct claimed *c = r->status == OUTRIGGER_OK ? calloc(1, sizeof *c) : NULL;
	ep->probes--;
	if (c != NULL) {
		c->message = *r;
		list_add(&ep->arrived, &c->node);
	} else if (!ep->closing && r->status != OUTRIGGER_CANCELLED) {
		cq_put(ep->rx, &(struct completion){.flags = FI_RECV | FI_MSG, .err = r->status == OUTRIGGER_OK ? FI_ENOMEM : -to_errno(r->status), .status = r->status});
	}
	op_free(op);
}

static ssize_t probe(struct endpoint *ep)
{
	struct outrigger_envelope any = {.peer = OUTRIGGER_ANY, .context = context_of(ep->number, SPACE_MSG), .ignore = UINT64_MAX};
	struct op *op = op_new(ep, OP_PROBE, NULL);
	if (op == NULL)
		return -FI_ENOMEM;
	int rc = outrigger_probe(client(), &any, OUTRIGGER_CLAIM, on_claimed, op, &op->request);
	if (rc != OUTRIGGER_OK)
		op_free(op);
	else
		ep->probes++;
	return to_errno(rc);
}

/* retire ends a buffer that takes no more messages; the last message in it says
 * so, or nobody else will. */
static void retire(struct endpoint *ep, struct posted *p)
{
	if (!p->retired)
		list_remove(&p->node);
	p->retired = true;
	if (p->under_way > 0)
		return;
	if (p->multi)
		cq_put(ep->rx, &(struct completion){.context = p->context, .flags = FI_MULTI_RECV});
	free(p);
}

static void on_placed(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct endpoint *ep = op->ep;
	struct posted *p = op->posted;
	struct completion c = {.context = op->context, .buf = op->buf, .flags = FI_RECV | FI_MSG, .len = r->length, .status = r->status, .err = -to_errno(r->status)};
	if (r->has_data) {
		c.flags |= FI_REMOTE_CQ_DATA;
		c.data = r->data;
	}
	if (r->status == OUTRIGGER_TRUNCATED) {
		c.len = op->room;
		c.olen = r->length - op->room;
	}
	if (ep->received != NULL)
		ep->received->value++;
	p->under_way--;
	bool last = p->retired && p->under_way == 0;
	if (last && p->multi)
		c.flags |= FI_MULTI_RECV;
	if (!ep->closing && (p->reports || c.err != 0 || (c.flags & FI_MULTI_RECV) != 0))
		cq_put(ep->rx, &c);
	if (last)
		free(p);
	op_free(op);
}

/* find is the first buffer for a message; one that it does not fit is retired. */
static struct posted *find(struct endpoint *ep, const struct outrigger_result *m)
{
	for (struct node *n = ep->posted.next, *next; n != &ep->posted; n = next) {
		struct posted *p = posted_of(n);
		next = n->next;
		if (p->from != OUTRIGGER_ANY && p->from != m->peer)
			continue;
		if (!p->multi || p->room - p->used >= m->length || p->used == 0)
			return p;
		retire(ep, p);
	}
	return NULL;
}

/* place receives a message into a buffer. */
static bool place(struct endpoint *ep, struct posted *p, const struct outrigger_result *m)
{
	struct op *op = op_new(ep, OP_UNTAGGED, p->context);
	if (op == NULL)
		return false;
	struct iovec one = {(char *)p->iov[0].iov_base + p->used, p->room - p->used};
	const struct iovec *iov = p->multi ? &one : p->iov;
	int segments = p->multi ? 1 : p->segments;
	op->posted = p;
	op->buf = segments > 0 ? iov[0].iov_base : NULL;
	op->room = p->multi ? one.iov_len : p->room;
	p->under_way++;
	if (outrigger_claim(client(), m->handle, iov, segments, on_placed, op, &op->request) != OUTRIGGER_OK) {
		p->under_way--;
		op_free(op);
		return false;
	}
	size_t used = p->used + (size_t)m->length;
	used = (used + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	p->used = used < p->room ? used : p->room;
	if (!p->multi || p->room - p->used < ep->min_multi)
		retire(ep, p);
	return true;
}

void serve_untagged(struct endpoint *ep)
{
	while (!ep->closing && !list_empty(&ep->arrived)) {
		struct claimed *c = (struct claimed *)ep->arrived.next;
		struct posted *p = find(ep, &c->message);
		if (p == NULL || !place(ep, p, &c->message))
			break;
		list_remove(&c->node);
		free(c);
	}
	while (!ep->closing && !sidecar_ended && ep->probes < PROBES && !list_empty(&ep->posted))
		if (probe(ep) != 0)
			return;
}

ssize_t post_untagged(struct endpoint *ep, const struct iovec *iov, size_t segments, fi_addr_t from, void *context, uint64_t flags)
{
	bool multi = (flags & FI_MULTI_RECV) != 0;
	if (!ep->enabled || segments > IOV_LIMIT || (multi && segments != 1) || (flags & (FI_PEEK | FI_CLAIM)) != 0)
		return -FI_EINVAL;
	struct posted *p = calloc(1, sizeof *p);
	if (p == NULL)
		return -FI_ENOMEM;
	if (source_of(ep, from, &p->from) != 0) {
		free(p);
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
	serve_untagged(ep);
	return 0;
}

bool cancel_untagged(struct endpoint *ep, void *context)
{
	for (struct node *n = ep->posted.next; n != &ep->posted; n = n->next) {
		struct posted *p = posted_of(n);
		if (p->context != context)
			continue;
		if (p->under_way > 0) {
			retire(ep, p); /* its last message ends it */
			return true;
		}
		cq_put(ep->rx, &(struct completion){.context = context, .flags = FI_RECV | FI_MSG, .err = FI_ECANCELED, .status = OUTRIGGER_CANCELLED});
		list_remove(n);
		free(p);
		return true;
	}
	return false;
}

/* drop_untagged lets go of what an endpoint that closes still has. */
void drop_untagged(struct endpoint *ep)
{
	while (!list_empty(&ep->arrived)) {
		struct claimed *c = (struct claimed *)ep->arrived.next;
		(void)outrigger_drop(client(), c->message.handle); /* it ends with the session too */
		list_remove(&c->node);
		free(c);
	}
	while (!list_empty(&ep->posted)) {
		struct posted *p = posted_of(ep->posted.next);
		list_remove(&p->node);
		p->multi = false; /* nobody is told of its end */
		p->retired = true;
		if (p->under_way == 0)
			free(p);
	}
}
