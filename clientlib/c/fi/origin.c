/* The origin of accesses: starts reads, writes and atomics on memory of other ranks (access.h), and
 * libfabric's calls for reads and writes (fi_rma(3)).
 *
 * An access has up to three parts: the start itself, the receive of the answer, and the send of
 * data that does not fit into the request. It completes when all parts have ended. */

#include "rxqueue.h"

/* An access in progress. */
struct origin {
	struct endpoint *ep;
	void *context;
	uint64_t flags;
	struct counter *counter;
	uint64_t want; /* number of bytes of the answer */
	unsigned parts; /* number of parts of the access that have not ended */
	int status; /* first error of a part */
	bool reports; /* the access writes a completion if it succeeds */
	bool abandoned; /* the call has failed: nothing is reported */
	struct trial trial;
};

static struct pool origins = {.bytes = sizeof(struct origin)};
static uint64_t accesses; /* the number of the last access, over all endpoints; an answer has it in its tag */

/* end_part ends one part of an access; the last one reports the access. */
static void end_part(struct origin *a, int status)
{
	if (a->status == OUTRIGGER_OK)
		a->status = status;
	if (--a->parts > 0)
		return;
	struct endpoint *ep = a->ep;
	if (!a->abandoned) {
		count(a->counter, a->status);
		if (!ep->closing && (a->reports || a->status != OUTRIGGER_OK) && !unreportable(a->context, a->status))
			cq_put(ep->tx, &(struct completion){.context = a->context, .flags = a->flags, .err = -to_errno(a->status), .status = a->status});
	}
	pool_give(&origins, a);
}

static void on_answer(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct origin *a = op->of;
	int status = r->status == OUTRIGGER_OK ? (int)(r->tag & TAG_STATUS) : r->status;
	if (status == OUTRIGGER_OK && r->length != a->want)
		status = OUTRIGGER_INVALID;
	op_free(op);
	if (status == OUTRIGGER_OK && !a->abandoned) /* otherwise the memory of the result may be in use again */
		trial_end(&a->trial);
	end_part(a, status);
}

static void on_data_left(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct origin *a = op->of;
	op_free(op);
	end_part(a, r->status);
}

/* part returns the request of one more part. */
static struct op *part(struct origin *a, enum kind kind, outrigger_done done)
{
	struct op *op = op_new(a->ep, kind, done, NULL);
	if (op != NULL) {
		op->of = a;
		a->parts++;
	}
	return op;
}

/* no_part frees the request of a part that could not be submitted. */
static void no_part(struct origin *a, struct op *op)
{
	op_free(op);
	a->parts--;
}

/* post_answer_receive posts the receive of the answer. */
static int post_answer_receive(struct origin *a, const struct access_call *w, uint32_t rank, uint64_t tag, outrigger_request *out)
{
	struct outrigger_envelope from = {.peer = rank, .context = context_of(a->ep->number, SPACE_ANSWER), .tag = tag, .ignore = TAG_STATUS};
	struct op *op = part(a, OP_ANSWER, on_answer);
	if (op == NULL)
		return OUTRIGGER_NO_MEMORY;
	int rc = outrigger_recvv(client(), w->in, (int)w->ins, &from, op->done, op, out);
	if (rc != OUTRIGGER_OK)
		no_part(a, op);
	else
		op->request = *out;
	return rc;
}

/* send_data sends data that does not fit into the request. It is sent before the request; the
 * target matches it by its tag. The send may complete before send_data returns. */
static int send_data(struct origin *a, const struct access_call *w, struct outrigger_envelope to, outrigger_request *out)
{
	struct op *op = part(a, OP_SEND, on_data_left);
	if (op == NULL)
		return OUTRIGGER_NO_MEMORY;
	to.tag |= TAG_BULK;
	int rc = outrigger_sendv(client(), w->out, (int)w->outs, &to, 0, op->done, op, out);
	if (rc != OUTRIGGER_OK)
		no_part(a, op);
	return rc;
}

/* send_request sends the request, with the data unless that is in a message of its own. */
static int send_request(const struct access_call *w, const struct request *r, struct outrigger_envelope to, outrigger_request answer)
{
	struct write_header t = {*r, (uint32_t)w->data};
	struct iovec v[1 + IOV_LIMIT] = {{&t, sizeof t.request}};
	int n = 1;
	if ((w->flags & FI_REMOTE_CQ_DATA) != 0) {
		t.request.op = WRITE_HAS_DATA;
		v[0].iov_len = WRITE_HEADER_BYTES;
	}
	for (size_t i = 0; r->bulk == 0 && i < w->outs; i++)
		v[n++] = w->out[i];
	to.reply = answer;
	return outrigger_sendv(client(), v, n, &to, OUTRIGGER_REPLY, NULL, NULL, NULL);
}

/* cancel_start cancels the parts of an access that could not be started. */
static ssize_t cancel_start(struct origin *a, outrigger_request answer, outrigger_request data, int rc)
{
	a->abandoned = true;
	(void)outrigger_cancel(client(), answer); /* if it fails, the session has ended */
	if (data != 0)
		(void)outrigger_cancel(client(), data);
	end_part(a, rc);
	return to_errno(rc);
}

/* start starts an access. */
static ssize_t start(struct endpoint *ep, const struct access_call *w)
{
	struct peer p;
	if (!ep->enabled || w->outs > IOV_LIMIT || w->ins > IOV_LIMIT || !av_find(ep->av, w->to, &p))
		return -FI_EINVAL;
	if (requests_below(LEFT_BY_ACCESSES))
		return -FI_EAGAIN;
	struct origin *a = pool_take(&origins);
	if (a == NULL)
		return -FI_ENOMEM;
	bool reads = w->request.access != ACCESS_WRITE && w->request.access != ACCESS_ATOMIC;
	*a = (struct origin){
		.parts = 1, /* the start: other parts may end before all are submitted */
		.ep = ep, .context = w->context, .counter = reads ? ep->reads : ep->writes, .want = bytes_of(w->in, w->ins),
		.flags = (reads ? FI_READ : FI_WRITE) | (w->request.access <= ACCESS_READ ? FI_RMA : FI_ATOMIC),
		.reports = !w->inject && (!ep->tx_selective || (w->flags & FI_COMPLETION) != 0),
	};
	trial_begin(&a->trial, w, p.rank);
	struct request r = w->request;
	r.endpoint = ep->number;
	r.bulk = bytes_of(w->out, w->outs) > ACCESS_SMALL;
	struct outrigger_envelope to = {.peer = p.rank, .context = context_of(p.endpoint, SPACE_REQUEST), .tag = tag_of(++accesses)};
	outrigger_request answer = 0, data = 0;
	int rc = post_answer_receive(a, w, p.rank, to.tag, &answer);
	if (rc != OUTRIGGER_OK) {
		pool_give(&origins, a);
		return to_errno(rc);
	}
	if (r.bulk != 0 && (rc = send_data(a, w, to, &data)) != OUTRIGGER_OK)
		return cancel_start(a, answer, 0, rc);
	if ((rc = send_request(w, &r, to, answer)) != OUTRIGGER_OK)
		return cancel_start(a, answer, data, rc);
	end_part(a, OUTRIGGER_OK);
	return 0;
}

ssize_t start_access(struct fid_ep *fid, const struct access_call *w)
{
	lock();
	await_room();
	ssize_t rc = start((struct endpoint *)fid, w);
	if (rc == -FI_EAGAIN)
		progress(); /* completions free requests */
	end_start(rc);
	return rc;
}

static ssize_t read_from(struct fid_ep *ep, const struct iovec *iov, size_t segments, fi_addr_t from, uint64_t addr, uint64_t key, void *context, uint64_t flags)
{
	struct access_call w = {
		.request = {.access = ACCESS_READ, .key = key, .addr = addr, .length = bytes_of(iov, segments)},
		.in = iov, .ins = segments, .to = from, .context = context,
		.flags = flags & ~FI_REMOTE_CQ_DATA, /* only writes have remote data (fi_rma(3)) */
	};
	return start_access(ep, &w);
}

static ssize_t write_to(struct fid_ep *ep, const struct iovec *iov, size_t segments, fi_addr_t to, uint64_t addr, uint64_t key, uint64_t data, void *context, uint64_t flags, bool inject)
{
	struct access_call w = {
		.request = {.access = ACCESS_WRITE, .key = key, .addr = addr, .length = bytes_of(iov, segments)},
		.out = iov, .outs = segments, .to = to, .data = data, .context = context, .flags = flags, .inject = inject,
	};
	bool at_once = inject || (flags & FI_INJECT) != 0; /* the program may change the memory as soon as the call returns */
	return at_once && w.request.length > INJECT_MAX ? -FI_EINVAL : start_access(ep, &w);
}

static uint64_t flags_of(struct fid_ep *ep) { return ((struct endpoint *)ep)->tx_flags; }

/* libfabric's calls. */

static ssize_t r_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
	struct iovec v = {buf, len};
	(void)desc;
	return read_from(ep, &v, 1, from, addr, key, context, flags_of(ep));
}

static ssize_t r_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t segments, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
	(void)desc;
	return read_from(ep, iov, segments, from, addr, key, context, flags_of(ep));
}

/* good reports whether the remote side is one segment of the length of the local side. */
static bool good(const struct fi_msg_rma *m)
{
	return m->iov_count <= IOV_LIMIT && m->rma_iov_count == 1 && m->rma_iov[0].len == bytes_of(m->msg_iov, m->iov_count);
}

static ssize_t r_readmsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
	return good(m) ? read_from(ep, m->msg_iov, m->iov_count, m->addr, m->rma_iov[0].addr, m->rma_iov[0].key, m->context, flags) : -FI_EINVAL;
}

static ssize_t r_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return write_to(ep, &v, 1, to, addr, key, 0, context, flags_of(ep), false);
}

static ssize_t r_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t segments, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
	(void)desc;
	return write_to(ep, iov, segments, to, addr, key, 0, context, flags_of(ep), false);
}

static ssize_t r_writemsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
	return good(m) ? write_to(ep, m->msg_iov, m->iov_count, m->addr, m->rma_iov[0].addr, m->rma_iov[0].key, m->data, m->context, flags, false) : -FI_EINVAL;
}

static ssize_t r_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	return write_to(ep, &v, 1, to, addr, key, 0, NULL, 0, true);
}

static ssize_t r_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	(void)desc;
	return write_to(ep, &v, 1, to, addr, key, data, context, flags_of(ep) | FI_REMOTE_CQ_DATA, false);
}

static ssize_t r_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	return write_to(ep, &v, 1, to, addr, key, data, NULL, FI_REMOTE_CQ_DATA, true);
}

struct fi_ops_rma rma_ops = {
	.size = sizeof rma_ops, .read = r_read, .readv = r_readv, .readmsg = r_readmsg, .write = r_write, .writev = r_writev,
	.writemsg = r_writemsg, .inject = r_inject, .writedata = r_writedata, .injectdata = r_injectdata,
};
