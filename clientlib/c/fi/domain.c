/* Fabrics, domains and event queues: they hold the session open and create other objects, and
 * have almost no operations of their own. */
#include <stdlib.h>

#include "provider.h"

struct fabric {
	struct fid_fabric fid;
	char slack[SLACK];
};

struct eq {
	struct fid_eq fid;
	char slack[SLACK];
};

/* close_holder closes an object that holds the session. */
static int close_holder(struct fid *fid)
{
	lock();
	release_session();
	unlock();
	free(fid);
	return 0;
}

static int close_domain(struct fid *fid)
{
	lock();
	bool used = ((struct domain *)fid)->users > 0;
	unlock();
	return used ? -FI_EBUSY : close_holder(fid);
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof domain_fid_ops, .close = close_domain, .bind = no_bind, .control = no_control, .ops_open = no_ops_open,
};

static struct fi_ops holder_ops = {
	.size = sizeof holder_ops, .close = close_holder, .bind = no_bind, .control = no_control, .ops_open = no_ops_open,
};

/* init_holder initializes an object that holds the session. */
static void init_holder(struct fid *fid, size_t class, void *context)
{
	fid->fclass = class;
	fid->context = context;
	fid->ops = &holder_ops;
	lock();
	hold_session();
	unlock();
}

#define EQ_CHECK_NS UINT64_C(10000000) /* time between two checks whether the sidecar has ended */

static ssize_t eq_nothing(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
	(void)eq, (void)event, (void)buf, (void)len, (void)flags;
	return -FI_EAGAIN;
}

static ssize_t eq_no_error(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags)
{
	(void)eq, (void)buf, (void)flags;
	return -FI_EAGAIN;
}

static ssize_t eq_no_write(struct fid_eq *eq, uint32_t event, const void *buf, size_t len, uint64_t flags)
{
	(void)eq, (void)event, (void)buf, (void)len, (void)flags;
	return -FI_ENOSYS;
}

/* eq_wait waits for timeout milliseconds or until the sidecar ends. There are no events. */
static ssize_t eq_wait(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
	(void)eq, (void)event, (void)buf, (void)len, (void)flags;
	const uint64_t since = nanoseconds(), most = (uint64_t)(timeout < 0 ? 0 : timeout) * 1000000;
	for (;;) {
		uint64_t waited = nanoseconds() - since, left = timeout < 0 || most - waited > EQ_CHECK_NS ? EQ_CHECK_NS : most - waited;
		if (timeout >= 0 && waited >= most)
			return -FI_EAGAIN;
		lock();
		progress();
		bool ended = sidecar_ended;
		unlock();
		if (ended)
			return -FI_ECONNABORTED;
		if (nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL) != 0)
			return -FI_EINTR;
	}
}

static const char *eq_text(struct fid_eq *eq, int code, const void *data, char *buf, size_t len)
{
	(void)eq, (void)code, (void)data, (void)buf, (void)len;
	return "no event has an error";
}

static struct fi_ops_eq eq_ops = {
	.size = sizeof eq_ops, .read = eq_nothing, .readerr = eq_no_error, .write = eq_no_write, .sread = eq_wait, .strerror = eq_text,
};

/* eq_open opens an event queue, which never has an event: all operations that could report by
 * events are synchronous. */
static int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	(void)fabric, (void)attr;
	struct eq *e = calloc(1, sizeof *e);
	if (e == NULL)
		return -FI_ENOMEM;
	init_holder(&e->fid.fid, FI_CLASS_EQ, context);
	e->fid.ops = &eq_ops;
	*out = &e->fid;
	return 0;
}

static int no_scalable(struct fid_domain *d, struct fi_info *i, struct fid_ep **ep, void *context)
{
	(void)d, (void)i, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *d, struct fi_poll_attr *a, struct fid_poll **p)
{
	(void)d, (void)a, (void)p;
	return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *d, struct fi_tx_attr *a, struct fid_stx **s, void *context)
{
	(void)d, (void)a, (void)s, (void)context;
	return -FI_ENOSYS;
}

static int no_srx(struct fid_domain *d, struct fi_rx_attr *a, struct fid_ep **e, void *context)
{
	(void)d, (void)a, (void)e, (void)context;
	return -FI_ENOSYS;
}

static int no_collective(struct fid_domain *d, enum fi_collective_op coll, struct fi_collective_attr *a, uint64_t flags)
{
	(void)d, (void)coll, (void)a, (void)flags;
	return -FI_ENOSYS;
}

static struct fi_ops_domain domain_ops = {
	.size = sizeof domain_ops, .av_open = av_open, .cq_open = cq_open, .endpoint = endpoint_open, .scalable_ep = no_scalable,
	.cntr_open = counter_open, .poll_open = no_poll, .stx_ctx = no_stx, .srx_ctx = no_srx, .query_atomic = query_atomic,
	.query_collective = no_collective,
};

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **out, void *context)
{
	(void)fabric;
	struct domain *d = calloc(1, sizeof *d);
	if (d == NULL)
		return -FI_ENOMEM;
	init_holder(&d->fid.fid, FI_CLASS_DOMAIN, context);
	d->fid.fid.ops = &domain_fid_ops;
	d->fid.ops = &domain_ops;
	d->fid.mr = &mr_ops;
	d->mr_mode = info->domain_attr != NULL ? info->domain_attr->mr_mode : 0;
	*out = &d->fid;
	return 0;
}

static int no_passive(struct fid_fabric *f, struct fi_info *i, struct fid_pep **p, void *context)
{
	(void)f, (void)i, (void)p, (void)context;
	return -FI_ENOSYS;
}

static int no_wait(struct fid_fabric *f, struct fi_wait_attr *a, struct fid_wait **w)
{
	(void)f, (void)a, (void)w;
	return -FI_ENOSYS;
}

static int try_wait(struct fid_fabric *f, struct fid **fids, int count)
{
	(void)f, (void)fids, (void)count;
	return 0;
}

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof fabric_ops, .domain = domain_open, .passive_ep = no_passive, .eq_open = eq_open, .wait_open = no_wait, .trywait = try_wait,
};

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	(void)attr;
	struct fabric *f = calloc(1, sizeof *f);
	if (f == NULL)
		return -FI_ENOMEM;
	init_holder(&f->fid.fid, FI_CLASS_FABRIC, context);
	f->fid.ops = &fabric_ops;
	*out = &f->fid;
	return 0;
}
