#include "provider.h"

/* Tests hints of fi_getinfo and objects without an endpoint. */

/* ask changes one field of valid hints. */
struct asking {
	const char *what;
	void (*ask)(struct fi_info *hints);
};

static void an_order(struct fi_info *h) { h->rx_attr->comp_order = FI_ORDER_STRICT; }
static void an_address(struct fi_info *h) { h->addr_format = FI_SOCKADDR_IN; }
static void a_protocol(struct fi_info *h) { h->ep_attr->protocol = FI_PROTO_MLX; }
static void a_fence(struct fi_info *h) { h->tx_attr->op_flags = FI_FENCE; }
static void storage(struct fi_info *h) { h->tx_attr->op_flags = FI_COMMIT_COMPLETE; }
static void a_large_queue(struct fi_info *h) { h->rx_attr->size = 1 << 20; }
static void nothing_more(struct fi_info *h) { (void)h; }

static void hints(void)
{
	static const struct asking all[] = {
		{"completions in order", an_order}, {"addresses of IP", an_address}, {"a protocol", a_protocol}, {"a fence", a_fence},
		{"storage", storage}, {"a queue of a million", a_large_queue}, {"nothing more", nothing_more},
	};
	scenario = "what hints ask for";
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct fi_info *h = fi_allocinfo(), *info = NULL;
		h->caps = FI_MSG | FI_TAGGED;
		h->ep_attr->type = FI_EP_RDM;
		h->fabric_attr->prov_name = strdup("outrigger");
		all[i].ask(h);
		int rc = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, h, &info);
		want(rc == (all[i].ask == nothing_more ? 0 : -FI_ENODATA), "%s: %d", all[i].what, rc);
		fi_freeinfo(h);
		fi_freeinfo(info);
	}
}

/* addresses checks that each address has a status if the program asks for that (fi_av(3)). */
static void addresses(struct side *s)
{
	unsigned char names[2][64] = {{0}};
	size_t n = sizeof names[0];
	int statuses[2] = {-1, -1};
	fi_addr_t out[2];
	struct fid_av *av;
	scenario = "statuses of addresses";
	must(fi_getname(&s->ep->fid, names[0], &n));
	memset(names[0] + n, 0x5a, n); /* the second address is invalid */
	want(fi_av_insert(s->av, names[0], 2, out, FI_SYNC_ERR, statuses) == 1, "one of two is good");
	want(statuses[0] == 0 && statuses[1] != 0, "statuses %d and %d", statuses[0], statuses[1]);
	want(out[0] == s->self && out[1] == FI_ADDR_NOTAVAIL, "addresses");
	want(fi_av_open(s->domain, &(struct fi_av_attr){.flags = FI_EVENT}, &av, NULL) == -FI_ENOSYS, "insertions that end by events");
}

/* Functions that each open an object of a domain. */

static struct fid *an_av(struct fid_domain *d)
{
	struct fid_av *av;
	must(fi_av_open(d, &(struct fi_av_attr){.type = FI_AV_TABLE}, &av, NULL));
	return &av->fid;
}

static struct fid *a_queue(struct fid_domain *d)
{
	struct fid_cq *cq;
	must(fi_cq_open(d, &(struct fi_cq_attr){.format = FI_CQ_FORMAT_TAGGED}, &cq, NULL));
	return &cq->fid;
}

static struct fid *a_counter(struct fid_domain *d)
{
	struct fid_cntr *counter;
	must(fi_cntr_open(d, &(struct fi_cntr_attr){.events = FI_CNTR_EVENTS_COMP}, &counter, NULL));
	return &counter->fid;
}

static struct fid *a_registration(struct fid_domain *d)
{
	static unsigned char memory[64];
	struct fid_mr *mr;
	must(fi_mr_reg(d, memory, sizeof memory, FI_REMOTE_READ, 0, 1, 0, &mr, NULL));
	return &mr->fid;
}

/* domains checks that a domain with an open object cannot be closed (fi_domain(3)). */
static void domains(struct side *s)
{
	static struct fid *(*const openers[])(struct fid_domain *d) = {an_av, a_queue, a_counter, a_registration};
	struct fid_domain *d;
	scenario = "closing a domain";
	must(fi_domain(s->fabric, s->info, &d, NULL));
	for (size_t i = 0; i < sizeof openers / sizeof *openers; i++) {
		struct fid *open = openers[i](d);
		want(fi_close(&d->fid) == -FI_EBUSY, "with thing %zu open", i);
		must(fi_close(open));
	}
	must(fi_close(&d->fid));
}

void offers(struct side *s)
{
	hints();
	addresses(s);
	domains(s);
}
