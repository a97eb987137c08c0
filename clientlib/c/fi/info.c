/* fi_getinfo: the provider's capabilities and limits, and whether they satisfy a program's hints. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#define TAG_BITS 0xaaaaaaaaaaaaaaaaull /* all 64 (fi_endpoint(3), mem_tag_format) */

static void *make(size_t bytes) { return calloc(1, bytes + SLACK); }

static void free_info(struct fi_info *i)
{
	if (i->fabric_attr != NULL)
		free(i->fabric_attr->name);
	if (i->domain_attr != NULL)
		free(i->domain_attr->name);
	free(i->tx_attr);
	free(i->rx_attr);
	free(i->ep_attr);
	free(i->domain_attr);
	free(i->fabric_attr);
	free(i);
}

static struct fi_info *new_info(void)
{
	struct fi_info *i = make(sizeof *i);
	if (i == NULL)
		return NULL;
	i->tx_attr = make(sizeof *i->tx_attr);
	i->rx_attr = make(sizeof *i->rx_attr);
	i->ep_attr = make(sizeof *i->ep_attr);
	i->domain_attr = make(sizeof *i->domain_attr);
	i->fabric_attr = make(sizeof *i->fabric_attr);
	bool whole = i->tx_attr != NULL && i->rx_attr != NULL && i->ep_attr != NULL && i->domain_attr != NULL && i->fabric_attr != NULL;
	if (whole) {
		i->fabric_attr->name = strdup(PROVIDER_NAME);
		i->domain_attr->name = strdup(PROVIDER_NAME);
		whole = i->fabric_attr->name != NULL && i->domain_attr->name != NULL;
	}
	if (whole)
		return i;
	free_info(i);
	return NULL;
}

static bool named(const char *wanted, const char *name) { return wanted == NULL || strcmp(wanted, name) == 0; }

/* fits_transfer reports whether the provider has what the hints require of operations. Completions
 * are in the order in which operations end; FI_COMMIT_COMPLETE and FI_FENCE are not supported. */
static bool fits_transfer(uint64_t msg_order, uint64_t comp_order, uint64_t op_flags, size_t size, size_t iov_limit)
{
	return (msg_order & ~ORDERS) == 0 && comp_order == FI_ORDER_NONE && (op_flags & (FI_COMMIT_COMPLETE | FI_FENCE)) == 0 && size <= QUEUE_SIZE &&
	       iov_limit <= IOV_LIMIT;
}

/* fits reports whether the provider has everything that the hints require. */
static bool fits(const struct fi_info *h)
{
	const struct fi_ep_attr *e = h->ep_attr;
	const struct fi_domain_attr *d = h->domain_attr;
	const struct fi_tx_attr *t = h->tx_attr;
	const struct fi_rx_attr *r = h->rx_attr;
	if ((h->caps & ~CAPS_ALL) != 0 || h->addr_format != FI_FORMAT_UNSPEC)
		return false;
	if (e != NULL && e->protocol != FI_PROTO_UNSPEC)
		return false;
	if (e != NULL && ((e->type != FI_EP_UNSPEC && e->type != FI_EP_RDM) || e->tx_ctx_cnt > 1 || e->rx_ctx_cnt > 1))
		return false;
	if (t != NULL && (t->inject_size > INJECT_MAX || t->rma_iov_limit > 1 || !fits_transfer(t->msg_order, t->comp_order, t->op_flags, t->size, t->iov_limit)))
		return false;
	if (r != NULL && !fits_transfer(r->msg_order, r->comp_order, r->op_flags, r->size, r->iov_limit))
		return false;
	if (d != NULL && (!named(d->name, PROVIDER_NAME) || d->cq_data_size > sizeof(uint32_t) || d->data_progress == FI_PROGRESS_AUTO || d->control_progress == FI_PROGRESS_AUTO))
		return false;
	return h->fabric_attr == NULL || named(h->fabric_attr->name, PROVIDER_NAME);
}

#define MESSAGES (FI_MSG | FI_TAGGED)
#define MESSAGES_WAYS (FI_SEND | FI_RECV)
#define ACCESSES_WAYS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* granted returns the capabilities for a program that requests asked: the primary capabilities that
 * it names, with the modifiers that it names, or with all of them if it names none; and secondary
 * capabilities that cost nothing (fi_getinfo(3), Capabilities). Without FI_DIRECTED_RECV the
 * source that a receive names is ignored. */
static uint64_t granted(uint64_t asked)
{
	if (asked == 0)
		return CAPS_ALL;
	uint64_t caps = (asked & (MESSAGES | CAPS_ACCESS | FI_DIRECTED_RECV)) | CAPS_COMM;
	if ((asked & MESSAGES) != 0)
		caps |= (asked & MESSAGES_WAYS) != 0 ? asked & MESSAGES_WAYS : MESSAGES_WAYS;
	if ((asked & CAPS_ACCESS) != 0)
		caps |= (asked & ACCESSES_WAYS) != 0 ? asked & ACCESSES_WAYS : ACCESSES_WAYS;
	if ((caps & FI_MSG) != 0 && (caps & FI_RECV) != 0)
		caps |= FI_MULTI_RECV;
	return caps;
}

static void fill_transfer(struct fi_info *i, const struct fi_info *h)
{
	struct fi_tx_attr *t = i->tx_attr;
	struct fi_rx_attr *r = i->rx_attr;
	t->caps = (CAPS_SEND | CAPS_ORIGIN) & i->caps;
	r->caps = (CAPS_RECV | CAPS_TARGET) & i->caps;
	t->msg_order = r->msg_order = ORDERS;
	t->rma_iov_limit = 1;
	t->inject_size = INJECT_MAX;
	t->size = r->size = QUEUE_SIZE;
	t->iov_limit = r->iov_limit = IOV_LIMIT;
	if (h != NULL && h->tx_attr != NULL)
		t->op_flags = h->tx_attr->op_flags;
	if (h != NULL && h->rx_attr != NULL)
		r->op_flags = h->rx_attr->op_flags;
}

/* mr_mode_for returns the mode of memory registration: random keys (FI_MR_PROV_KEY), virtual
 * addresses of the target, and memory that is allocated, each only if the program supports it. */
static int mr_mode_for(const struct fi_domain_attr *h)
{
	int mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	if (h == NULL)
		return mode;
	return (h->mr_mode & FI_MR_BASIC) != 0 ? FI_MR_BASIC : mode & h->mr_mode;
}

static void fill_domain(struct fi_domain_attr *d, const struct fi_domain_attr *h)
{
	/* The requested level is returned, because MPICH checks it to recognize the provider that it
	 * asked for. All levels are satisfied: the provider is thread-safe. */
	d->threading = h != NULL && h->threading != FI_THREAD_UNSPEC ? h->threading : FI_THREAD_SAFE;
	d->control_progress = d->data_progress = FI_PROGRESS_MANUAL;
	d->resource_mgmt = FI_RM_ENABLED;
	d->av_type = h != NULL && h->av_type != FI_AV_UNSPEC ? h->av_type : FI_AV_TABLE;
	d->mr_mode = mr_mode_for(h);
	d->mr_key_size = sizeof(uint64_t);
	d->cq_data_size = sizeof(uint32_t);
	d->cq_cnt = d->ep_cnt = d->cntr_cnt = d->tx_ctx_cnt = d->rx_ctx_cnt = 1024;
	d->max_ep_tx_ctx = d->max_ep_rx_ctx = 1;
	d->mr_iov_limit = 1;
	d->mr_cnt = REGISTRATIONS_MAX;
	d->caps = CAPS_COMM;
}

int provider_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **info)
{
	(void)version, (void)node, (void)service, (void)flags;
	/* Without a sidecar the provider offers nothing, and the MPI uses another transport. */
	if (getenv("OUTRIGGER_SOCKET") == NULL || (hints != NULL && !fits(hints)))
		return -FI_ENODATA;
	struct fi_info *i = new_info();
	if (i == NULL)
		return -FI_ENOMEM;
	i->caps = granted(hints == NULL ? 0 : hints->caps);
	i->addr_format = FI_FORMAT_UNSPEC;
	i->fabric_attr->prov_version = provider.version;
	i->ep_attr->type = FI_EP_RDM;
	i->ep_attr->protocol = FI_PROTO_UNSPEC;
	i->ep_attr->max_msg_size = SIZE_MAX;
	i->ep_attr->tx_ctx_cnt = i->ep_attr->rx_ctx_cnt = 1;
	i->ep_attr->mem_tag_format = TAG_BITS;
	fill_transfer(i, hints);
	fill_domain(i->domain_attr, hints == NULL ? NULL : hints->domain_attr);
	*info = i;
	return 0;
}

static void cleanup(void) {}

struct fi_provider provider = {
	.version = FI_VERSION(1, 0),
	.fi_version = FI_VERSION(2, 99), /* libfabric skips a provider whose version is older than the one that the program requests */
	.name = PROVIDER_NAME,
	.getinfo = provider_getinfo,
	.fabric = fabric_open,
	.cleanup = cleanup,
};

struct fi_provider *fi_prov_ini(void);

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void) { return &provider; }
