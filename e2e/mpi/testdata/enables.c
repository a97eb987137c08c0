/* A process that closes all its objects of libfabric, and opens them again. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void want(long rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s: %ld\n", what, rc);
	exit(1);
}

/* once opens an endpoint, sends a message to itself and closes everything. */
static void once(struct fi_info *fi, int number)
{
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fi_av_attr table = {.type = FI_AV_TABLE};
	struct fi_cq_attr tagged = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_cq_tagged_entry entry;
	char name[64];
	size_t length = sizeof name;
	fi_addr_t self;
	int in = -1, ended = 0;
	want(fi_fabric(fi->fabric_attr, &fabric, NULL), "fi_fabric");
	want(fi_domain(fabric, fi, &domain, NULL), "fi_domain");
	want(fi_av_open(domain, &table, &av, NULL), "fi_av_open");
	want(fi_cq_open(domain, &tagged, &cq, NULL), "fi_cq_open");
	want(fi_endpoint(domain, fi, &ep, NULL), "fi_endpoint");
	want(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
	want(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	want(fi_enable(ep), "fi_enable");
	want(fi_getname(&ep->fid, name, &length), "fi_getname");
	want(fi_av_insert(av, name, 1, &self, 0, NULL) != 1, "fi_av_insert");
	want(fi_trecv(ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, 7, 0, NULL), "fi_trecv");
	want(fi_tsend(ep, &number, sizeof number, NULL, self, 7, NULL), "fi_tsend");
	while (ended < 2) {
		ssize_t n = fi_cq_read(cq, &entry, 1);
		want(n != 1 && n != -FI_EAGAIN, "fi_cq_read");
		ended += n == 1;
	}
	want(in != number, "the message of another time");
	want(fi_close(&ep->fid), "closing the endpoint");
	want(fi_close(&cq->fid), "closing the queue");
	want(fi_close(&av->fid), "closing the addresses");
	want(fi_close(&domain->fid), "closing the domain");
	want(fi_close(&fabric->fid), "closing the fabric");
}

int main(void)
{
	struct fi_info *hints = fi_allocinfo(), *fi;
	hints->caps = FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("outrigger");
	hints->domain_attr->mr_mode = -1;
	want(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &fi), "fi_getinfo");
	for (int i = 0; i < 5; i++)
		once(fi, i);
	fi_freeinfo(fi);
	printf("enabled 5 times\n");
	return 0;
}
