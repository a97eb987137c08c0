#include "provider.h"

#include <sched.h>
#include <unistd.h>

/* Tests accesses whose target's endpoint or registration is closed. Rank 0 starts them, rank 1 is
 * the target. Each access must have one completion at its origin. */

enum { LARGEST = 700001, KEY = 400 };
static const size_t sizes[] = {0, 8, 32, 33, 8192, 8193, 65537, LARGEST};
enum { SIZES = sizeof sizes / sizeof *sizes };

static unsigned char out[LARGEST], in[LARGEST], region[LARGEST];

/* raise_flag and await_flag synchronise with a partner that must not poll its endpoints meanwhile. */
static void raise_flag(const char *what)
{
	FILE *f = fopen(what, "wb");
	want(f != NULL && fclose(f) == 0, "writing %s", what);
}

static void await_flag(const char *what)
{
	while (access(what, F_OK) != 0)
		sched_yield();
}

/* start starts an access in one of ten ways. It returns the context of its completion, and
 * whether success is reported. */
enum { WAYS = 10 };

static bool start(struct side *s, struct door d, unsigned way, size_t n, void **context)
{
	static int here;
	static uint64_t operand = 1, compare, old;
	struct iovec v = {out, n};
	struct fi_rma_iov where = {d.start, n, d.key};
	struct fi_msg_rma m = {.msg_iov = &v, .iov_count = 1, .addr = s->partner, .rma_iov = &where, .rma_iov_count = 1, .context = &here, .data = 5};
	bool small = n <= s->info->tx_attr->inject_size;
	ssize_t rc;
	*context = &here;
	do {
		switch (way) {
		case 0: rc = fi_write(s->ep, out, n, NULL, s->partner, d.start, d.key, &here); break;
		case 1: rc = fi_read(s->ep, in, n, NULL, s->partner, d.start, d.key, &here); break;
		case 2: rc = fi_writemsg(s->ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE); break;
		case 3: rc = fi_writemsg(s->ep, &m, FI_COMPLETION | FI_REMOTE_CQ_DATA); break;
		case 4: rc = fi_writemsg(s->ep, &m, FI_COMPLETION | (small ? FI_INJECT : 0)); break;
		case 5:
			*context = NULL;
			rc = fi_inject_write(s->ep, out, small ? n : 8, s->partner, d.start, d.key);
			break;
		case 6: rc = fi_atomic(s->ep, &operand, 1, NULL, s->partner, d.start, d.key, FI_UINT64, FI_SUM, &here); break;
		case 7: rc = fi_fetch_atomic(s->ep, &operand, 1, NULL, &old, NULL, s->partner, d.start, d.key, FI_UINT64, FI_SUM, &here); break;
		case 8:
			rc = fi_compare_atomic(s->ep, &operand, 1, NULL, &compare, NULL, &old, NULL, s->partner, d.start, d.key, FI_UINT64, FI_CSWAP, &here);
			break;
		default:
			*context = NULL;
			rc = fi_inject_atomic(s->ep, &operand, 1, s->partner, d.start, d.key, FI_UINT64, FI_SUM);
		}
	} while (rc == -FI_EAGAIN);
	must(rc);
	return *context != NULL;
}

static uint64_t errors(struct side *s) { return fi_cntr_readerr(s->writes) + fi_cntr_readerr(s->reads); }
static uint64_t ends(struct side *s) { return fi_cntr_read(s->writes) + fi_cntr_read(s->reads) + errors(s); }

/* refused_all starts accesses of all ways and sizes in turn, and checks their error. */
static void refused_all(struct side *s, struct door d, int err)
{
	for (unsigned way = 0; way < WAYS; way++)
		for (size_t i = 0; i < SIZES; i++) {
			void *context;
			uint64_t before = errors(s);
			start(s, d, way, sizes[i], &context);
			struct fi_cq_err_entry e = fails(s->tx, context);
			want(e.err == err, "way %u of %zu bytes: %s, want %s", way, sizes[i], fi_strerror(e.err), fi_strerror(err));
			want(nothing(s->tx) && errors(s) == before + 1, "way %u of %zu bytes has two ends", way, sizes[i]);
		}
}

/* ended counts the completions of accesses. */
struct ended {
	unsigned well, badly;
};

/* read_completions reads completions up to the first error; false: there was none. */
static bool read_completions(struct side *s, struct ended *e, int err)
{
	struct fi_cq_tagged_entry entry;
	ssize_t n;
	while ((n = fi_cq_read(s->tx, &entry, 1)) == 1)
		e->well++;
	if (n != -FI_EAVAIL)
		return false;
	struct fi_cq_err_entry bad = {0};
	want(fi_cq_readerr(s->tx, &bad, 0) == 1, "fi_cq_readerr finds nothing");
	want(bad.err == err, "an access ended with %s, want %s", fi_strerror(bad.err), fi_strerror(err));
	e->badly++;
	return true;
}

/* crowd starts many accesses, and then raises the flag, or without a flag starts more until one
 * has an error. It checks that each error is err. */
static struct ended crowd(struct side *s, struct door d, unsigned many, int err, const char *flag)
{
	struct ended e = {0};
	unsigned silent = 0, i;
	uint64_t before = ends(s);
	for (i = 0; i < many || (flag == NULL && e.badly == 0); i++) {
		void *context;
		silent += !start(s, d, i % WAYS, sizes[i / WAYS % SIZES], &context);
		read_completions(s, &e, err);
	}
	if (flag != NULL)
		raise_flag(flag);
	many = i;
	while (ends(s) < before + many)
		read_completions(s, &e, err);
	while (read_completions(s, &e, err))
		;
	want(e.well <= many - silent && e.well + e.badly >= many - silent && e.well + e.badly <= many, "%u ended well and %u badly, of %u", e.well, e.badly, many);
	want(nothing(s->tx), "an access has two ends");
	return e;
}

/* served reports whether accesses are executed while their target does not poll. */
static bool served(void)
{
	const char *progress = getenv("OUTRIGGER_MPI_PROGRESS");
	return progress != NULL && strcmp(progress, "off") != 0;
}

static struct fid_mr *door_of(struct side *s, struct door *d, uint64_t key)
{
	struct fid_mr *mr = expose(s, region, sizeof region, FI_REMOTE_READ | FI_REMOTE_WRITE, key);
	*d = show(s, mr, region);
	return mr;
}

/* closed closes endpoints and registrations at different times. basic is the side for all else. */
void closed(struct side *basic)
{
	struct side s;
	struct door d;
	static const char *const when[] = {"closed", "unheard", "during"};
	for (unsigned i = 0; i < 3; i++) {
		char name[32], flag[32];
		snprintf(name, sizeof name, "target-%s", when[i]);
		snprintf(flag, sizeof flag, "flag-%s", when[i]);
		scenario = "an endpoint that is closed";
		open_side(&s, 0, name);
		struct fid_mr *mr = door_of(&s, &d, KEY);
		switch (i) {
		case 0: /* before */
			meet(&s);
			if (rank == 1) {
				must(fi_close(&s.ep->fid));
				meet(basic);
			} else {
				meet(basic);
				scenario = "accesses to an endpoint that is closed";
				refused_all(&s, d, FI_ESHUTDOWN);
			}
			break;
		case 1: /* while the target does not poll */
			scenario = "accesses to an endpoint that is closed before it has polled";
			meet(&s);
			if (rank == 1) {
				await_flag(flag);
				must(fi_close(&s.ep->fid));
			} else {
				struct ended e = crowd(&s, d, 4 * WAYS * SIZES, FI_ESHUTDOWN, flag);
				want(e.badly > 0 || served(), "nothing was refused");
			}
			break;
		default:
			scenario = "accesses to an endpoint that is closed meanwhile";
			meet(&s);
			if (rank == 1) {
				for (int seen = 0; seen < 20; seen++)
					done(s.rx, NULL); /* writes with data */
				must(fi_close(&s.ep->fid));
			} else {
				struct ended e = crowd(&s, d, WAYS * SIZES, FI_ESHUTDOWN, NULL);
				want(e.well > 0 && e.badly > 0, "%u ended well, %u badly", e.well, e.badly);
			}
		}
		meet(basic);
		if (rank == 0)
			must(fi_close(&s.ep->fid));
		must(fi_close(&mr->fid));
		struct fid *all[] = {&s.sent->fid, &s.received->fid, &s.reads->fid, &s.writes->fid, &s.tx->fid, &s.rx->fid, &s.av->fid, &s.domain->fid, &s.fabric->fid};
		for (size_t k = 0; k < sizeof all / sizeof *all; k++)
			must(fi_close(all[k]));
		fi_freeinfo(s.info);
	}
	scenario = "accesses to memory whose registration is closed meanwhile";
	struct fid_mr *mr = door_of(basic, &d, KEY);
	meet(basic);
	if (rank == 1) {
		for (int seen = 0; seen < 20; seen++)
			done(basic->rx, NULL);
		must(fi_close(&mr->fid));
	} else {
		struct ended e = crowd(basic, d, WAYS * SIZES, FI_EINVAL, NULL);
		want(e.well > 0 && e.badly > 0, "%u ended well, %u badly", e.well, e.badly);
		must(fi_close(&mr->fid));
	}
	if (rank == 1) {
		struct fi_cq_tagged_entry e;
		while (access("flag-key-over", F_OK) != 0)
			(void)fi_cq_read(basic->rx, &e, 1);
	} else {
		raise_flag("flag-key-over");
	}
	meet(basic);
	scenario = "accesses when others have ended";
	accesses(basic);
}
