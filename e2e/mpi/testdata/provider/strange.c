#define _GNU_SOURCE /* struct ucred */
#include "provider.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Tests of what the interface allows and few programs do. */

enum { LARGE = 700001, WAITS = 100000 }; /* a send of WAITS bytes completes with its receive */
static unsigned char out[LARGE], in[LARGE];
static int here, there;

/* read_none makes progress by reading 0 entries, as many programs do. */
static void read_none(struct side *s)
{
	scenario = "reading no completions";
	want(fi_cq_read(s->tx, NULL, 0) == -FI_EAGAIN, "an empty queue");
	must(fi_tsend(s->ep, out, 8, NULL, s->self, 21, &here));
	must(fi_trecv(s->ep, in, 8, NULL, s->self, 21, 0, &there));
	ssize_t n;
	while ((n = fi_cq_read(s->rx, NULL, 0)) == -FI_EAGAIN)
		;
	want(n == 0, "of a queue with a completion: %zd", n);
	done(s->rx, &there);
	done(s->tx, &here);
	must(fi_trecv(s->ep, in, 8, NULL, s->self, 21, 0, &there));
	must(fi_cancel(&s->ep->fid, &there));
	while ((n = fi_cq_read(s->rx, NULL, 0)) == -FI_EAGAIN)
		;
	want(n == -FI_EAVAIL, "of a queue with an error: %zd", n);
	fails(s->rx, &there);
}

/* nothing_in_it sends and receives messages without segments. */
static void nothing_in_it(struct side *s)
{
	scenario = "messages of no segments";
	struct fi_msg_tagged t = {.addr = s->partner, .tag = 22, .context = &here}, tr = {.addr = s->partner, .tag = 22, .context = &there};
	struct fi_msg m = {.addr = s->partner, .context = &here}, mr = {.addr = FI_ADDR_UNSPEC, .context = &there};
	for (int i = 0; i < 2; i++) {
		must(fi_trecvmsg(s->ep, &tr, FI_COMPLETION));
		must(fi_tsendmsg(s->ep, &t, FI_COMPLETION | (i == 1 ? FI_INJECT : 0)));
		done(s->tx, &here);
		want(done(s->rx, &there).len == 0, "a tagged one");
		must(fi_recvmsg(s->ep, &mr, FI_COMPLETION));
		must(fi_sendmsg(s->ep, &m, FI_COMPLETION | (i == 1 ? FI_INJECT : 0)));
		done(s->tx, &here);
		want(done(s->rx, &there).len == 0, "an untagged one");
	}
	must(fi_trecvmsg(s->ep, &tr, FI_COMPLETION)); /* a large message is truncated to 0 bytes */
	must(fi_tsend(s->ep, out, LARGE, NULL, s->partner, 22, &here));
	want(fails(s->rx, &there).olen == LARGE, "a large message was not truncated to 0 bytes");
	done(s->tx, &here);
	meet(s);
}

/* injected injects the largest possible message by the flag. */
static void injected(struct side *s)
{
	scenario = "messages with FI_INJECT";
	size_t n = s->info->tx_attr->inject_size;
	for (int tagged = 0; tagged < 2; tagged++) {
		struct iovec v[2] = {{out, 1}, {out + 1, n - 1}};
		struct fi_msg_tagged t = {.msg_iov = v, .iov_count = 2, .addr = s->partner, .tag = 23, .context = &here};
		struct fi_msg m = {.msg_iov = v, .iov_count = 2, .addr = s->partner, .context = &here};
		fill(out, n, rank);
		must(tagged ? fi_tsendmsg(s->ep, &t, FI_INJECT | FI_COMPLETION) : fi_sendmsg(s->ep, &m, FI_INJECT | FI_COMPLETION));
		memset(out, 0xdd, n);
		done(s->tx, &here);
		meet(s);
		must(tagged ? fi_trecv(s->ep, in, n, NULL, s->partner, 23, 0, &there) : fi_recv(s->ep, in, n, NULL, s->partner, &there));
		done(s->rx, &there);
		check(in, n, 1 - rank, "message with FI_INJECT");
		want(fi_tinject(s->ep, out, n + 1, s->partner, 23) == -FI_EINVAL, "one too large");
		meet(s);
	}
}

/* exactly checks that a buffer whose rest is exactly the endpoint's minimum receives one more. */
static void exactly(struct side *s)
{
	enum { LEAST = 64, ROOM = 4096 + LEAST };
	static unsigned char room[ROOM];
	size_t least = LEAST;
	scenario = "a buffer for many of which the least is left";
	must(fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
	struct iovec v = {room, sizeof room};
	struct fi_msg m = {.msg_iov = &v, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &there};
	must(fi_recvmsg(s->ep, &m, FI_MULTI_RECV));
	const size_t parts[] = {0, 4096, 0, LEAST};
	for (int i = 0; i < 4; i++) {
		meet(s);
		must(fi_send(s->ep, out, parts[i], NULL, s->partner, &here));
		done(s->tx, &here);
		struct fi_cq_tagged_entry e = done(s->rx, &there);
		want(e.len == parts[i] && ((e.flags & FI_MULTI_RECV) != 0) == (i == 3), "message %d has %zu bytes, flags %#llx", i, e.len, (unsigned long long)e.flags);
	}
	/* A message that is larger than the whole buffer is truncated. */
	must(fi_recvmsg(s->ep, &m, FI_MULTI_RECV));
	meet(s);
	must(fi_send(s->ep, out, ROOM + 3, NULL, s->partner, &here));
	done(s->tx, &here);
	struct fi_cq_err_entry bad = fails(s->rx, &there);
	want(bad.err == FI_ETRUNC && bad.olen == 3 && (bad.flags & FI_MULTI_RECV) != 0, "one too large: error %d, olen %zu, flags %#llx", bad.err, bad.olen, (unsigned long long)bad.flags);
	meet(s);
}

/* cancelled cancels receives while messages arrive for them: each receive must have one completion,
 * and each message must be received once. */
static void cancelled(struct side *s)
{
	enum { MANY = 200 };
	static int contexts[MANY];
	for (int tagged = 0; tagged < 2; tagged++)
		for (size_t n = 8; n <= LARGE; n = n * 50) {
			scenario = tagged ? "cancelling tagged receives that are matched" : "cancelling untagged receives that are matched";
			unsigned got = 0, sent = 0, lost = 0;
			meet(s);
			for (int i = 0; i < MANY; i++) {
				must(tagged ? fi_trecv(s->ep, in, n, NULL, s->partner, 24, 0, &contexts[i]) : fi_recv(s->ep, in, n, NULL, s->partner, &contexts[i]));
				must(tagged ? fi_tsend(s->ep, out, n, NULL, s->partner, 24, &here) : fi_send(s->ep, out, n, NULL, s->partner, &here));
				if (i % 3 == 0)
					(void)fi_cancel(&s->ep->fid, &contexts[i]);
				if (i % 7 == 0)
					(void)fi_cancel(&s->ep->fid, &contexts[i / 2]);
			}
			while (got < MANY || sent < MANY) {
				struct fi_cq_tagged_entry e;
				struct fi_cq_err_entry bad = {0};
				if (fi_cq_read(s->tx, &e, 1) == 1)
					sent++;
				ssize_t r = fi_cq_read(s->rx, &e, 1);
				if (r == 1)
					got++;
				if (r != -FI_EAVAIL)
					continue;
				want(fi_cq_readerr(s->rx, &bad, 0) == 1 && bad.err == FI_ECANCELED, "a receive ended with %s", fi_strerror(bad.err));
				lost++;
				must(tagged ? fi_trecv(s->ep, in, n, NULL, s->partner, 24, 0, &there) : fi_recv(s->ep, in, n, NULL, s->partner, &there));
			}
			want(nothing(s->rx) && nothing(s->tx), "%zu bytes: a message came twice; %u were cancelled", n, lost);
		}
	meet(s);
}

/* claim_later checks that a claim that fails because no request is left can be retried. */
static void claim_later(struct side *s)
{
	enum { ALL = 65536 };
	static int found, open;
	scenario = "a claim without a request";
	fill(out, WAITS, rank);
	must(fi_tsend(s->ep, out, WAITS, NULL, s->partner, 25, &here)); /* completes only when it is received */
	meet(s);
	struct fi_msg_tagged p = {.addr = s->partner, .tag = 25, .context = &found};
	must(fi_trecvmsg(s->ep, &p, FI_PEEK | FI_CLAIM));
	done(s->rx, &found);
	unsigned posted = 0;
	ssize_t rc;
	/* A send of meet may complete late and free its request. */
	for (int full = 0; full < 3; full++) {
		while ((rc = fi_trecv(s->ep, in, 8, NULL, s->partner, 26, 0, &open)) == 0)
			want(++posted <= ALL, "more receives are open than there are requests");
		want(rc == -FI_EAGAIN, "a receive too many: %zd", rc);
		usleep(10000);
	}
	struct iovec v = {in, WAITS};
	p.msg_iov = &v;
	p.iov_count = 1;
	want((rc = fi_trecvmsg(s->ep, &p, FI_CLAIM)) == -FI_EAGAIN, "a claim without a request: %zd", rc);
	for (unsigned i = 0; i < posted; i++)
		must(fi_cancel(&s->ep->fid, &open));
	for (unsigned i = 0; i < posted; i++)
		fails(s->rx, &open);
	must(fi_trecvmsg(s->ep, &p, FI_CLAIM));
	done(s->rx, &found);
	check(in, WAITS, 1 - rank, "message that was claimed late");
	done(s->tx, &here);
	meet(s);
}

static void *sleeper(void *arg)
{
	struct fi_cq_tagged_entry e;
	struct side *s = arg;
	want(fi_cq_sread(s->rx, &e, 1, NULL, -1) == -FI_EAGAIN, "a thread that is woken has a completion");
	return NULL;
}

/* woken checks that a thread can wake another one that waits for a completion. */
static void woken(struct side *s)
{
	pthread_t t;
	scenario = "waking a thread that waits";
	must(pthread_create(&t, NULL, sleeper, s));
	must(fi_cq_signal(s->rx));
	must(pthread_join(t, NULL));
	struct fi_cq_tagged_entry e;
	want(fi_cq_sread(s->rx, &e, 1, NULL, 0) == -FI_EAGAIN, "a wait of no time");
	want(fi_cntr_wait(s->sent, fi_cntr_read(s->sent) + 1, 0) == -FI_ETIMEDOUT, "a counter's wait of no time");
}

/* busy checks that objects in use cannot be closed. */
static void busy(struct side *s)
{
	scenario = "closing what an endpoint uses";
	struct fid *used[] = {&s->tx->fid, &s->rx->fid, &s->av->fid, &s->sent->fid, &s->reads->fid, &s->domain->fid};
	for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
		int rc = fi_close(used[i]);
		want(rc == -FI_EBUSY, "object %zu: %d", i, rc);
	}
}

enum { THREADS = 4, EACH = 2000 };

static void *sender(void *arg)
{
	struct side *s = arg;
	unsigned char b[600] = {0};
	for (int i = 0; i < EACH; i++) {
		ssize_t rc;
		size_t n = (size_t)(i * 37 % 600);
		while ((rc = i % 2 == 0 ? fi_tinject(s->ep, b, n, s->partner, 27) : fi_tsend(s->ep, b, n, NULL, s->partner, 27, &here)) == -FI_EAGAIN)
			;
		must(rc);
	}
	return NULL;
}

/* threads sends on an endpoint from several threads at once, while this thread receives. */
static void threads(struct side *s)
{
	pthread_t t[THREADS];
	scenario = "threads that send at once";
	meet(s);
	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&t[i], NULL, sender, s));
	unsigned posted = 0, got = 0, sent = 0;
	while (got < THREADS * EACH || sent < THREADS * EACH / 2) {
		struct fi_cq_tagged_entry e;
		while (posted < THREADS * EACH && posted - got < 64) {
			must(fi_trecv(s->ep, in, 600, NULL, s->partner, 27, 0, &there));
			posted++;
		}
		got += fi_cq_read(s->rx, &e, 1) == 1;
		sent += fi_cq_read(s->tx, &e, 1) == 1;
	}
	for (int i = 0; i < THREADS; i++)
		must(pthread_join(t[i], NULL));
	want(nothing(s->tx) && nothing(s->rx), "a completion too many");
	meet(s);
}

/* undirected checks that an endpoint without FI_DIRECTED_RECV receives from every source,
 * regardless of the source that a receive names. */
static void undirected(struct side *s)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_ep *ep;
	fi_addr_t self;
	unsigned char name[64];
	size_t n = sizeof name;
	scenario = "receives of an endpoint that is not directed";
	hints->caps = FI_MSG | FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("outrigger");
	must(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	want((info->caps & FI_DIRECTED_RECV) == 0, "it was not asked for");
	must(fi_endpoint(s->domain, info, &ep, NULL));
	must(fi_ep_bind(ep, &s->av->fid, 0));
	must(fi_ep_bind(ep, &s->tx->fid, FI_TRANSMIT)); /* shared with another endpoint */
	must(fi_ep_bind(ep, &s->rx->fid, FI_RECV));
	must(fi_enable(ep));
	must(fi_getname(&ep->fid, name, &n));
	want(fi_av_insert(s->av, name, 1, &self, 0, NULL) == 1, "fi_av_insert");
	must(fi_trecv(ep, in, 8, NULL, s->partner, 28, 0, &there));
	must(fi_tsend(ep, out, 3, NULL, self, 28, &here));
	done(s->tx, &here);
	want(done(s->rx, &there).len == 3, "a tagged one");
	must(fi_recv(ep, in, 8, NULL, s->partner, &there));
	must(fi_send(ep, out, 4, NULL, self, &here));
	done(s->tx, &here);
	want(done(s->rx, &there).len == 4, "an untagged one");
	must(fi_close(&ep->fid));
	fi_freeinfo(info);
}

/* bereft has rank 1 end without closing its session: each untagged receive of rank 0 must fail,
 * also those that are posted later. */
void bereft(struct side *s)
{
	static unsigned char room[4096];
	static int contexts[4];
	struct iovec v = {room, sizeof room};
	struct fi_msg m = {.msg_iov = &v, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[0]};
	scenario = "receives of a job that fails";
	uint64_t errors = fi_cntr_readerr(s->received);
	must(fi_recvmsg(s->ep, &m, FI_MULTI_RECV));
	must(fi_recv(s->ep, in, 8, NULL, s->partner, &contexts[1]));
	must(fi_recv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	meet(s);
	if (rank == 1)
		_exit(7);
	for (int i = 0; i < 4; i++) {
		if (i == 3)
			must(fi_recv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[3]));
		struct fi_cq_err_entry e = fails(s->rx, &contexts[i]);
		want(e.err == FI_ECONNABORTED && ((e.flags & FI_MULTI_RECV) != 0) == (i == 0), "receive %d: error %s, flags %#llx", i, fi_strerror(e.err), (unsigned long long)e.flags);
	}
	want(fi_cntr_readerr(s->received) == errors + 4 && nothing(s->rx), "receives have ended twice, or are not counted");
	printf("provider: rank 0 has heard of it\n");
	fflush(stdout);
}

/* stops waits until all threads of a process have stopped: some may still run for a moment after
 * SIGSTOP was sent. */
static void stops(pid_t pid)
{
	char folder[64], path[400], text[512];
	snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
	for (bool all = false; !all; usleep(1000)) {
		DIR *d = opendir(folder);
		want(d != NULL, "no %s", folder);
		all = true;
		for (struct dirent *e; (e = readdir(d)) != NULL;) {
			if (e->d_name[0] == '.')
				continue;
			snprintf(path, sizeof path, "%s/%s/stat", folder, e->d_name);
			FILE *f = fopen(path, "r");
			if (f == NULL)
				continue; /* the thread has ended */
			const char *behind = fgets(text, sizeof text, f) == NULL ? NULL : strrchr(text, ')');
			all = all && behind != NULL && behind[1] == ' ' && behind[2] == 'T';
			fclose(f);
		}
		closedir(d);
	}
}

/* signal_sidecar signals the process at the other end of this one's socket. */
static void signal_sidecar(int what)
{
	for (int fd = 3; fd < 256; fd++) {
		struct ucred peer;
		struct sockaddr_un name;
		int kind;
		socklen_t n = sizeof peer, m = sizeof name, k = sizeof kind;
		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &k) == 0 && kind == SOCK_SEQPACKET &&
		    getpeername(fd, (struct sockaddr *)&name, &m) == 0 && name.sun_family == AF_UNIX &&
		    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid > 1 && peer.pid != getpid()) {
			kill(peer.pid, what);
			if (what == SIGSTOP)
				stops(peer.pid);
		}
	}
}

/* orphaned has rank 0 lose its sidecar: each open access, receive and probe must have an error.
 * Operations without a context are counted, and have no error. */
void orphaned(struct side *s)
{
	enum { OPEN = 7 };
	static unsigned char region[LARGE];
	static int contexts[OPEN];
	static uint64_t operand = 1, old;
	struct fid_mr *mr = expose(s, region, sizeof region, FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
	struct door d = show(s, mr, region);
	unsigned ended[OPEN] = {0}, all = 0;
	scenario = "operations when the sidecar has ended";
	/* The first large message requests a piece of the arena, which a stopped sidecar does not
	 * allocate. */
	must(fi_trecv(s->ep, in, LARGE, NULL, s->partner, 8, 0, &contexts[0]));
	must(fi_tsend(s->ep, out, LARGE, NULL, s->partner, 8, &contexts[1]));
	done(s->rx, &contexts[0]);
	done(s->tx, &contexts[1]);
	meet(s);
	if (rank == 1) {
		want(close(open("away", O_WRONLY | O_CREAT, 0600)) == 0, "no file");
		for (;;)
			pause(); /* does not poll until it is killed */
	}
	while (access("away", F_OK) != 0)
		usleep(1000);
	signal_sidecar(SIGSTOP); /* otherwise it answers a probe at once */
	must(fi_read(s->ep, in, 8, NULL, s->partner, d.start, d.key, &contexts[0]));
	must(fi_write(s->ep, out, 8, NULL, s->partner, d.start, d.key, &contexts[1]));
	must(fi_write(s->ep, out, LARGE, NULL, s->partner, d.start, d.key, &contexts[2]));
	must(fi_fetch_atomic(s->ep, &operand, 1, NULL, &old, NULL, s->partner, d.start, d.key, FI_UINT64, FI_SUM, &contexts[3]));
	must(fi_recv(s->ep, in, 8, NULL, s->partner, &contexts[4]));
	must(fi_trecv(s->ep, in, 8, NULL, s->partner, 9, 0, &contexts[5]));
	must(fi_trecv(s->ep, in, 8, NULL, s->partner, 9, 0, NULL));
	must(fi_trecvmsg(s->ep, &(struct fi_msg_tagged){.addr = s->partner, .tag = 9, .context = &contexts[6]}, FI_PEEK));
	signal_sidecar(SIGKILL);
	while (all < OPEN)
		for (int q = 0; q < 2; q++) {
			struct fid_cq *cq = q == 0 ? s->tx : s->rx;
			struct fi_cq_tagged_entry e;
			struct fi_cq_err_entry bad = {0};
			ssize_t n = fi_cq_read(cq, &e, 1);
			if (n == -FI_EAGAIN)
				continue;
			want(n == -FI_EAVAIL && fi_cq_readerr(cq, &bad, 0) == 1 && bad.err == FI_ECONNABORTED, "an end without an error: %zd", n);
			size_t which = (size_t)((int *)bad.op_context - contexts);
			want(which < OPEN && (which < 4) == (q == 0) && ended[which]++ == 0, "an error of %p", bad.op_context);
			all++;
		}
	want(fi_cntr_readerr(s->reads) == 2 && fi_cntr_readerr(s->writes) == 2 && fi_cntr_readerr(s->received) == 3, "they are not counted");
	want(fi_trecv(s->ep, in, 8, NULL, s->partner, 9, 0, &contexts[5]) == -FI_ECONNABORTED, "a tagged receive is posted");
	want(fi_recv(s->ep, in, 8, NULL, s->partner, &contexts[4]) == -FI_ECONNABORTED, "an untagged receive is posted");
	struct fi_cq_tagged_entry e;
	want(fi_cq_sread(s->rx, &e, 1, NULL, 1000000) == -FI_ECONNABORTED, "a wait for a completion that never arrives");
	printf("provider: rank 0 has lost its sidecar\n");
	fflush(stdout);
}

/* promised checks that a program gets exactly the primary capabilities that it requests, for the
 * directions that it requests (fi_getinfo(3)). */
static void promised(void)
{
	static const struct {
		uint64_t asked, wanted, without;
	} list[] = {
		{FI_MSG, FI_MSG | FI_SEND | FI_RECV, FI_TAGGED | FI_RMA | FI_ATOMIC | FI_READ | FI_DIRECTED_RECV},
		{FI_TAGGED | FI_SEND, FI_TAGGED | FI_SEND, FI_MSG | FI_RECV | FI_MULTI_RECV | FI_WRITE},
		{FI_RMA | FI_REMOTE_WRITE, FI_RMA | FI_REMOTE_WRITE, FI_MSG | FI_SEND | FI_READ | FI_ATOMIC},
		{0, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV, 0},
	};
	scenario = "promised capabilities and sizes";
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		struct fi_info *hints = fi_allocinfo(), *info;
		hints->caps = list[i].asked;
		hints->domain_attr->mr_mode = -1;
		hints->fabric_attr->prov_name = strdup("outrigger");
		must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
		want((info->caps & list[i].wanted) == list[i].wanted && (info->caps & list[i].without) == 0, "asked for %#llx, got %#llx",
		     (unsigned long long)list[i].asked, (unsigned long long)info->caps);
		want((info->tx_attr->caps & ~info->caps) == 0 && (info->rx_attr->caps & ~info->caps) == 0, "a side has more than both");
		want(info->tx_attr->size + info->rx_attr->size <= 65536 - 1024, "more is promised than a session has");
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
}

/* removed checks that an address is invalid after as many removals as insertions, and has the same
 * number when it is inserted again. */
static void removed(struct side *s)
{
	struct fi_av_attr attr = {.type = FI_AV_TABLE};
	struct fid_av *av;
	unsigned char name[64];
	size_t n = sizeof name;
	fi_addr_t first, second;
	scenario = "removed addresses";
	must(fi_getname(&s->ep->fid, name, &n));
	must(fi_av_open(s->domain, &attr, &av, NULL));
	want(fi_av_insert(av, name, 1, &first, 0, NULL) == 1 && fi_av_insert(av, name, 1, &second, 0, NULL) == 1 && first == second, "two numbers");
	for (int i = 0; i < 3; i++) {
		int rc = fi_av_remove(av, &first, 1, 0);
		n = sizeof name;
		want((rc == 0) == (i < 2) && (fi_av_lookup(av, first, name, &n) == 0) == (i < 1), "removal %d: %d", i, rc);
	}
	want(fi_av_insert(av, name, 1, &second, 0, NULL) == 1 && first == second, "another number");
	must(fi_close(&av->fid));
}

/* no_event checks that a wait for events times out. */
static void no_event(struct side *s)
{
	struct fi_eq_attr attr = {0};
	struct fid_eq *eq;
	uint32_t event;
	char buf[64];
	scenario = "a wait for events";
	must(fi_eq_open(s->fabric, &attr, &eq, NULL));
	want(fi_eq_sread(eq, &event, buf, sizeof buf, 30, 0) == -FI_EAGAIN && fi_eq_sread(eq, &event, buf, sizeof buf, 0, 0) == -FI_EAGAIN, "an event");
	must(fi_close(&eq->fid));
}

void strange(struct side *s)
{
	promised();
	removed(s);
	no_event(s);
	read_none(s);
	nothing_in_it(s);
	injected(s);
	exactly(s);
	cancelled(s);
	claim_later(s);
	threads(s);
	undirected(s);
	woken(s);
	busy(s);
}
