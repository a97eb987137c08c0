/* Atomics (fi_atomic(3)): which exist, how the target executes them, and libfabric's calls. */
#include <complex.h>
#include <string.h>

#include "access.h"

/* ELEMENTS executes a statement on each element a of memory and b of the operands. Memory at the
 * target may be misaligned; therefore elements are copied. */
#define ELEMENTS(T, ...)                                                        \
	for (size_t i = 0; i < n; i++) {                                        \
		T a, b;                                                         \
		memcpy(&a, memory + i * sizeof a, sizeof a);                    \
		memcpy(&b, operand + i * sizeof b, sizeof b);                   \
		__VA_ARGS__;                                                    \
		memcpy(memory + i * sizeof a, &a, sizeof a);                    \
	}                                                                       \
	return true

#define ORDERED(T)                                                              \
	case FI_MIN: ELEMENTS(T, a = b < a ? b : a);                            \
	case FI_MAX: ELEMENTS(T, a = b > a ? b : a);                            \
	case FI_LOR: ELEMENTS(T, a = a != 0 || b != 0);                         \
	case FI_LAND: ELEMENTS(T, a = a != 0 && b != 0);                        \
	case FI_LXOR: ELEMENTS(T, a = (a != 0) != (b != 0))

/* Sums and products of integers are modulo 2^n. They are computed as unsigned integers, because
 * overflow of signed ones is undefined in C. */
#define INTEGER(NAME, T)                                                        \
	static bool NAME(enum fi_op op, unsigned char *memory, const unsigned char *operand, size_t n) \
	{                                                                       \
		switch ((int)op) {                                              \
			ORDERED(T);                                             \
		case FI_SUM: ELEMENTS(T, a = (T)((uint64_t)a + (uint64_t)b));   \
		case FI_PROD: ELEMENTS(T, a = (T)((uint64_t)a * (uint64_t)b));  \
		case FI_BOR: ELEMENTS(T, a = (T)(a | b));                       \
		case FI_BAND: ELEMENTS(T, a = (T)(a & b));                      \
		case FI_BXOR: ELEMENTS(T, a = (T)(a ^ b));                      \
		case FI_ATOMIC_WRITE: ELEMENTS(T, a = b);                       \
		}                                                               \
		return false;                                                   \
	}

#define REAL(NAME, T)                                                           \
	static bool NAME(enum fi_op op, unsigned char *memory, const unsigned char *operand, size_t n) \
	{                                                                       \
		switch ((int)op) {                                              \
			ORDERED(T);                                             \
		case FI_SUM: ELEMENTS(T, a += b);                               \
		case FI_PROD: ELEMENTS(T, a *= b);                              \
		case FI_ATOMIC_WRITE: ELEMENTS(T, a = b);                       \
		}                                                               \
		return false;                                                   \
	}

#define COMPLEX(NAME, T)                                                        \
	static bool NAME(enum fi_op op, unsigned char *memory, const unsigned char *operand, size_t n) \
	{                                                                       \
		switch ((int)op) {                                              \
		case FI_SUM: ELEMENTS(T, a += b);                               \
		case FI_PROD: ELEMENTS(T, a *= b);                              \
		case FI_ATOMIC_WRITE: ELEMENTS(T, a = b);                       \
		}                                                               \
		return false;                                                   \
	}

INTEGER(int8, int8_t)
INTEGER(uint8, uint8_t)
INTEGER(int16, int16_t)
INTEGER(uint16, uint16_t)
INTEGER(int32, int32_t)
INTEGER(uint32, uint32_t)
INTEGER(int64, int64_t)
INTEGER(uint64, uint64_t)
REAL(real32, float)
REAL(real64, double)
REAL(real80, long double)
COMPLEX(complex32, float complex)
COMPLEX(complex64, double complex)
COMPLEX(complex80, long double complex)

/* SWAPS stores the operand b in each element a for which a condition holds between a and the
 * comparison operand c. In fi_atomic(3) the comparison operand is on the left. */
#define SWAPS(T, CONDITION)                                                     \
	for (size_t i = 0; i < n; i++) {                                        \
		T a, b, c;                                                      \
		memcpy(&a, memory + i * sizeof a, sizeof a);                    \
		memcpy(&b, operand + i * sizeof b, sizeof b);                   \
		memcpy(&c, compare + i * sizeof c, sizeof c);                   \
		if (CONDITION)                                                  \
			memcpy(memory + i * sizeof a, &b, sizeof b);            \
	}                                                                       \
	return true

#define EQUALITY(T)                                                             \
	case FI_CSWAP: SWAPS(T, c == a);                                        \
	case FI_CSWAP_NE: SWAPS(T, c != a)

#define RELATION(T)                                                             \
	case FI_CSWAP_LE: SWAPS(T, c <= a);                                     \
	case FI_CSWAP_LT: SWAPS(T, c < a);                                      \
	case FI_CSWAP_GE: SWAPS(T, c >= a);                                     \
	case FI_CSWAP_GT: SWAPS(T, c > a)

#define MASKED(T)                                                               \
	case FI_MSWAP: SWAPS(T, (b = (T)((b & c) | (a & (T)~c)), true))

#define SWAP(NAME, ...)                                                         \
	static bool NAME(enum fi_op op, unsigned char *memory, const unsigned char *operand, const unsigned char *compare, size_t n) \
	{                                                                       \
		switch ((int)op) {                                              \
			__VA_ARGS__;                                            \
		}                                                               \
		return false;                                                   \
	}

#define SWAP_INTEGER(NAME, T) SWAP(NAME, EQUALITY(T); RELATION(T); MASKED(T))
#define SWAP_REAL(NAME, T) SWAP(NAME, EQUALITY(T); RELATION(T))
#define SWAP_COMPLEX(NAME, T) SWAP(NAME, EQUALITY(T))

SWAP_INTEGER(swap_int8, int8_t)
SWAP_INTEGER(swap_uint8, uint8_t)
SWAP_INTEGER(swap_int16, int16_t)
SWAP_INTEGER(swap_uint16, uint16_t)
SWAP_INTEGER(swap_int32, int32_t)
SWAP_INTEGER(swap_uint32, uint32_t)
SWAP_INTEGER(swap_int64, int64_t)
SWAP_INTEGER(swap_uint64, uint64_t)
SWAP_REAL(swap_real32, float)
SWAP_REAL(swap_real64, double)
SWAP_REAL(swap_real80, long double)
SWAP_COMPLEX(swap_complex32, float complex)
SWAP_COMPLEX(swap_complex64, double complex)
SWAP_COMPLEX(swap_complex80, long double complex)

/* The operations of each type. A call with no elements reports whether an operation exists. */
static const struct {
	size_t size;
	bool (*combine)(enum fi_op op, unsigned char *memory, const unsigned char *operand, size_t n);
	bool (*swap)(enum fi_op op, unsigned char *memory, const unsigned char *operand, const unsigned char *compare, size_t n);
} types[FI_DATATYPE_LAST] = {
	[FI_INT8] = {1, int8, swap_int8}, [FI_UINT8] = {1, uint8, swap_uint8},
	[FI_INT16] = {2, int16, swap_int16}, [FI_UINT16] = {2, uint16, swap_uint16},
	[FI_INT32] = {4, int32, swap_int32}, [FI_UINT32] = {4, uint32, swap_uint32},
	[FI_INT64] = {8, int64, swap_int64}, [FI_UINT64] = {8, uint64, swap_uint64},
	[FI_FLOAT] = {sizeof(float), real32, swap_real32}, [FI_DOUBLE] = {sizeof(double), real64, swap_real64},
	[FI_LONG_DOUBLE] = {sizeof(long double), real80, swap_real80},
	[FI_FLOAT_COMPLEX] = {sizeof(float complex), complex32, swap_complex32},
	[FI_DOUBLE_COMPLEX] = {sizeof(double complex), complex64, swap_complex64},
	[FI_LONG_DOUBLE_COMPLEX] = {sizeof(long double complex), complex80, swap_complex80},
};

/* most returns the most elements of an atomic, or 0 if it does not exist. */
static size_t most(enum access access, unsigned type, unsigned op)
{
	if (type >= FI_DATATYPE_LAST)
		return 0;
	bool good;
	switch (access) {
	case ACCESS_COMPARE: good = types[type].swap((enum fi_op)op, NULL, NULL, NULL, 0); break;
	case ACCESS_FETCH: good = op == FI_ATOMIC_READ || types[type].combine((enum fi_op)op, NULL, NULL, 0); break;
	default: good = types[type].combine((enum fi_op)op, NULL, NULL, 0);
	}
	return good ? ACCESS_SMALL / (access == ACCESS_COMPARE ? 2 : 1) / types[type].size : 0;
}

/* operands_of returns the number of operands per element in a request. */
static unsigned operands_of(const struct request *r)
{
	if (r->access == ACCESS_COMPARE)
		return 2;
	return r->op != FI_ATOMIC_READ;
}

/* atomic_valid reports whether a request is a valid atomic with a payload of so many bytes. */
bool atomic_valid(const struct request *r, uint64_t payload)
{
	if (r->access < ACCESS_ATOMIC || r->access > ACCESS_COMPARE)
		return false;
	uint64_t n = most((enum access)r->access, r->type, r->op);
	return n > 0 && r->length % types[r->type].size == 0 && r->length / types[r->type].size <= n && payload == operands_of(r) * r->length;
}

/* atomic_apply executes a valid request and overwrites the operands with the previous values of
 * the memory. The operands are the new values, followed by the values to compare with if the
 * request is a compare. */
void atomic_apply(const struct request *r, unsigned char *memory, unsigned char *operands)
{
	unsigned char before[ACCESS_SMALL];
	size_t n = r->length / types[r->type].size;
	memcpy(before, memory, r->length);
	if (r->access == ACCESS_COMPARE)
		(void)types[r->type].swap((enum fi_op)r->op, memory, operands, operands + r->length, n); /* it is valid */
	else if (r->op != FI_ATOMIC_READ)
		(void)types[r->type].combine((enum fi_op)r->op, memory, operands, n);
	memcpy(operands, before, r->length);
}

int query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	(void)domain;
	enum access access = (flags & FI_COMPARE_ATOMIC) != 0 ? ACCESS_COMPARE : (flags & FI_FETCH_ATOMIC) != 0 ? ACCESS_FETCH : ACCESS_ATOMIC;
	size_t n = most(access, type, op);
	if (n == 0)
		return -FI_EOPNOTSUPP;
	attr->count = n;
	attr->size = types[type].size;
	return 0;
}

/* The segments of an atomic's memory in bytes. */
struct bytes {
	struct iovec iov[IOV_LIMIT];
	size_t segments;
};

static bool to_bytes(const struct fi_ioc *ioc, size_t segments, unsigned type, struct bytes *b)
{
	if (segments > IOV_LIMIT || type >= FI_DATATYPE_LAST)
		return false;
	b->segments = segments;
	for (size_t i = 0; i < segments; i++) {
		if (ioc[i].count > ACCESS_SMALL)
			return false;
		b->iov[i] = (struct iovec){ioc[i].addr, ioc[i].count * types[type].size};
	}
	return true;
}

/* The arguments of any call that starts an atomic. */
struct atomic {
	enum access access;
	const struct fi_ioc *operand, *compare, *result;
	size_t operands, compares, results;
	fi_addr_t to;
	uint64_t addr, key;
	enum fi_datatype type;
	enum fi_op op;
	void *context;
	uint64_t data, flags;
	bool inject;
};

static ssize_t start_atomic(struct fid_ep *ep, const struct atomic *a)
{
	struct bytes out = {.segments = 0}, compare = {.segments = 0}, in = {.segments = 0};
	bool reads = a->op == FI_ATOMIC_READ;
	if ((!reads && !to_bytes(a->operand, a->operands, a->type, &out)) || !to_bytes(a->compare, a->compares, a->type, &compare) ||
	    !to_bytes(a->result, a->results, a->type, &in) || out.segments + compare.segments > IOV_LIMIT)
		return -FI_EINVAL;
	uint64_t length = reads ? bytes_of(in.iov, in.segments) : bytes_of(out.iov, out.segments);
	memcpy(out.iov + out.segments, compare.iov, compare.segments * sizeof *compare.iov);
	out.segments += compare.segments;
	struct access_call w = {
		.request = {.access = (uint8_t)a->access, .type = (uint8_t)a->type, .op = (uint8_t)a->op, .key = a->key, .addr = a->addr, .length = length},
		.out = out.iov, .outs = out.segments, .in = in.iov, .ins = in.segments, .to = a->to, .data = a->data, .context = a->context,
		.flags = a->flags & ~FI_REMOTE_CQ_DATA, .inject = a->inject,
	};
	if ((unsigned)a->op > UINT8_MAX || !atomic_valid(&w.request, bytes_of(w.out, w.outs)) || (a->access != ACCESS_ATOMIC && bytes_of(w.in, w.ins) != length))
		return -FI_EINVAL;
	return start_access(ep, &w);
}

static uint64_t flags_of(struct fid_ep *ep) { return ((struct endpoint *)ep)->tx_flags; }

/* one returns a segment. libfabric's structure has no const. */
static struct fi_ioc one(const void *buf, size_t count) { return (struct fi_ioc){(void *)(uintptr_t)buf, count}; }

/* libfabric's calls. */

static ssize_t a_writev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc;
	return start_atomic(ep, &(struct atomic){.access = ACCESS_ATOMIC, .operand = iov, .operands = count, .to = to, .addr = addr, .key = key,
						 .type = type, .op = op, .context = context, .flags = flags_of(ep)});
}

static ssize_t a_write(struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t to, uint64_t addr, uint64_t key,
		       enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = one(buf, count);
	return a_writev(ep, &v, &desc, 1, to, addr, key, type, op, context);
}

static ssize_t a_writemsg(struct fid_ep *ep, const struct fi_msg_atomic *m, uint64_t flags)
{
	if (m->rma_iov_count != 1)
		return -FI_EINVAL;
	return start_atomic(ep, &(struct atomic){.access = ACCESS_ATOMIC, .operand = m->msg_iov, .operands = m->iov_count, .to = m->addr,
						 .addr = m->rma_iov[0].addr, .key = m->rma_iov[0].key, .type = m->datatype, .op = m->op,
						 .context = m->context, .flags = flags});
}

static ssize_t a_inject(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op)
{
	struct fi_ioc v = one(buf, count);
	return start_atomic(ep, &(struct atomic){.access = ACCESS_ATOMIC, .operand = &v, .operands = 1, .to = to, .addr = addr, .key = key,
						 .type = type, .op = op, .inject = true});
}

static ssize_t a_readwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count, struct fi_ioc *result, void **result_desc, size_t results,
			    fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)result_desc;
	return start_atomic(ep, &(struct atomic){.access = ACCESS_FETCH, .operand = iov, .operands = count, .result = result, .results = results, .to = to,
						 .addr = addr, .key = key, .type = type, .op = op, .context = context, .flags = flags_of(ep)});
}

static ssize_t a_readwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result, void *result_desc, fi_addr_t to,
			   uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = one(buf, count), r = one(result, count);
	return a_readwritev(ep, &v, &desc, 1, &r, &result_desc, 1, to, addr, key, type, op, context);
}

static ssize_t a_readwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *m, struct fi_ioc *result, void **result_desc, size_t results, uint64_t flags)
{
	(void)result_desc;
	if (m->rma_iov_count != 1)
		return -FI_EINVAL;
	return start_atomic(ep, &(struct atomic){.access = ACCESS_FETCH, .operand = m->msg_iov, .operands = m->iov_count, .result = result, .results = results,
						 .to = m->addr, .addr = m->rma_iov[0].addr, .key = m->rma_iov[0].key, .type = m->datatype, .op = m->op,
						 .context = m->context, .flags = flags});
}

static ssize_t a_compwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count, const struct fi_ioc *compare, void **compare_desc,
			    size_t compares, struct fi_ioc *result, void **result_desc, size_t results, fi_addr_t to, uint64_t addr, uint64_t key,
			    enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)compare_desc, (void)result_desc;
	return start_atomic(ep, &(struct atomic){.access = ACCESS_COMPARE, .operand = iov, .operands = count, .compare = compare, .compares = compares,
						 .result = result, .results = results, .to = to, .addr = addr, .key = key, .type = type, .op = op,
						 .context = context, .flags = flags_of(ep)});
}

static ssize_t a_compwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare, void *compare_desc, void *result,
			   void *result_desc, fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = one(buf, count), c = one(compare, count), r = one(result, count);
	return a_compwritev(ep, &v, &desc, 1, &c, &compare_desc, 1, &r, &result_desc, 1, to, addr, key, type, op, context);
}

static ssize_t a_compwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *m, const struct fi_ioc *compare, void **compare_desc, size_t compares,
			      struct fi_ioc *result, void **result_desc, size_t results, uint64_t flags)
{
	(void)compare_desc, (void)result_desc;
	if (m->rma_iov_count != 1)
		return -FI_EINVAL;
	return start_atomic(ep, &(struct atomic){.access = ACCESS_COMPARE, .operand = m->msg_iov, .operands = m->iov_count, .compare = compare,
						 .compares = compares, .result = result, .results = results, .to = m->addr, .addr = m->rma_iov[0].addr,
						 .key = m->rma_iov[0].key, .type = m->datatype, .op = m->op, .context = m->context, .flags = flags});
}

static int valid(enum access access, enum fi_datatype type, enum fi_op op, size_t *count)
{
	size_t n = most(access, type, op);
	if (count != NULL)
		*count = n;
	return n > 0 ? 0 : -FI_EOPNOTSUPP;
}

static int a_writevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void)ep;
	return valid(ACCESS_ATOMIC, type, op, count);
}

static int a_readwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void)ep;
	return valid(ACCESS_FETCH, type, op, count);
}

static int a_compwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void)ep;
	return valid(ACCESS_COMPARE, type, op, count);
}

struct fi_ops_atomic atomic_ops = {
	.size = sizeof atomic_ops, .write = a_write, .writev = a_writev, .writemsg = a_writemsg, .inject = a_inject,
	.readwrite = a_readwrite, .readwritev = a_readwritev, .readwritemsg = a_readwritemsg,
	.compwrite = a_compwrite, .compwritev = a_compwritev, .compwritemsg = a_compwritemsg,
	.writevalid = a_writevalid, .readwritevalid = a_readwritevalid, .compwritevalid = a_compwritevalid,
};
