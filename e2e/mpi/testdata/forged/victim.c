/* Rank 0: a program over libfabric with buffers for many messages and with registered memory,
 * to which rank 1 (forger.c) sends forged messages. They must not change good messages that
 * were received, or memory outside the registered memory. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "forged.h"

enum { BUFFERS = 8, ROOM = 8192 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static unsigned char *good[64];
static unsigned goods, bad;

static void die(const char *what, int rc)
{
	fprintf(stderr, "victim: %s: %d\n", what, rc);
	exit(1);
}

#define must(call)                        \
	do {                              \
		int rc_ = (int)(call);    \
		if (rc_ != 0)             \
			die(#call, rc_);  \
	} while (0)

static void open_endpoint(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	hints->fabric_attr->prov_name = strdup("outrigger");
	must(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info));
	struct fi_av_attr table = {.type = FI_AV_TABLE};
	struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
	must(fi_fabric(info->fabric_attr, &fabric, NULL));
	must(fi_domain(fabric, info, &domain, NULL));
	must(fi_av_open(domain, &table, &av, NULL));
	must(fi_cq_open(domain, &queue, &cq, NULL));
	must(fi_endpoint(domain, info, &ep, NULL));
	must(fi_ep_bind(ep, &av->fid, 0));
	must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	must(fi_enable(ep));
	fi_freeinfo(hints);
	fi_freeinfo(info);
}

static bool intact(const unsigned char *b)
{
	for (int i = 0; i < GOOD_BYTES; i++)
		if (b[i] != (unsigned char)(GOOD_MARK + i))
			return false;
	return true;
}

static bool all(const unsigned char *b, size_t n, unsigned char v)
{
	for (size_t i = 0; i < n; i++)
		if (b[i] != v)
			return false;
	return true;
}

/* poll_for reads a completion, and reports whether it has the given context. */
static bool poll_for(const void *of)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	ssize_t n = fi_cq_read(cq, &e, 1);
	if (n == -FI_EAVAIL) {
		fi_cq_readerr(cq, &err, 0);
		bad++;
		return false;
	}
	if (n != 1)
		return false;
	if ((e.flags & FI_RECV) != 0 && (e.flags & FI_MSG) != 0 && e.len == GOOD_BYTES && e.buf != NULL && intact(e.buf) && goods < 64)
		good[goods++] = e.buf;
	return e.op_context == of;
}

static int over;

/* until waits for the forger's next message. */
static void until(fi_addr_t forger, int tag)
{
	must(fi_trecv(ep, NULL, 0, NULL, forger, (uint64_t)tag, 0, &over));
	while (!poll_for(&over))
		;
}

/* close_begun closes memory during accesses to it. Their origin waits until it is closed. */
static void close_begun(fi_addr_t forger, struct fid_mr *mr, unsigned char *memory)
{
	until(forger, TAG_OVER);
	for (int i = 0; i < 1000; i++)
		poll_for(NULL);
	must(fi_close(&mr->fid));
	memset(memory, 0x77, LONG_BYTES);
	FILE *f = fopen(CLOSED_FILE, "w");
	if (f == NULL || fclose(f) != 0)
		die("fopen", 0);
	until(forger, TAG_OVER);
	if (!all(memory, LONG_BYTES, 0x77))
		die("memory was written to after its registration was closed in the middle of a write", 0);
}

int main(void)
{
	static unsigned char room[BUFFERS][ROOM], memory[3 * REGION_BYTES];
	static unsigned char distant[LONG_BYTES], begun[LONG_BYTES];
	static int sent;
	struct fid_mr *mr, *closing, *middle;
	open_endpoint();
	memset(memory, 0x5a, sizeof memory);
	must(fi_mr_reg(domain, memory + REGION_BYTES, REGION_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	must(fi_mr_reg(domain, distant, sizeof distant, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &closing, NULL));
	memset(begun, BEGUN_MARK, sizeof begun);
	must(fi_mr_reg(domain, begun, sizeof begun, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &middle, NULL));
	for (int i = 0; i < BUFFERS; i++) {
		struct iovec v = {room[i], ROOM};
		struct fi_msg m = {.msg_iov = &v, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = room[i]};
		must(fi_recvmsg(ep, &m, FI_MULTI_RECV));
	}
	struct address name = {ADDRESS_MAGIC, 1, 0, 0};
	fi_addr_t forger;
	if (fi_av_insert(av, &name, 1, &forger, 0, NULL) != 1)
		die("fi_av_insert", 0);
	struct regions regions = {
		fi_mr_key(mr), (uint64_t)(uintptr_t)(memory + REGION_BYTES), fi_mr_key(closing), (uint64_t)(uintptr_t)distant, fi_mr_key(middle), (uint64_t)(uintptr_t)begun,
	};
	must(fi_trecv(ep, NULL, 0, NULL, forger, TAG_OVER, 0, &over));
	must(fi_tsend(ep, &regions, sizeof regions, NULL, forger, TAG_REGIONS, &sent));
	while (!poll_for(&over))
		;
	for (int i = 0; i < 1000; i++)
		poll_for(NULL);
	/* The forger's accesses have begun, and it continues them only after the message below. */
	must(fi_close(&closing->fid));
	memset(distant, 0x77, sizeof distant);
	must(fi_trecv(ep, NULL, 0, NULL, forger, TAG_OVER, 0, &over));
	must(fi_tinject(ep, NULL, 0, forger, TAG_CLOSED));
	while (!poll_for(&over))
		;
	if (!all(distant, sizeof distant, 0x77))
		die("memory was written to after its registration was closed", 0);
	close_begun(forger, middle, begun);
	for (unsigned i = 0; i < goods; i++)
		if (!intact(good[i]))
			die("a good message was overwritten", (int)i);
	for (int i = 0; i < REGION_BYTES; i++)
		if (memory[i] != 0x5a || memory[2 * REGION_BYTES + i] != 0x5a)
			die("memory outside the region was written to", i);
	printf("victim: %u good messages are unhurt, %u bad ones had an error\n", goods, bad);
	fflush(stdout);
	_exit(goods == GOODS ? 5 : 1); /* a regular end would wait for the forger to receive its answers */
}
