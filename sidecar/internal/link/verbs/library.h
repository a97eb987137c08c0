// library.h: libibverbs, loaded at run time. A pointer has the type that the
// header gives the function.
#include <dlfcn.h>
#include <stddef.h>

#include <infiniband/verbs.h>

// The header makes macros of what newer libraries do in other ways; here are the
// functions that every one has.
#undef ibv_query_port
#undef ibv_reg_mr_iova

#define FUNCTIONS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) \
	X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_port) X(_ibv_query_gid_table) \
	X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_dereg_mr) \
	X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_destroy_cq) \
	X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_get_async_event) X(ibv_ack_async_event) \
	X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_event_type_str)

#define POINTER(f) static __typeof__(f) *p_##f;
FUNCTIONS(POINTER)
// struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access)
static struct ibv_mr *(*p_ibv_reg_mr_iova)(struct ibv_pd *, void *, size_t, uint64_t, int);
// int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags); since 1.14, may be missing
static int (*p_ibv_query_qp_data_in_order)(struct ibv_qp *, enum ibv_wr_opcode, uint32_t);

// load finds everything, and returns NULL or what is missing.
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
