#include "provider.h"

#include <sched.h>
#include <stdarg.h>
#include <unistd.h>

unsigned rank;
const char *scenario = "start";

void die(const char *format, ...)
{
	va_list a;
	va_start(a, format);
	fprintf(stderr, "provider: rank %u: %s: ", rank, scenario);
	vfprintf(stderr, format, a);
	fputc('\n', stderr);
	va_end(a);
	exit(1);
}

void must_at(ssize_t rc, const char *what, int line)
{
	want(rc == 0, "line %d: %s: %s", line, what, fi_strerror((int)-rc));
}

void fill(void *b, size_t n, unsigned by)
{
	for (size_t i = 0; i < n; i++)
		((unsigned char *)b)[i] = (unsigned char)(i * 31 + by * 17 + i / 251);
}

void check(const void *b, size_t n, unsigned by, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (((const unsigned char *)b)[i] != (unsigned char)(i * 31 + by * 17 + i / 251))
			die("%s: byte %zu of %zu is %#x", what, i, n, ((const unsigned char *)b)[i]);
}

struct fi_cq_tagged_entry done(struct fid_cq *cq, void *context)
{
	struct fi_cq_tagged_entry e = {0};
	ssize_t n;
	while ((n = fi_cq_read(cq, &e, 1)) == -FI_EAGAIN)
		;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry bad = {0};
		fi_cq_readerr(cq, &bad, 0);
		die("a completion has the error %s, %s", fi_strerror(bad.err), fi_cq_strerror(cq, bad.prov_errno, NULL, NULL, 0));
	}
	want(n == 1, "fi_cq_read: %zd", n);
	want(e.op_context == context, "a completion of %p, want %p", e.op_context, context);
	return e;
}

struct fi_cq_err_entry fails(struct fid_cq *cq, void *context)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry bad = {0};
	ssize_t n;
	while ((n = fi_cq_read(cq, &e, 1)) == -FI_EAGAIN)
		;
	want(n == -FI_EAVAIL, "fi_cq_read: %zd, want an error", n);
	want(fi_cq_readerr(cq, &bad, 0) == 1, "fi_cq_readerr finds nothing");
	want(bad.op_context == context, "an error of %p, want %p", bad.op_context, context);
	return bad;
}

bool nothing(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry e;
	return fi_cq_read(cq, &e, 1) == -FI_EAGAIN;
}

void meet(struct side *s)
{
	static int here, there;
	must(fi_trecv(s->ep, NULL, 0, NULL, s->partner, UINT64_MAX, 0, &there));
	must(fi_tsend(s->ep, NULL, 0, NULL, s->partner, UINT64_MAX, &here));
	done(s->tx, &here);
	done(s->rx, &there);
}

/* swap uses files, because these processes share nothing else. */
void swap(const char *name, void *bytes, size_t n)
{
	char mine[256], part[280], other[256];
	snprintf(mine, sizeof mine, "%s.%u", name, rank);
	snprintf(part, sizeof part, "%s.part", mine);
	snprintf(other, sizeof other, "%s.%u", name, 1 - rank);
	FILE *f = fopen(part, "wb");
	want(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0 && rename(part, mine) == 0, "writing %s", mine);
	while ((f = fopen(other, "rb")) == NULL)
		sched_yield();
	want(fread(bytes, 1, n, f) == n && fclose(f) == 0, "reading %s", other);
}

static struct fid_cntr *counter(struct side *s, uint64_t flags)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct fid_cntr *c;
	must(fi_cntr_open(s->domain, &attr, &c, NULL));
	must(fi_ep_bind(s->ep, &c->fid, flags));
	return c;
}

void open_side(struct side *s, int mr_mode, const char *name)
{
	struct fi_info *hints = fi_allocinfo();
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = mr_mode;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup("outrigger");
	must(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &s->info));
	want((s->info->domain_attr->mr_mode & ~mr_mode) == 0, "memory mode %#x, asked with %#x", s->info->domain_attr->mr_mode, mr_mode);
	want(s->info->domain_attr->threading == FI_THREAD_DOMAIN, "threading is not echoed");
	fi_freeinfo(hints);
	must(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	must(fi_domain(s->fabric, s->info, &s->domain, NULL));
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
	must(fi_av_open(s->domain, &av, &s->av, NULL));
	must(fi_cq_open(s->domain, &cq, &s->tx, NULL));
	must(fi_cq_open(s->domain, &cq, &s->rx, NULL));
	must(fi_endpoint(s->domain, s->info, &s->ep, NULL));
	must(fi_ep_bind(s->ep, &s->av->fid, 0));
	must(fi_ep_bind(s->ep, &s->tx->fid, FI_TRANSMIT));
	must(fi_ep_bind(s->ep, &s->rx->fid, FI_RECV));
	s->sent = counter(s, FI_SEND);
	s->received = counter(s, FI_RECV);
	s->reads = counter(s, FI_READ);
	s->writes = counter(s, FI_WRITE);
	must(fi_enable(s->ep));
	unsigned char address[64];
	size_t n = sizeof address;
	fi_addr_t again;
	must(fi_getname(&s->ep->fid, address, &n));
	want(fi_av_insert(s->av, address, 1, &s->self, 0, NULL) == 1, "fi_av_insert of itself");
	swap(name, address, n);
	want(fi_av_insert(s->av, address, 1, &s->partner, 0, NULL) == 1, "fi_av_insert");
	want(fi_av_insert(s->av, address, 1, &again, 0, NULL) == 1 && again == s->partner, "an address inserted twice is two peers");
}

void close_side(struct side *s)
{
	struct fid *all[] = {&s->ep->fid, &s->sent->fid, &s->received->fid, &s->reads->fid, &s->writes->fid, &s->tx->fid, &s->rx->fid, &s->av->fid, &s->domain->fid, &s->fabric->fid};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		must(fi_close(all[i]));
	fi_freeinfo(s->info);
}

int main(int argc, char **argv)
{
	struct side basic, scalable;
	want(argc == 2 || argc == 3, "usage: provider FOLDER [bereft|orphaned|empty-polls]");
	want(chdir(argv[1]) == 0, "no folder %s", argv[1]);
	rank = (unsigned)atoi(getenv("OUTRIGGER_RANK"));
	const char *what = argc == 3 ? argv[2] : "";
	if (strcmp(what, "empty-polls") == 0)
		stay();
	open_side(&basic, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, "basic");
	if (strcmp(what, "empty-polls") == 0) {
		empty_polls(&basic);
		close_side(&basic);
		printf("provider: rank %u is content\n", rank);
		return 0;
	}
	if (argc == 3) {
		(strcmp(what, "bereft") == 0 ? bereft : orphaned)(&basic);
		return 0;
	}

	messages(&basic);
	tagged(&basic);
	accesses(&basic);
	atomics(&basic);
	allocations(&basic);
	scenario = "keys and offsets of the application";
	open_side(&scalable, 0, "scalable");
	accesses(&scalable);
	meet(&scalable);
	close_side(&scalable);
	for (int i = 0; i < 4; i++) {
		char name[] = {'m', 'a', 'n', 'y', (char)('0' + i), 0};
		open_side(&scalable, 0, name);
		leave_receives(&scalable);
		close_side(&scalable);
	}
	open_side(&scalable, 0, "unheard");
	leave_message(&scalable);
	meet(&basic); /* the message has arrived */
	close_side(&scalable);
	open_side(&scalable, 0, "shut");
	if (rank == 1)
		close_side(&scalable);
	meet(&basic);
	if (rank == 0) {
		send_after(&scalable);
		close_side(&scalable);
	}
	meet(&basic);
	closed(&basic);
	strange(&basic);
	crowds(&basic);
	offers(&basic);
	close_side(&basic);
	printf("provider: rank %u is content\n", rank);
	return 0;
}
