/* Endpoints: opening, enabling and closing, names and options.
 *
 * Closing an endpoint (drain): untagged messages and requests for accesses that have arrived are
 * dropped or answered; receives are cancelled; the contexts are shut, so that the sidecar discards
 * later messages; messages that arrived before are swept, that is, claimed and dropped; then the
 * close waits for the remaining requests. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

static uint32_t endpoints_made;
/* is_no_send reports whether a request is neither a send nor a sweep. */
static bool is_no_send(const struct op *op, const void *arg)
{
	(void)arg;
	return op->kind != OP_SEND && op->kind != OP_DATA && op->kind != OP_SWEEP;
}

/* end_request completes an operation of the program with the end of the sidecar. */
static void end_request(struct op *op, const void *arg)
{
	bool of_program = op->kind == OP_SEND || op->kind == OP_RECV || op->kind == OP_PEEK || op->kind == OP_UNTAGGED || op->kind == OP_ANSWER;
	(void)arg;
	if (of_program && op->first == NULL && !op->abandoned)
		op->done(op, &(struct outrigger_result){.status = OUTRIGGER_NO_SIDECAR});
}

/* end_requests completes the program's operations when the sidecar has ended. The client is not
 * called any more. */
void end_requests(void)
{
	for (struct node *n = endpoints.next; n != &endpoints; n = n->next) {
		struct endpoint *ep = (struct endpoint *)((char *)n - offsetof(struct endpoint, node));
		visit_ops(ep, end_request, NULL);
		fail_untagged(ep, OUTRIGGER_NO_SIDECAR);
	}
}

/* The most sweeps of one close: a sidecar of an earlier release has no shut, and a peer that goes
 * on sending must not delay the close for ever. */
#define SWEEPS_MAX 65536u

/* continue_sweeps drops the messages that were found, and sweeps their contexts again. */
static void continue_sweeps(struct endpoint *ep)
{
	unsigned found = ep->unswept;
	ep->unswept = 0;
	drop_claimed(ep);
	for (enum space space = SPACE_TAGGED; space <= SPACE_ANSWER; space++)
		if ((found & 1u << space) != 0 && ep->sweeps++ < SWEEPS_MAX) {
			await_room();
			sweep(ep, space);
		}
}

/* drop_all drops the untagged messages and requests that an endpoint has received. true: an answer
 * has still to be sent. */
static bool drop_all(struct endpoint *ep)
{
	drop_untagged(ep);
	return drop_accesses(ep);
}

/* drain ends the open requests of an endpoint that closes. It cancels receives, and waits for sends
 * because sent messages must not be lost. If the sidecar ends, all requests end with it. */
static void drain(struct endpoint *ep)
{
	if (client() == NULL)
		return;
	bool owes = drop_all(ep);
	cancel_ops(ep, is_no_send, NULL);
	/* From now on the sidecar discards messages that arrive: if it kept them, their senders would
	 * never get their credit back, or would wait for ever. */
	for (enum space space = SPACE_TAGGED; space <= SPACE_ANSWER; space++) {
		await_room();
		(void)outrigger_shut(client(), context_of(ep->number, space));
	}
	ep->unswept = ~0u; /* after the cancellations, so that no receive can match a swept message */
	continue_sweeps(ep);
	uint64_t begun = nanoseconds();
	for (unsigned polls = 0; (!list_empty(&ep->ops) || ep->unswept != 0 || owes) && !sidecar_ended; polls++) {
		progress();
		owes = drop_all(ep);
		continue_sweeps(ep);
		back_off_waiting(begun, polls);
	}
	while (!list_empty(&ep->ops)) {
		struct op *op = (struct op *)ep->ops.next;
		op->done(op, &(struct outrigger_result){.status = OUTRIGGER_NO_SIDECAR});
	}
	await_room();
	(void)drop_all(ep); /* messages that have arrived meanwhile, also in polls of other threads */
	drop_answers(ep);
}

/* bind_to sets the object that an endpoint uses in a slot, and counts the users of both. */
#define bind_to(slot, object)                    \
	do {                                     \
		if ((slot) != NULL)              \
			(slot)->users--;         \
		(slot) = (object);               \
		if ((slot) != NULL)              \
			(slot)->users++;         \
	} while (0)

/* unbind_all unbinds all objects of an endpoint that closes. */
static void unbind_all(struct endpoint *ep)
{
	bind_to(ep->tx, NULL);
	bind_to(ep->rx, NULL);
	bind_to(ep->av, NULL);
	bind_to(ep->sent, NULL);
	bind_to(ep->received, NULL);
	bind_to(ep->reads, NULL);
	bind_to(ep->writes, NULL);
	bind_to(ep->domain, NULL);
}

static int endpoint_close(struct fid *fid)
{
	struct endpoint *ep = (struct endpoint *)fid;
	lock();
	ep->closing = true;
	drain(ep);
	drop_claimed(ep);
	list_remove(&ep->node);
	unbind_all(ep);
	release_session();
	unlock();
	free(ep);
	return 0;
}

static int bind_cq(struct endpoint *ep, struct cq *cq, uint64_t flags)
{
	bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
	if ((flags & FI_TRANSMIT) != 0) {
		bind_to(ep->tx, cq);
		ep->tx_selective = selective;
	}
	if ((flags & FI_RECV) != 0) {
		bind_to(ep->rx, cq);
		ep->rx_selective = selective;
	}
	return 0;
}

static int bind_counter(struct endpoint *ep, struct counter *c, uint64_t flags)
{
	if ((flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
		return -FI_ENOSYS; /* FI_RMA_EVENT is not offered */
	if ((flags & FI_READ) != 0)
		bind_to(ep->reads, c);
	if ((flags & FI_WRITE) != 0)
		bind_to(ep->writes, c);
	if ((flags & FI_SEND) != 0)
		bind_to(ep->sent, c);
	if ((flags & FI_RECV) != 0)
		bind_to(ep->received, c);
	return 0;
}

static int bind_locked(struct endpoint *ep, struct fid *other, uint64_t flags)
{
	switch (other->fclass) {
	case FI_CLASS_AV:
		bind_to(ep->av, (struct av *)other);
		return 0;
	case FI_CLASS_CQ:
		return bind_cq(ep, (struct cq *)other, flags);
	case FI_CLASS_CNTR:
		return bind_counter(ep, (struct counter *)other, flags);
	case FI_CLASS_EQ:
		return 0;
	}
	return -FI_EINVAL;
}

static int endpoint_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	lock();
	int rc = bind_locked((struct endpoint *)fid, other, flags);
	unlock();
	return rc;
}

static int enable(struct endpoint *ep)
{
	if (ep->enabled)
		return 0;
	if (ep->av == NULL)
		return -FI_ENOAV;
	if (ep->tx == NULL && ep->rx == NULL && ep->sent == NULL && ep->received == NULL && ep->reads == NULL && ep->writes == NULL)
		return -FI_ENOCQ;
	int rc = attach();
	if (rc == 0) {
		ep->enabled = true;
		list_add(&endpoints, &ep->node);
	}
	return rc;
}

static int endpoint_control(struct fid *fid, int command, void *arg)
{
	struct endpoint *ep = (struct endpoint *)fid;
	int rc = 0;
	lock();
	switch (command) {
	case FI_ENABLE:
		rc = enable(ep);
		break;
	case FI_GETOPSFLAG:
		*(uint64_t *)arg = (*(uint64_t *)arg & FI_TRANSMIT) != 0 ? ep->tx_flags : ep->rx_flags;
		break;
	case FI_SETOPSFLAG: {
		uint64_t flags = *(uint64_t *)arg;
		if ((flags & FI_TRANSMIT) != 0)
			ep->tx_flags = flags & ~FI_TRANSMIT;
		if ((flags & FI_RECV) != 0)
			ep->rx_flags = flags & ~FI_RECV;
		break;
	}
	default:
		rc = -FI_ENOSYS;
	}
	unlock();
	return rc;
}

static int get_name(fid_t fid, void *address, size_t *length)
{
	struct endpoint *ep = (struct endpoint *)fid;
	lock();
	int rc = enable(ep) == 0 ? 0 : -FI_EOPBADSTATE;
	struct name n = {.magic = NAME_MAGIC, .endpoint = ep->number};
	if (rc == 0)
		n.rank = outrigger_world(client()).rank;
	unlock();
	if (rc != 0)
		return rc;
	size_t room = *length;
	*length = sizeof n;
	if (address == NULL || room < sizeof n)
		return -FI_ETOOSMALL;
	memcpy(address, &n, sizeof n);
	return 0;
}

static int no_set_name(fid_t fid, void *address, size_t length)
{
	(void)fid, (void)address, (void)length;
	return -FI_ENOSYS;
}

static int no_peer(struct fid_ep *ep, void *address, size_t *length)
{
	(void)ep, (void)address, (void)length;
	return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *ep, const void *address, const void *param, size_t length)
{
	(void)ep, (void)address, (void)param, (void)length;
	return -FI_ENOSYS;
}

static int no_listen(struct fid_pep *pep)
{
	(void)pep;
	return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *ep, const void *param, size_t length)
{
	(void)ep, (void)param, (void)length;
	return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t length)
{
	(void)pep, (void)handle, (void)param, (void)length;
	return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *ep, uint64_t flags)
{
	(void)ep, (void)flags;
	return -FI_ENOSYS;
}

static int no_join(struct fid_ep *ep, const void *address, uint64_t flags, struct fid_mc **mc, void *context)
{
	(void)ep, (void)address, (void)flags, (void)mc, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops_cm cm_ops = {
	.size = sizeof cm_ops, .setname = no_set_name, .getname = get_name, .getpeer = no_peer, .connect = no_connect, .listen = no_listen,
	.accept = no_accept, .reject = no_reject, .shutdown = no_shutdown, .join = no_join,
};

static ssize_t endpoint_cancel(fid_t fid, void *context)
{
	lock();
	ssize_t rc = cancel((struct endpoint *)fid, context);
	unlock();
	return rc;
}

static int get_option(fid_t fid, int level, int name, void *value, size_t *length)
{
	struct endpoint *ep = (struct endpoint *)fid;
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (*length < sizeof ep->min_multi)
		return -FI_ETOOSMALL;
	memcpy(value, &ep->min_multi, sizeof ep->min_multi);
	*length = sizeof ep->min_multi;
	return 0;
}

static int set_option(fid_t fid, int level, int name, const void *value, size_t length)
{
	struct endpoint *ep = (struct endpoint *)fid;
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (length != sizeof ep->min_multi)
		return -FI_EINVAL;
	lock();
	memcpy(&ep->min_multi, value, sizeof ep->min_multi);
	unlock();
	return 0;
}

static int no_tx(struct fid_ep *ep, int index, struct fi_tx_attr *attr, struct fid_ep **out, void *context)
{
	(void)ep, (void)index, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS;
}

static int no_rx(struct fid_ep *ep, int index, struct fi_rx_attr *attr, struct fid_ep **out, void *context)
{
	(void)ep, (void)index, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_size(struct fid_ep *ep)
{
	(void)ep;
	return -FI_ENOSYS;
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof ep_ops, .cancel = endpoint_cancel, .getopt = get_option, .setopt = set_option, .tx_ctx = no_tx, .rx_ctx = no_rx,
	.rx_size_left = no_size, .tx_size_left = no_size,
};

static struct fi_ops fid_ops = {
	.size = sizeof fid_ops, .close = endpoint_close, .bind = endpoint_bind, .control = endpoint_control, .ops_open = no_ops_open,
};

/* FI_OPT_MIN_MULTI_RECV unless the program sets it: a multi-receive buffer with fewer free bytes is
 * retired. */
#define MIN_MULTI_DEFAULT 64

/* serve handles what has arrived for an endpoint. */
static void serve(struct endpoint *ep)
{
	discard(ep);
	serve_untagged(ep);
	serve_accesses(ep);
}

/* served_all reports whether serve has nothing to do until the client has a completion. */
static bool served_all(const struct endpoint *ep) { return ep->unwanted == 0 && !awaits_self() && untagged_served(ep) && accesses_served(ep); }

int endpoint_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct endpoint *ep = calloc(1, sizeof *ep);
	if (ep == NULL)
		return -FI_ENOMEM;
	list_init(&ep->node);
	list_init(&ep->ops);
	for (unsigned i = 0; i < RECEIVES; i++) {
		list_init(&ep->receives[i]);
		list_init(&ep->buffers[i]);
	}
	list_init(&ep->claimed);
	list_init(&ep->posted);
	list_init(&ep->deferred);
	list_init(&ep->untagged.buffers_posted);
	list_init(&ep->requests.buffers_posted);
	ep->untagged.space = SPACE_MSG;
	ep->requests.space = SPACE_REQUEST;
	list_init(&ep->answers);
	ep->min_multi = MIN_MULTI_DEFAULT;
	ep->serve = serve;
	ep->served = served_all;
	ep->directed = (info->caps & FI_DIRECTED_RECV) != 0;
	ep->tx_flags = info->tx_attr != NULL ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr != NULL ? info->rx_attr->op_flags : 0;
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &fid_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &cm_ops;
	ep->fid.msg = &msg_ops;
	ep->fid.tagged = &tagged_ops;
	ep->fid.rma = &rma_ops;
	ep->fid.atomic = &atomic_ops;
	lock();
	ep->number = endpoints_made++;
	bind_to(ep->domain, (struct domain *)domain);
	hold_session();
	unlock();
	*out = &ep->fid;
	return 0;
}
