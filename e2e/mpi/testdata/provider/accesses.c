#include "provider.h"

enum { LARGEST = 700001, REGION = LARGEST + 64 };
static const size_t sizes[] = {0, 1, 8, 33, 8192, 8193, 65536, LARGEST};
enum { SIZES = sizeof sizes / sizeof *sizes };

static unsigned char out[LARGEST], in[LARGEST], region[REGION];
static int here;

struct door show(struct side *s, const struct fid_mr *mr, const void *start)
{
	struct door mine = {.key = mr->key}, theirs;
	static int there;
	if ((s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0)
		mine.start = (uintptr_t)start;
	must(fi_trecv(s->ep, &theirs, sizeof theirs, NULL, s->partner, 3, 0, &there));
	must(fi_tinject(s->ep, &mine, sizeof mine, s->partner, 3));
	done(s->rx, &there);
	return theirs;
}

struct fid_mr *expose(struct side *s, void *memory, size_t n, uint64_t rights, uint64_t key)
{
	struct fid_mr *mr;
	must(fi_mr_reg(s->domain, memory, n, rights, 0, key, 0, &mr, NULL));
	want((s->info->domain_attr->mr_mode & FI_MR_PROV_KEY) != 0 || mr->key == key, "the key of the application is not used");
	return mr;
}

static void counts(struct side *s, uint64_t reads, uint64_t writes)
{
	must(fi_cntr_wait(s->reads, reads, -1));
	must(fi_cntr_wait(s->writes, writes, -1));
	want(fi_cntr_read(s->reads) == reads && fi_cntr_read(s->writes) == writes, "accesses are counted wrongly");
}

static void writes(struct side *s, struct door d)
{
	scenario = "writes";
	for (size_t i = 0; i < SIZES; i++) {
		size_t n = sizes[i], half = n / 3;
		struct iovec v[2] = {{out, half}, {out + half, n - half}};
		struct fi_rma_iov where = {d.start + 7, n, d.key};
		struct fi_msg_rma m = {.msg_iov = v, .iov_count = 2, .addr = s->partner, .rma_iov = &where, .rma_iov_count = 1, .context = &here};
		for (int call = 0; call < 6; call++) {
			bool inject = call == 3 || call == 5, data = call == 4 || call == 5;
			if (inject && n > s->info->tx_attr->inject_size)
				continue;
			memset(region, 0xcc, sizeof region);
			fill(out, n, rank + (unsigned)call);
			meet(s);
			uint64_t before = fi_cntr_read(s->writes);
			switch (call) {
			case 0: must(fi_write(s->ep, out, n, NULL, s->partner, where.addr, d.key, &here)); break;
			case 1: must(fi_writev(s->ep, v, NULL, 2, s->partner, where.addr, d.key, &here)); break;
			case 2: must(fi_writemsg(s->ep, &m, FI_DELIVERY_COMPLETE | FI_COMPLETION)); break;
			case 3: must(fi_inject_write(s->ep, out, n, s->partner, where.addr, d.key)); break;
			case 4: must(fi_writedata(s->ep, out, n, NULL, 79, s->partner, where.addr, d.key, &here)); break;
			case 5: must(fi_inject_writedata(s->ep, out, n, 79, s->partner, where.addr, d.key)); break;
			}
			if (inject)
				memset(out, 0, n);
			else
				want((done(s->tx, &here).flags & (FI_RMA | FI_WRITE)) == (FI_RMA | FI_WRITE), "flags of a write");
			must(fi_cntr_wait(s->writes, before + 1, -1)); /* the data is in the partner's memory */
			if (data) {
				struct fi_cq_tagged_entry e = done(s->rx, NULL);
				want((e.flags & FI_REMOTE_WRITE) != 0 && (e.flags & FI_REMOTE_CQ_DATA) != 0 && e.data == 79 && e.len == n, "call %d: what the target is told", call);
			}
			meet(s);
			check(region + 7, n, 1 - rank + (unsigned)call, "region that was written");
			want(region[6] == 0xcc && region[7 + n] == 0xcc, "call %d: bytes next to a write of %zu have changed", call, n);
			want(nothing(s->tx) && nothing(s->rx), "call %d: a completion too many", call);
			meet(s);
		}
	}
}

static void reads(struct side *s, struct door d)
{
	scenario = "reads";
	fill(region, sizeof region, rank);
	meet(s);
	for (size_t i = 0; i < SIZES; i++) {
		size_t n = sizes[i], half = n / 3;
		struct iovec v[2] = {{in, half}, {in + half, n - half}};
		struct fi_rma_iov where = {d.start, n, d.key};
		struct fi_msg_rma m = {.msg_iov = v, .iov_count = 2, .addr = s->partner, .rma_iov = &where, .rma_iov_count = 1, .context = &here};
		for (int call = 0; call < 4; call++) {
			memset(in, 0, n);
			switch (call) {
			case 0: must(fi_read(s->ep, in, n, NULL, s->partner, where.addr, d.key, &here)); break;
			case 1: must(fi_readv(s->ep, v, NULL, 2, s->partner, where.addr, d.key, &here)); break;
			case 2: must(fi_readmsg(s->ep, &m, FI_COMPLETION)); break;
			case 3: must(fi_readmsg(s->ep, &m, FI_COMPLETION | FI_REMOTE_CQ_DATA)); break; /* has no effect on reads */
			}
			want((done(s->tx, &here).flags & (FI_RMA | FI_READ)) == (FI_RMA | FI_READ), "flags of a read");
			check(in, n, 1 - rank, "what was read");
		}
	}
	meet(s);
}

static void refused(struct side *s)
{
	fails(s->tx, &here);
	want(nothing(s->tx), "a refused access has two ends");
}

/* mistakes checks that invalid accesses of all lengths are refused, and change nothing. */
static void mistakes(struct side *s, struct door d)
{
	scenario = "accesses that are not allowed";
	struct fid_mr *closed = expose(s, region, 16, FI_REMOTE_READ | FI_REMOTE_WRITE, 300), *readable = expose(s, region, REGION, FI_REMOTE_READ, 301);
	struct door was = show(s, closed, region), read_only = show(s, readable, region);
	must(fi_close(&closed->fid));
	fill(region, sizeof region, rank);
	meet(s);
	uint64_t errors = fi_cntr_readerr(s->writes);
	for (size_t i = 0; i < SIZES; i++) {
		size_t n = sizes[i];
		must(fi_write(s->ep, out, n, NULL, s->partner, was.start, was.key, &here));
		refused(s);
		must(fi_write(s->ep, out, n, NULL, s->partner, d.start, d.key ^ 0x5a5a, &here));
		refused(s);
		must(fi_write(s->ep, out, n, NULL, s->partner, read_only.start, read_only.key, &here));
		refused(s);
		must(fi_write(s->ep, out, n, NULL, s->partner, d.start + REGION - n + 1, d.key, &here));
		refused(s);
		must(fi_read(s->ep, in, n, NULL, s->partner, d.start - 1, d.key, &here));
		refused(s);
		must(fi_read(s->ep, in, n, NULL, s->partner, d.start + UINT64_C(0x8000000000000000), d.key, &here));
		refused(s);
	}
	want(fi_cntr_readerr(s->writes) == errors + 4 * SIZES, "refused writes are counted wrongly");
	must(fi_read(s->ep, in, 100, NULL, s->partner, read_only.start, read_only.key, &here));
	done(s->tx, &here);
	check(in, 100, 1 - rank, "a region that may be read");
	meet(s);
	check(region, sizeof region, rank, "region after accesses that are not allowed");
	must(fi_close(&readable->fid));
}

/* crowd starts many accesses at once. Large ones use another protocol. */
static void crowd(struct side *s, struct door d)
{
	enum { MANY = 300 };
	scenario = "many accesses at once";
	memset(region, 0, sizeof region);
	meet(s);
	uint64_t reads_before = fi_cntr_read(s->reads), writes_before = fi_cntr_read(s->writes);
	fill(out, sizeof out, rank);
	for (size_t i = 0; i < MANY; i++) {
		size_t n = i % 7 == 0 ? 20000 : 500, at = i * 1000 % (LARGEST - 20000);
		while (fi_write(s->ep, out + at, n, NULL, s->partner, d.start + at, d.key, &here) == -FI_EAGAIN)
			;
		while (fi_read(s->ep, in, 400, NULL, s->partner, d.start, d.key, &here) == -FI_EAGAIN)
			;
	}
	for (size_t i = 0; i < 2 * MANY; i++)
		done(s->tx, &here);
	counts(s, reads_before + MANY, writes_before + MANY);
	meet(s);
	for (size_t i = 0; i < MANY; i++) {
		size_t at = i * 1000 % (LARGEST - 20000);
		fill(in, sizeof in, 1 - rank);
		want(memcmp(region + at, in + at, i % 7 == 0 ? 20000 : 500) == 0, "write %zu is not there", i);
	}
	meet(s);
}

/* flood starts as many accesses as there are requests, on both sides at once, and reads no
 * completions until no request is left: each access must complete. */
static void flood(struct side *s, struct door d)
{
	enum { MANY = 70000 };
	scenario = "more accesses than there are requests";
	meet(s);
	unsigned ended = 0;
	for (unsigned i = 0; i < MANY; i++) {
		ssize_t rc;
		size_t n = i % 3 == 0 ? 8 : 400;
		while ((rc = i % 2 == 0 ? fi_read(s->ep, in, n, NULL, s->partner, d.start, d.key, &here) : fi_write(s->ep, out, n, NULL, s->partner, d.start, d.key, &here)) == -FI_EAGAIN) {
			struct fi_cq_tagged_entry e;
			ssize_t got = fi_cq_read(s->tx, &e, 1);
			want(got == 1 || got == -FI_EAGAIN, "fi_cq_read: %zd", got);
			ended += got == 1;
		}
		must(rc);
	}
	for (; ended < MANY; ended++)
		done(s->tx, &here);
	want(nothing(s->tx), "a completion too many");
	meet(s);
}

void accesses(struct side *s)
{
	struct fid_mr *mr = expose(s, region, sizeof region, FI_REMOTE_READ | FI_REMOTE_WRITE, 200);
	struct door d = show(s, mr, region);
	writes(s, d);
	reads(s, d);
	mistakes(s, d);
	crowd(s, d);
	flood(s, d);
	must(fi_close(&mr->fid));
}
