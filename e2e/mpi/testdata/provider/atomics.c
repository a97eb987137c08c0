#include "provider.h"

#include <complex.h>

static int here;

enum { N = 5 };

/* The same operations, computed in C. For long double and similar types only sums are
 * compared, because their padding bytes have no meaning. */
#define VALUES(T, LAST)                                                                          \
	static T was_##LAST[N] = {3, 0, 5, 1, 120}, with_##LAST[N] = {2, 7, 5, 0, 3}

#define EXPECT(T, OP, A, B) ((T)((OP) == FI_MIN ? ((A) < (B) ? (A) : (B)) : (OP) == FI_MAX ? ((A) > (B) ? (A) : (B)) : \
	(OP) == FI_SUM ? (A) + (B) : (OP) == FI_PROD ? (A) * (B) : (OP) == FI_LOR ? ((A) != 0 || (B) != 0) :        \
	(OP) == FI_LAND ? ((A) != 0 && (B) != 0) : (OP) == FI_LXOR ? ((A) != 0) != ((B) != 0) : (B)))

/* TYPE defines the test of one type: every operation, plain and fetching. */
#define TYPE(T, FI, BITS)                                                                        \
	static void try_##FI(struct side *s, void *region, uint64_t addr, uint64_t key)          \
	{                                                                                        \
		VALUES(T, FI);                                                                   \
		T old[N];                                                                        \
		for (int op = FI_MIN; op <= FI_ATOMIC_WRITE; op++) {                             \
			size_t most = 0;                                                         \
			bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR;              \
			int rc = fi_fetch_atomicvalid(s->ep, FI, (enum fi_op)op, &most);         \
			want((rc == 0) == (!bits || (BITS)), #FI " with operation %d: %d", op, rc); \
			if (rc != 0)                                                             \
				continue;                                                        \
			want(most >= N && most * sizeof(T) <= 8192, "at most %zu", most);        \
			memcpy(region, was_##FI, sizeof was_##FI);                               \
			meet(s);                                                                 \
			must(fi_fetch_atomic(s->ep, with_##FI, N, NULL, old, NULL, s->partner, addr, key, FI, (enum fi_op)op, &here)); \
			want((done(s->tx, &here).flags & (FI_ATOMIC | FI_READ)) == (FI_ATOMIC | FI_READ), "flags"); \
			meet(s);                                                                 \
			T now[N];                                                                \
			memcpy(now, region, sizeof now);                                         \
			for (int i = 0; i < N; i++) {                                            \
				T a = was_##FI[i], b = with_##FI[i];                             \
				T hope = bits || op == FI_ATOMIC_READ ? a : EXPECT(T, op, a, b); \
				if (bits)                                                        \
					hope = (T)(op == FI_BOR ? (uint64_t)a | (uint64_t)b : op == FI_BAND ? (uint64_t)a & (uint64_t)b : (uint64_t)a ^ (uint64_t)b); \
				want(old[i] == a, #FI " with operation %d: element %d was not what was fetched", op, i); \
				want(now[i] == hope, #FI " with operation %d: element %d is %g, want %g", op, i, (double)now[i], (double)hope); \
			}                                                                        \
			if (op == FI_ATOMIC_READ)                                                \
				continue;                                                        \
			meet(s);                                                                 \
			must(fi_atomic(s->ep, with_##FI, N, NULL, s->partner, addr, key, FI, (enum fi_op)op, &here)); \
			want((done(s->tx, &here).flags & (FI_ATOMIC | FI_WRITE)) == (FI_ATOMIC | FI_WRITE), "flags"); \
			meet(s);                                                                 \
		}                                                                                \
	}

TYPE(int8_t, FI_INT8, true)
TYPE(uint8_t, FI_UINT8, true)
TYPE(int16_t, FI_INT16, true)
TYPE(uint16_t, FI_UINT16, true)
TYPE(int32_t, FI_INT32, true)
TYPE(uint32_t, FI_UINT32, true)
TYPE(int64_t, FI_INT64, true)
TYPE(uint64_t, FI_UINT64, true)
TYPE(float, FI_FLOAT, false)
TYPE(double, FI_DOUBLE, false)
TYPE(long double, FI_LONG_DOUBLE, false)

/* swaps checks which elements compare-and-swap changes. */
static void swaps(struct side *s, int64_t *region, uint64_t addr, uint64_t key)
{
	scenario = "compare and swap";
	static const struct {
		enum fi_op op;
		int64_t there, compare, swap, want;
	} cases[] = {
		{FI_CSWAP, 5, 5, 9, 9}, {FI_CSWAP, 5, 6, 9, 5}, {FI_CSWAP_NE, 5, 5, 9, 5}, {FI_CSWAP_NE, 5, 6, 9, 9},
		{FI_CSWAP_LE, 5, 5, 9, 9}, {FI_CSWAP_LE, 5, 6, 9, 5}, {FI_CSWAP_LT, 5, 4, 9, 9}, {FI_CSWAP_LT, 5, 5, 9, 5},
		{FI_CSWAP_GE, 5, 5, 9, 9}, {FI_CSWAP_GE, 5, 4, 9, 5}, {FI_CSWAP_GT, 5, 6, 9, 9}, {FI_CSWAP_GT, 5, 5, 9, 5},
		{FI_MSWAP, 0x0f0f, 0x00ff, 0x3333, 0x0f33},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t swap = cases[i].swap, compare = cases[i].compare, old = -1;
		region[0] = cases[i].there;
		meet(s);
		must(fi_compare_atomic(s->ep, &swap, 1, NULL, &compare, NULL, &old, NULL, s->partner, addr, key, FI_INT64, cases[i].op, &here));
		done(s->tx, &here);
		meet(s);
		want(old == cases[i].there && region[0] == cases[i].want, "case %zu: found %lld, left %lld, want %lld", i, (long long)old, (long long)region[0], (long long)cases[i].want);
	}
}

/* rest tests complex numbers, calls with several segments, injection, and unsupported operations. */
static void rest(struct side *s, void *region, uint64_t addr, uint64_t key)
{
	scenario = "other atomics";
	double complex was = 2 + 3 * I, with = 1 - 1 * I, now;
	memcpy(region, &was, sizeof was);
	meet(s);
	must(fi_inject_atomic(s->ep, &with, 1, s->partner, addr, key, FI_DOUBLE_COMPLEX, FI_PROD));
	meet(s);
	double complex old;
	must(fi_fetch_atomic(s->ep, NULL, 1, NULL, &old, NULL, s->partner, addr, key, FI_DOUBLE_COMPLEX, FI_ATOMIC_READ, &here));
	done(s->tx, &here);
	want(old == was * with, "a product of complex numbers");
	meet(s);
	memcpy(&now, region, sizeof now);
	want(now == was * with, "a product of complex numbers");

	int32_t a[2] = {1, 2}, b[3] = {3, 4, 5}, zeros[5] = {0}, got[5];
	struct fi_ioc v[2] = {{a, 2}, {b, 3}}, r[2] = {{got, 1}, {got + 1, 4}};
	struct fi_rma_ioc where = {addr, 5, key};
	struct fi_msg_atomic m = {.msg_iov = v, .iov_count = 2, .addr = s->partner, .rma_iov = &where, .rma_iov_count = 1, .datatype = FI_INT32, .op = FI_SUM, .context = &here};
	memcpy(region, zeros, sizeof zeros);
	meet(s);
	must(fi_atomicv(s->ep, v, NULL, 2, s->partner, addr, key, FI_INT32, FI_SUM, &here));
	done(s->tx, &here);
	must(fi_atomicmsg(s->ep, &m, FI_COMPLETION));
	done(s->tx, &here);
	must(fi_fetch_atomicmsg(s->ep, &m, r, NULL, 2, FI_COMPLETION));
	done(s->tx, &here);
	for (int i = 0; i < 5; i++)
		want(got[i] == 2 * (i + 1), "element %d was %d", i, got[i]);
	must(fi_fetch_atomicv(s->ep, v, NULL, 2, r, NULL, 2, s->partner, addr, key, FI_INT32, FI_SUM, &here));
	done(s->tx, &here);
	meet(s);
	int32_t sum[5];
	memcpy(sum, region, sizeof sum);
	for (int i = 0; i < 5; i++)
		want(sum[i] == 4 * (i + 1), "element %d is %d", i, sum[i]);

	struct fi_atomic_attr attr;
	want(fi_query_atomic(s->domain, FI_DOUBLE, FI_BOR, &attr, 0) != 0, "bits of a double");
	must(fi_query_atomic(s->domain, FI_DOUBLE, FI_SUM, &attr, FI_FETCH_ATOMIC));
	want(attr.size == sizeof(double) && attr.count * attr.size <= 8192 && attr.count > 1, "at most %zu of %zu", attr.count, attr.size);
	want(fi_atomic(s->ep, a, 1, NULL, s->partner, addr, key, FI_FLOAT, FI_BAND, &here) == -FI_EINVAL, "an operation that there is not was started");
	must(fi_atomic(s->ep, a, 1, NULL, s->partner, addr + 4096, key, FI_INT32, FI_SUM, &here));
	fails(s->tx, &here);
	meet(s);
}

/* together has both ranks increment the same counter: no addition may be lost. */
static void together(struct side *s, int64_t *region, const uint64_t addr[2], const uint64_t key[2])
{
	enum { TIMES = 500 };
	scenario = "additions of both";
	int64_t one = 1, old, last = -1;
	region[0] = 0;
	meet(s);
	fi_addr_t first = rank == 0 ? s->self : s->partner;
	for (int i = 0; i < TIMES; i++) {
		must(fi_fetch_atomic(s->ep, &one, 1, NULL, &old, NULL, first, addr[0], key[0], FI_INT64, FI_SUM, &here));
		done(s->tx, &here);
		want(old > last, "%lld after %lld", (long long)old, (long long)last);
		last = old;
	}
	meet(s);
	want(rank != 0 || region[0] == 2 * TIMES, "%lld of %d additions", (long long)region[0], 2 * TIMES);
	meet(s);
}

void atomics(struct side *s)
{
	static int64_t region[512];
	static int there;
	struct fid_mr *mr;
	struct {
		uint64_t addr, key;
	} mine, theirs;
	scenario = "atomics";
	must(fi_mr_reg(s->domain, region, sizeof region, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	mine.addr = (uintptr_t)region;
	mine.key = fi_mr_key(mr);
	must(fi_trecv(s->ep, &theirs, sizeof theirs, NULL, s->partner, 4, 0, &there));
	must(fi_tinject(s->ep, &mine, sizeof mine, s->partner, 4));
	done(s->rx, &there);
	void (*const all[])(struct side *, void *, uint64_t, uint64_t) = {
		try_FI_INT8, try_FI_UINT8, try_FI_INT16, try_FI_UINT16, try_FI_INT32, try_FI_UINT32, try_FI_INT64, try_FI_UINT64,
		try_FI_FLOAT, try_FI_DOUBLE, try_FI_LONG_DOUBLE,
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		all[i](s, region, theirs.addr, theirs.key);
	swaps(s, region, theirs.addr, theirs.key);
	rest(s, region, theirs.addr, theirs.key);
	uint64_t addr[2] = {rank == 0 ? mine.addr : theirs.addr}, key[2] = {rank == 0 ? mine.key : theirs.key};
	together(s, region, addr, key);
	must(fi_close(&mr->fid));
}
