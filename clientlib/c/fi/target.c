/* Accesses of others to memory of this process: access.h. */
#include <string.h>

#include "inbox.h"

/* An access whose data moves by itself. Its end is told by serve, since nothing can be
 * submitted where it is found out. */
struct answer {
	struct node node;
	struct registration *region; /* NULL: the data is thrown away */
	struct outrigger_envelope to;
	uint64_t want;
	uint64_t bulk; /* tag of the data of a write */
	uint32_t data;
	bool read, has_data;
	bool stopped; /* before its data came, which is still to be thrown away */
};

static struct pool answers = {.bytes = sizeof(struct answer)};

static struct outrigger_envelope back_to(const struct outrigger_result *m, uint32_t endpoint, int status)
{
	return (struct outrigger_envelope){.peer = m->peer, .context = context_of(endpoint, SPACE_ANSWER), .tag = (m->tag & ~TAG_STATUS) | (uint64_t)status};
}

static int answer_with(const struct outrigger_envelope *to, const void *data, uint64_t bytes)
{
	struct iovec v = {(void *)(uintptr_t)data, bytes};
	return outrigger_sendv(client(), &v, 1, to, 0, NULL, NULL, NULL);
}

/* tell_target reports a write that came with data, where the application looks
 * for its receives. */
static void tell_target(struct endpoint *ep, uint64_t length, uint32_t data)
{
	cq_put(ep->rx, &(struct completion){.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .len = length, .data = data});
}

/* on_stopped ends a transfer that was taken back. Where its region was closed the origin
 * is told that there is none. */
static void on_stopped(struct endpoint *ep, struct answer *a)
{
	if (ep->closing) { /* no origin of this kind: its data would have come before the request */
		pool_give(&answers, a);
		return;
	}
	a->region = NULL;
	a->stopped = !a->read;
	a->to.tag |= OUTRIGGER_INVALID;
	list_add(&ep->answers, &a->node);
}

static void on_moved(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct answer *a = op->of;
	struct endpoint *ep = op->ep;
	if (a->region != NULL)
		a->region->busy--;
	bool whole = r->status == OUTRIGGER_OK && (a->read || r->length == a->want);
	op_free(op);
	if (r->status == OUTRIGGER_CANCELLED) {
		on_stopped(ep, a);
		return;
	}
	if (a->read) { /* the answer was the data */
		pool_give(&answers, a);
		return;
	}
	if (a->region != NULL && !whole)
		a->to.tag |= OUTRIGGER_INVALID;
	else if (a->region != NULL && a->has_data && !ep->closing)
		tell_target(ep, a->want, a->data);
	list_add(&ep->answers, &a->node);
}

/* start begins a transfer: of a write into the region or, where there is none, into
 * nothing, or of what was read out of it. */
static int start(struct endpoint *ep, struct answer *a, unsigned char *memory)
{
	struct op *op = op_new(ep, a->read ? OP_DATA : OP_BULK, on_moved, NULL);
	if (op == NULL)
		return OUTRIGGER_NO_MEMORY;
	op->of = a;
	struct iovec v = {memory, a->region == NULL ? 0 : a->want};
	struct outrigger_envelope from = {.peer = a->to.peer, .context = context_of(ep->number, SPACE_REQUEST), .tag = a->bulk};
	int rc = a->read ? outrigger_sendv(client(), &v, 1, &a->to, 0, op->done, op, &op->request)
			 : outrigger_recvv(client(), &v, 1, &from, op->done, op, &op->request);
	if (rc != OUTRIGGER_OK)
		op_free(op);
	return rc;
}

static bool tells(const struct request *q) { return q->access == ACCESS_WRITE && q->op == WRITE_TELLS; }

/* move is start for a request. */
static int move(struct letter *l, struct registration *region, unsigned char *memory, bool read)
{
	const struct request *q = &l->request;
	struct answer *a = pool_take(&answers);
	if (a == NULL)
		return OUTRIGGER_NO_MEMORY;
	*a = (struct answer){
		.region = region, .to = back_to(&l->message, q->endpoint, region == NULL ? OUTRIGGER_INVALID : OUTRIGGER_OK), .read = read,
		.want = q->length, .bulk = l->message.tag | TAG_BULK, .has_data = tells(q), .data = l->telling.data,
	};
	if (region != NULL)
		region->busy++;
	int rc = start(l->ep, a, memory);
	if (rc != OUTRIGGER_OK) {
		if (region != NULL)
			region->busy--;
		pool_give(&answers, a);
	}
	return rc;
}

static bool moves_of(const struct op *op, const void *region)
{
	return (op->kind == OP_DATA || op->kind == OP_BULK) && ((const struct answer *)op->of)->region == region;
}

/* let_go_of ends what the transfers of a region that are left have to do with it: its bytes
 * have been copied for those who read, and their data finds nothing where they write. */
static void let_go_of(struct endpoint *ep, struct registration *r)
{
	for (struct node *n = ep->ops.next; n != &ep->ops; n = n->next) {
		struct op *op = (struct op *)n;
		if (!moves_of(op, r) || outrigger_release(client(), op->request) != OUTRIGGER_OK)
			continue; /* the sidecar is at it, or there is no memory for a copy */
		struct answer *a = op->of;
		a->region = NULL;
		r->busy--;
		if (!a->read)
			a->to.tag |= OUTRIGGER_INVALID;
	}
}

/* stop_transfers takes back those of a region that have not begun, and the region from
 * the others: their origin may be at something else for hours. */
void stop_transfers(struct registration *r)
{
	for (struct node *n = endpoints.next; n != &endpoints; n = n->next) {
		struct endpoint *ep = (struct endpoint *)((char *)n - offsetof(struct endpoint, node));
		cancel_ops(ep, moves_of, r);
		let_go_of(ep, r);
	}
}

static uint64_t rights_of(const struct request *q)
{
	switch (q->access) {
	case ACCESS_READ: return FI_REMOTE_READ;
	case ACCESS_FETCH: return q->op == FI_ATOMIC_READ ? FI_REMOTE_READ : FI_REMOTE_READ | FI_REMOTE_WRITE;
	case ACCESS_COMPARE: return FI_REMOTE_READ | FI_REMOTE_WRITE;
	}
	return FI_REMOTE_WRITE;
}

/* sound reports whether a request is one that origin.c makes. */
static bool sound(const struct letter *l)
{
	const struct request *q = &l->request;
	if (l->message.status != OUTRIGGER_OK || l->message.length < sizeof *q || q->endpoint >= (UINT32_C(1) << 28))
		return false;
	uint64_t payload = l->message.length - sizeof *q;
	if (tells(q) && payload < sizeof l->telling.data)
		return false;
	switch (q->access) {
	case ACCESS_WRITE: payload -= tells(q) ? sizeof l->telling.data : 0; return q->bulk != 0 ? payload == 0 : payload == q->length;
	case ACCESS_READ: return payload == 0 && q->bulk == 0;
	}
	return q->bulk == 0 && atomic_valid(q, payload);
}

static void apply(struct letter *l, unsigned char *memory)
{
	struct request *q = &l->request;
	unsigned char *payload = l->bytes + sizeof *q;
	if (q->access != ACCESS_WRITE) {
		atomic_apply(q, memory, payload);
		return;
	}
	memcpy(memory, tells(q) ? l->bytes + TELLING_BYTES : payload, q->length);
	if (tells(q))
		tell_target(l->ep, q->length, l->telling.data);
}

/* carry_out does what a request asks for, and answers. TOO_MANY: it is to be
 * called again, and answers then. */
static int carry_out(struct letter *l)
{
	struct request *q = &l->request;
	unsigned char *payload = l->bytes + sizeof *q, *memory = NULL;
	struct registration *region = region_of(l->ep->domain, q, rights_of(q), &memory);
	struct outrigger_envelope to = back_to(&l->message, q->endpoint, region == NULL ? OUTRIGGER_INVALID : OUTRIGGER_OK);
	if (q->access == ACCESS_WRITE && q->bulk != 0)
		return move(l, region, memory, false);
	if (region == NULL)
		return answer_with(&to, NULL, 0);
	if (q->access == ACCESS_READ)
		return move(l, region, memory, true);
	if (!l->applied)
		apply(l, memory);
	l->applied = true;
	bool tells = q->access == ACCESS_FETCH || q->access == ACCESS_COMPARE;
	return answer_with(&to, payload, tells ? q->length : 0);
}

/* forget_region is for one that is closed when there is no sidecar any more: its transfers
 * are ended when their endpoint closes. */
void forget_region(const struct registration *r)
{
	for (struct node *e = endpoints.next; e != &endpoints; e = e->next) {
		struct endpoint *ep = (struct endpoint *)((char *)e - offsetof(struct endpoint, node));
		for (struct node *n = ep->ops.next; n != &ep->ops; n = n->next)
			if (moves_of((struct op *)n, r))
				((struct answer *)((struct op *)n)->of)->region = NULL;
	}
}

/* send_answers tells the ends of transfers; those that find no room stay. What still
 * comes of one that was stopped is thrown away first, or its origin would not get rid of
 * it. */
static void send_answers(struct endpoint *ep)
{
	while (!list_empty(&ep->answers)) {
		struct answer *a = (struct answer *)ep->answers.next;
		bool waits = a->stopped && !ep->closing;
		int rc = waits ? start(ep, a, NULL) : answer_with(&a->to, NULL, 0);
		if (rc == OUTRIGGER_TOO_MANY)
			return;
		list_remove(&a->node);
		a->stopped = false;
		if (!waits || rc != OUTRIGGER_OK)
			pool_give(&answers, a);
	}
}

/* serve_accesses carries requests out in the order in which they were matched.
 * One that is not sound, or cannot be answered, is forgotten: its origin is no
 * provider of this kind, or gone. */
void serve_accesses(struct endpoint *ep)
{
	if (!exposed || ep->closing || sidecar_ended)
		return;
	send_answers(ep);
	struct letter *l;
	while ((l = inbox_first(ep, &ep->requests)) != NULL) {
		if (sound(l) && carry_out(l) == OUTRIGGER_TOO_MANY)
			return;
		inbox_next(l);
	}
}

/* turn_away answers a request that comes too late for an endpoint that closes; one that was
 * carried out gets its own answer. */
static int turn_away(struct letter *l)
{
	if (l->applied)
		return carry_out(l);
	struct outrigger_envelope to = back_to(&l->message, l->request.endpoint, OUTRIGGER_PEER_LEFT);
	return answer_with(&to, NULL, 0);
}

/* drop_accesses lets go of what an endpoint that closes still has. It reports whether it is
 * to be called again, since an answer found no room. */
bool drop_accesses(struct endpoint *ep)
{
	send_answers(ep);
	for (struct node *n = ep->requests.letters.next; n != &ep->requests.letters; n = n->next) {
		struct letter *l = (struct letter *)n;
		if (!l->come || l->answered)
			continue;
		if (sound(l) && turn_away(l) == OUTRIGGER_TOO_MANY)
			return true;
		l->answered = true;
	}
	inbox_close(&ep->requests);
	return !list_empty(&ep->answers);
}

/* drop_answers forgets those that could not be sent. */
void drop_answers(struct endpoint *ep)
{
	while (!list_empty(&ep->answers)) {
		struct answer *a = (struct answer *)ep->answers.next;
		list_remove(&a->node);
		pool_give(&answers, a);
	}
}
