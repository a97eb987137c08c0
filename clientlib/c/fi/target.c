/* The target of accesses: executes the requests of other ranks on registered memory (access.h).
 *
 * A request arrives as an eager message. Small writes and atomics are executed and answered at
 * once. The data of a read, and of a long write, is a transfer of its own: post_transfer posts it,
 * on_transferred completes it, and send_answers sends the answer of a write. */
#include <string.h>

#include "rxqueue.h"

/* An access whose data is a transfer of its own. A callback cannot submit; therefore the answer of
 * a write is sent by serve_accesses. */
struct answer {
	struct node node;
	struct registration *region; /* NULL: the data is discarded */
	struct outrigger_envelope to;
	uint64_t want;
	uint64_t bulk; /* tag of the data of a write */
	uint32_t data;
	bool read, has_data;
	bool stopped; /* the access was cancelled before its data arrived, which still has to be discarded */
};

static struct pool answers = {.bytes = sizeof(struct answer)};

/* answer_to returns the envelope of the answer to a request. */
static struct outrigger_envelope answer_to(const struct outrigger_result *m, uint32_t endpoint, int status)
{
	return (struct outrigger_envelope){.peer = m->peer, .context = context_of(endpoint, SPACE_ANSWER), .tag = (m->tag & ~TAG_STATUS) | (uint64_t)status};
}

static int answer_with(const struct outrigger_envelope *to, const void *data, uint64_t bytes)
{
	struct iovec v = {(void *)(uintptr_t)data, bytes};
	return outrigger_sendv(client(), &v, 1, to, 0, NULL, NULL, NULL);
}

/* report_remote_write writes the completion of a write with remote data (FI_REMOTE_CQ_DATA). */
static void report_remote_write(struct endpoint *ep, uint64_t length, uint32_t data)
{
	cq_put(ep->rx, &(struct completion){.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .len = length, .data = data});
}

/* on_stopped ends a transfer that was cancelled because its region was closed: the answer is an
 * error. */
static void on_stopped(struct endpoint *ep, struct answer *a)
{
	if (ep->closing) { /* the origin is no provider of this kind, which would have sent the data before the request */
		pool_give(&answers, a);
		return;
	}
	a->region = NULL;
	a->stopped = !a->read;
	a->to.tag |= OUTRIGGER_INVALID;
	list_add(&ep->answers, &a->node);
}

static void on_transferred(void *arg, const struct outrigger_result *r)
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
	if (a->read) { /* the data was the answer */
		pool_give(&answers, a);
		return;
	}
	if (a->region != NULL && !whole)
		a->to.tag |= OUTRIGGER_INVALID;
	else if (a->region != NULL && a->has_data && !ep->closing)
		report_remote_write(ep, a->want, a->data);
	list_add(&ep->answers, &a->node);
}

/* post_transfer posts a transfer: the send of a read's data, or the receive of a write's data into the
 * region, or of no bytes if there is no region. */
static int post_transfer(struct endpoint *ep, struct answer *a, unsigned char *memory)
{
	struct op *op = op_new(ep, a->read ? OP_DATA : OP_BULK, on_transferred, NULL);
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

static bool has_remote_data(const struct request *q) { return q->access == ACCESS_WRITE && q->op == WRITE_HAS_DATA; }

/* start_transfer starts the transfer of a request. */
static int start_transfer(struct eager *m, struct registration *region, unsigned char *memory, bool read)
{
	const struct request *q = &m->request;
	struct answer *a = pool_take(&answers);
	if (a == NULL)
		return OUTRIGGER_NO_MEMORY;
	*a = (struct answer){
		.region = region, .to = answer_to(&m->message, q->endpoint, region == NULL ? OUTRIGGER_INVALID : OUTRIGGER_OK), .read = read,
		.want = q->length, .bulk = m->message.tag | TAG_BULK, .has_data = has_remote_data(q), .data = m->write.data,
	};
	if (region != NULL)
		region->busy++;
	int rc = post_transfer(m->ep, a, memory);
	if (rc != OUTRIGGER_OK) {
		if (region != NULL)
			region->busy--;
		pool_give(&answers, a);
	}
	return rc;
}

static bool is_transfer_of(const struct op *op, const void *region)
{
	return (op->kind == OP_DATA || op->kind == OP_BULK) && ((const struct answer *)op->of)->region == region;
}

/* detach_region detaches the remaining transfers from a region that closes: the client copies the data
 * of reads, and discards the data of writes. */
static void detach_region(struct endpoint *ep, struct registration *r)
{
	for (struct node *n = ep->ops.next; n != &ep->ops; n = n->next) {
		struct op *op = (struct op *)n;
		if (!is_transfer_of(op, r) || outrigger_release(client(), op->request) != OUTRIGGER_OK)
			continue; /* the sidecar accesses the memory, or there is no memory for a copy */
		struct answer *a = op->of;
		a->region = NULL;
		r->busy--;
		if (!a->read)
			a->to.tag |= OUTRIGGER_INVALID;
	}
}

/* stop_transfers cancels the transfers of a region that have not begun, and detaches the others
 * from it: their origins may compute for hours before they finish. */
void stop_transfers(struct registration *r)
{
	for (struct node *n = endpoints.next; n != &endpoints; n = n->next) {
		struct endpoint *ep = (struct endpoint *)((char *)n - offsetof(struct endpoint, node));
		cancel_ops(ep, is_transfer_of, r);
		detach_region(ep, r);
	}
}

/* rights_of returns the rights of a registration that a request needs. */
static uint64_t rights_of(const struct request *q)
{
	switch (q->access) {
	case ACCESS_READ: return FI_REMOTE_READ;
	case ACCESS_FETCH: return q->op == FI_ATOMIC_READ ? FI_REMOTE_READ : FI_REMOTE_READ | FI_REMOTE_WRITE;
	case ACCESS_COMPARE: return FI_REMOTE_READ | FI_REMOTE_WRITE;
	}
	return FI_REMOTE_WRITE;
}

/* well_formed reports whether a request is well-formed, as origin.c makes it. */
static bool well_formed(const struct eager *m)
{
	const struct request *q = &m->request;
	if (m->message.status != OUTRIGGER_OK || m->message.length < sizeof *q || q->endpoint >= (UINT32_C(1) << 28))
		return false;
	uint64_t payload = m->message.length - sizeof *q;
	if (has_remote_data(q) && payload < sizeof m->write.data)
		return false;
	switch (q->access) {
	case ACCESS_WRITE: payload -= has_remote_data(q) ? sizeof m->write.data : 0; return q->bulk != 0 ? payload == 0 : payload == q->length;
	case ACCESS_READ: return payload == 0 && q->bulk == 0;
	}
	return q->bulk == 0 && atomic_valid(q, payload);
}

/* apply executes a small write or an atomic. */
static void apply(struct eager *m, unsigned char *memory)
{
	struct request *q = &m->request;
	unsigned char *payload = m->bytes + sizeof *q;
	if (q->access != ACCESS_WRITE) {
		atomic_apply(q, memory, payload);
		return;
	}
	memcpy(memory, has_remote_data(q) ? m->bytes + WRITE_HEADER_BYTES : payload, q->length);
	if (has_remote_data(q))
		report_remote_write(m->ep, q->length, m->write.data);
}

/* execute executes a request and sends the answer. If no request of the client is free, it
 * returns OUTRIGGER_TOO_MANY and must be called again; it executes the request only once. */
static int execute(struct eager *m)
{
	struct request *q = &m->request;
	unsigned char *payload = m->bytes + sizeof *q, *memory = NULL;
	struct registration *region = region_of(m->ep->domain, q, rights_of(q), &memory);
	struct outrigger_envelope to = answer_to(&m->message, q->endpoint, region == NULL ? OUTRIGGER_INVALID : OUTRIGGER_OK);
	if (q->access == ACCESS_WRITE && q->bulk != 0)
		return start_transfer(m, region, memory, false);
	if (region == NULL)
		return answer_with(&to, NULL, 0);
	if (q->access == ACCESS_READ)
		return start_transfer(m, region, memory, true);
	if (!m->applied)
		apply(m, memory);
	m->applied = true;
	bool returns_data = q->access == ACCESS_FETCH || q->access == ACCESS_COMPARE;
	return answer_with(&to, payload, returns_data ? q->length : 0);
}

/* forget_region detaches all transfers from a region that closes after the sidecar has ended. The
 * transfers end when their endpoint closes. */
void forget_region(const struct registration *r)
{
	for (struct node *e = endpoints.next; e != &endpoints; e = e->next) {
		struct endpoint *ep = (struct endpoint *)((char *)e - offsetof(struct endpoint, node));
		for (struct node *n = ep->ops.next; n != &ep->ops; n = n->next)
			if (is_transfer_of((struct op *)n, r))
				((struct answer *)((struct op *)n)->of)->region = NULL;
	}
}

/* send_answers sends the answers of transfers that have ended; those for which there is no request or
 * no room in the ring stay. The data of a cancelled write is received and discarded before: otherwise
 * the origin's send would never complete. */
static void send_answers(struct endpoint *ep)
{
	while (!list_empty(&ep->answers) && !ring_full()) {
		struct answer *a = (struct answer *)ep->answers.next;
		bool waits = a->stopped && !ep->closing;
		int rc = waits ? post_transfer(ep, a, NULL) : answer_with(&a->to, NULL, 0);
		if (rc == OUTRIGGER_TOO_MANY)
			return;
		list_remove(&a->node);
		a->stopped = false;
		if (!waits || rc != OUTRIGGER_OK)
			pool_give(&answers, a);
	}
}

/* note_access notes that this thread has executed an access. It is work of a program that waits, and
 * begins its empty polls anew: a program that slept after each access would be woken for the next. */
static void note_access(void)
{
	if (is_attendant())
		note_attended_access();
	else
		end_empty_polls();
}

/* serve_accesses executes requests in the order in which they were matched. A request that is not
 * well-formed or cannot be answered is dropped: its origin is no provider of this kind, or has
 * ended. */
void serve_accesses(struct endpoint *ep)
{
	if (!exposed || ep->closing || sidecar_ended)
		return;
	send_answers(ep);
	struct eager *m;
	while ((m = rx_first(ep, &ep->requests)) != NULL) {
		if (well_formed(m) && execute(m) == OUTRIGGER_TOO_MANY)
			return;
		rx_repost(m);
		note_access();
	}
}

/* accesses_served reports whether serve_accesses has nothing to do until the client has a completion. */
bool accesses_served(const struct endpoint *ep) { return !exposed || (list_empty(&ep->answers) && rx_waits(&ep->requests)); }

/* reject_late answers a request to an endpoint that closes with an error. A request that was executed
 * already gets its proper answer. */
static int reject_late(struct eager *m)
{
	if (m->applied)
		return execute(m);
	struct outrigger_envelope to = answer_to(&m->message, m->request.endpoint, OUTRIGGER_PEER_LEFT);
	return answer_with(&to, NULL, 0);
}

/* drop_accesses answers and frees the requests of an endpoint that closes. It reports whether it
 * must be called again, because there was no request or no room in the ring for an answer. */
bool drop_accesses(struct endpoint *ep)
{
	send_answers(ep);
	for (struct node *n = ep->requests.buffers_posted.next; n != &ep->requests.buffers_posted; n = n->next) {
		struct eager *m = (struct eager *)n;
		if (!m->arrived || m->answered)
			continue;
		if (ring_full() || (well_formed(m) && reject_late(m) == OUTRIGGER_TOO_MANY))
			return true;
		m->answered = true;
	}
	rx_close(&ep->requests);
	return !list_empty(&ep->answers);
}

/* drop_answers frees the answers that could not be sent. */
void drop_answers(struct endpoint *ep)
{
	while (!list_empty(&ep->answers)) {
		struct answer *a = (struct answer *)ep->answers.next;
		list_remove(&a->node);
		pool_give(&answers, a);
	}
}
