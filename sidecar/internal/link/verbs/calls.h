// calls.h: the structures that Go and C exchange, with the layout of nic.go, and the calls
// that work on lists. Go passes queues as numbers: for pointers cgo would check at each
// call whether they point to Go memory, which takes a hundred instructions.
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <infiniband/verbs.h>

struct request {
	uint64_t id, addr, addr2, remote;
	uint32_t length, length2, lkey, lkey2, rkey, op, flags, imm;
};

struct completion {
	uint64_t id;
	uint32_t status, raw, op, length, imm, pair;
};

_Static_assert(sizeof(struct request) == 64, "request of nic.go");
_Static_assert(sizeof(struct completion) == 32, "completion of nic.go");

enum { OP_SEND, OP_WRITE, OP_WRITE_NOTIFY, OP_READ, OP_RECEIVE, OP_RECEIVE_NOTIFY };
enum { FLAG_SIGNAL = 1, FLAG_INLINE = 2 };
enum { POST_MAX = 16, POLL_MAX = 64 };

// int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
static int post(uintptr_t qp, const struct request *r, int n)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[OP_SEND] = IBV_WR_SEND_WITH_IMM, [OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_WRITE_NOTIFY] = IBV_WR_RDMA_WRITE_WITH_IMM, [OP_READ] = IBV_WR_RDMA_READ,
	};
	struct ibv_send_wr wr[POST_MAX], *bad;
	struct ibv_sge sge[2 * POST_MAX];

	if (n < 1 || n > POST_MAX)
		return EINVAL;
	for (int i = 0; i < n; i++) {
		struct ibv_send_wr *w = &wr[i];
		struct ibv_sge *s = &sge[2 * i];
		int k = 0;

		if (r[i].length)
			s[k++] = (struct ibv_sge){.addr = r[i].addr, .length = r[i].length, .lkey = r[i].lkey};
		if (r[i].length2)
			s[k++] = (struct ibv_sge){.addr = r[i].addr2, .length = r[i].length2, .lkey = r[i].lkey2};
		memset(w, 0, sizeof *w);
		w->wr_id = r[i].id;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->sg_list = s;
		w->num_sge = k;
		w->opcode = opcodes[r[i].op & 3];
		w->imm_data = htonl(r[i].imm);
		w->wr.rdma.remote_addr = r[i].remote;
		w->wr.rdma.rkey = r[i].rkey;
		if (r[i].flags & FLAG_SIGNAL)
			w->send_flags |= IBV_SEND_SIGNALED;
		if (r[i].flags & FLAG_INLINE)
			w->send_flags |= IBV_SEND_INLINE;
	}
	return ibv_post_send((struct ibv_qp *)qp, wr, &bad);
}

// int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
// int ibv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *recv_wr, struct ibv_recv_wr **bad_recv_wr)
// receive posts to qp, or to srq if it is not 0.
static int receive(uintptr_t qp, uintptr_t srq, uint64_t base, uint32_t lkey, uint32_t size, const int32_t *slots, int n, uint64_t id)
{
	struct ibv_recv_wr wr[POST_MAX], *bad;
	struct ibv_sge sge[POST_MAX];

	if (n < 1 || n > POST_MAX)
		return EINVAL;
	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.addr = base + (uint64_t)slots[i] * size, .length = size, .lkey = lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = id | slots[i], .sg_list = &sge[i], .num_sge = 1, .next = i + 1 < n ? &wr[i + 1] : NULL};
	}
	return srq ? ibv_post_srq_recv((struct ibv_srq *)srq, wr, &bad) : ibv_post_recv((struct ibv_qp *)qp, wr, &bad);
}

// int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
static int poll_cq(uintptr_t cq, struct completion *to, int n)
{
	struct ibv_wc wc[POLL_MAX];

	n = ibv_poll_cq((struct ibv_cq *)cq, n < POLL_MAX ? n : POLL_MAX, wc);
	for (int i = 0; i < n; i++) {
		uint32_t op = OP_SEND;

		if (wc[i].opcode == IBV_WC_RECV)
			op = OP_RECEIVE;
		else if (wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
			op = OP_RECEIVE_NOTIFY;
		to[i] = (struct completion){
			.id = wc[i].wr_id, .raw = wc[i].status, .op = op, .length = wc[i].byte_len, .imm = ntohl(wc[i].imm_data), .pair = wc[i].qp_num,
		};
	}
	return n;
}

// int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
static int notify_cq(struct ibv_cq *cq) { return ibv_req_notify_cq(cq, 0); }
