// library.h: libibverbs, loaded at run time. Each pointer has the type of the function in
// the header.
#include <dlfcn.h>
#include <stddef.h>

#include <infiniband/verbs.h>

// The header defines macros for functions that newer libraries provide in another way;
// these are the functions that every version has.
#undef ibv_query_port
#undef ibv_reg_mr_iova

#define FUNCTIONS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) \
	X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_port) X(_ibv_query_gid_table) \
	X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_dereg_mr) \
	X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_destroy_cq) \
	X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_get_async_event) X(ibv_ack_async_event) \
	X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_query_qp) X(ibv_event_type_str) \
	X(ibv_create_srq) X(ibv_destroy_srq)

#define POINTER(f) static __typeof__(f) *p_##f;
FUNCTIONS(POINTER)
// struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access)
static struct ibv_mr *(*p_ibv_reg_mr_iova)(struct ibv_pd *, void *, size_t, uint64_t, int);
// int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t
// flags); since 1.14, NULL in older versions
static int (*p_ibv_query_qp_data_in_order)(struct ibv_qp *, enum ibv_wr_opcode, uint32_t);

// load finds all functions, and returns NULL or the error.
static const char *load(void)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return dlerror();
#define FIND(f) \
	if (!(p_##f = (__typeof__(p_##f))dlsym(lib, #f))) \
		return "it has no function " #f;
	FUNCTIONS(FIND)
	FIND(ibv_reg_mr_iova)
	p_ibv_query_qp_data_in_order = (__typeof__(p_ibv_query_qp_data_in_order))dlsym(lib, "ibv_query_qp_data_in_order");
	return NULL;
}

// The wrappers below exist because Go can call functions, but not pointers to functions.

static struct ibv_device **call_get_device_list(int *n) { return p_ibv_get_device_list(n); }

static void call_free_device_list(struct ibv_device **list) { p_ibv_free_device_list(list); }

static const char *call_get_device_name(struct ibv_device *d) { return p_ibv_get_device_name(d); }

static struct ibv_context *call_open_device(struct ibv_device *d) { return p_ibv_open_device(d); }

static int call_close_device(struct ibv_context *c) { return p_ibv_close_device(c); }

static int call_query_device(struct ibv_context *c, struct ibv_device_attr *a) { return p_ibv_query_device(c, a); }

// The library fills only the fields that existed when the function was introduced.
static int call_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	memset(a, 0, sizeof *a);
	return p_ibv_query_port(c, port, (struct _compat_ibv_port_attr *)a);
}

static ssize_t call_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max)
{
	return p__ibv_query_gid_table(c, e, max, 0, sizeof *e);
}

static struct ibv_pd *call_alloc_pd(struct ibv_context *c) { return p_ibv_alloc_pd(c); }

static int call_dealloc_pd(struct ibv_pd *pd) { return p_ibv_dealloc_pd(pd); }

static struct ibv_comp_channel *call_create_comp_channel(struct ibv_context *c) { return p_ibv_create_comp_channel(c); }

static int call_destroy_comp_channel(struct ibv_comp_channel *ch) { return p_ibv_destroy_comp_channel(ch); }

static struct ibv_cq *call_create_cq(struct ibv_context *c, int n, struct ibv_comp_channel *ch)
{
	return p_ibv_create_cq(c, n, NULL, ch, 0);
}

static int call_destroy_cq(struct ibv_cq *cq) { return p_ibv_destroy_cq(cq); }

static struct ibv_qp *call_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a) { return p_ibv_create_qp(pd, a); }

static int call_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask) { return p_ibv_modify_qp(qp, a, mask); }

static int call_destroy_qp(struct ibv_qp *qp) { return p_ibv_destroy_qp(qp); }

// call_query_state returns the state of a queue pair, or a negative errno.
static int call_query_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	int rc = p_ibv_query_qp(qp, &a, IBV_QP_STATE, &init);

	return rc ? -rc : (int)a.qp_state;
}

static struct ibv_srq *call_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a) { return p_ibv_create_srq(pd, a); }

static int call_destroy_srq(struct ibv_srq *srq) { return p_ibv_destroy_srq(srq); }

static int call_data_in_order(struct ibv_qp *qp)
{
	return p_ibv_query_qp_data_in_order && p_ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 1;
}

static struct ibv_mr *call_reg_mr(struct ibv_pd *pd, uint64_t at, size_t n, uint64_t iova, int access)
{
	return p_ibv_reg_mr_iova(pd, (void *)(uintptr_t)at, n, iova, access);
}

static int call_dereg_mr(uintptr_t mr) { return p_ibv_dereg_mr((struct ibv_mr *)mr); }

// call_drain_cq_events reads and acknowledges all events. The descriptor does not block.
static void call_drain_cq_events(struct ibv_comp_channel *ch, struct ibv_cq *cq)
{
	struct ibv_cq *which;
	void *context;
	unsigned int n = 0;

	while (p_ibv_get_cq_event(ch, &which, &context) == 0)
		n++;
	if (n)
		p_ibv_ack_cq_events(cq, n);
}

// call_get_async_event returns the kind of the next event, or -1. n is the number of its
// queue pair; for a port event it is not 0 if the port is ours.
static int call_get_async_event(struct ibv_context *c, int port, uint32_t *n)
{
	struct ibv_async_event e;
	int kind;

	*n = 0;
	if (p_ibv_get_async_event(c, &e))
		return -1;
	kind = e.event_type;
	switch (kind) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		*n = e.element.qp->qp_num;
		break;
	case IBV_EVENT_PORT_ERR:
		*n = e.element.port_num == port;
		break;
	}
	p_ibv_ack_async_event(&e);
	return kind;
}

static const char *call_event_type_str(enum ibv_event_type kind) { return p_ibv_event_type_str(kind); }
