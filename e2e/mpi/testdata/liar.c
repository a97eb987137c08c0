/* A program over libfabric with a sidecar of its own, a child process, which violates the
 * protocol: it completes a request that does not exist, and then one that does. After the
 * violation the sidecar counts as gone. The endpoint is closed, with all its open operations,
 * before the session: no call may report the second completion, and no memory may leak. */
#define _GNU_SOURCE
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ring.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
static int __lsan_do_recoverable_leak_check(void) { return 0; }
#endif

#define ENTRIES 64u
#define SLAB (1u << 20)
#define ARENA (64u << 10)
#define SECOND (3u * OR_SEG_PAGE_BYTES) /* where the second ring starts */
#define SLAB_AT (5u * OR_SEG_PAGE_BYTES)
#define LAST_TAG 77 /* tag of the last send */

static void want(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	_exit(1);
}

static int sealed(size_t bytes)
{
	int fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	want(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "a file of memory");
	return fd;
}

static void welcome(int to, int control)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} room = {0};
	int fds[3] = {control, sealed(ARENA), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	unsigned char b[OR_WELCOME_BYTES] = {0};
	const uint32_t words[] = {OR_WELCOME_MAGIC, OR_ABI_VERSION, OR_FEATURES_REQUIRED | OR_FEATURE_DATA, 0, 1, 0, 2, 0, 1, 0};
	const uint64_t sizes[] = {SLAB_AT + SLAB, ARENA, 4096};
	memcpy(b, words, sizeof words);
	memcpy(b + sizeof words, sizes, sizeof sizes);
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room.room, .msg_controllen = sizeof room.room};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(c), fds, sizeof fds);
	want(sendmsg(to, &m, MSG_NOSIGNAL) == sizeof b, "the welcome");
}

/* lie reads all descriptors up to the last send, and completes two requests. */
static void lie(unsigned char *control)
{
	struct or_consumer submit = {0};
	struct or_producer complete = {0};
	or_view_init(&submit.view, control + OR_SEG_OFF_RINGS, ENTRIES);
	or_view_init(&complete.view, control + SECOND, ENTRIES);
	struct or_descriptor d, of_none = {.op = OR_OP_DONE, .req = 60000}, second = {.op = OR_OP_DONE};
	do {
		while (!or_pop(&submit, &d))
			usleep(100);
		or_publish_head(&submit);
		if (d.op == OR_OP_RECV)
			second.req = d.req;
	} while (d.op != OR_OP_SEND || d.tag != LAST_TAG);
	want(or_push(&complete, &of_none) == 1 && or_push(&complete, &second) == 1, "publishing");
}

static void serve(int listener)
{
	uint64_t head[5] = {OR_SEG_HEADER_MAGIC, OR_ABI_VERSION, ENTRIES | (uint64_t)ENTRIES << 32, SLAB_AT, SLAB};
	unsigned char b[OR_HELLO_BYTES];
	int control = sealed(SLAB_AT + SLAB), fd = accept(listener, NULL, NULL);
	unsigned char *memory = mmap(NULL, SLAB_AT + SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, control, 0);
	want(fd >= 0 && memory != MAP_FAILED && read(fd, b, sizeof b) == sizeof b, "a greeting");
	memcpy(memory, head, sizeof head);
	welcome(fd, control);
	lie(memory);
	for (;;)
		pause();
}

static pid_t start(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	want(strlen(path) < sizeof at.sun_path, "a short path");
	strcpy(at.sun_path, path);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	want(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0, "listening");
	pid_t pid = fork();
	want(pid >= 0, "fork");
	if (pid == 0) {
		alarm(60);
		serve(listener);
	}
	close(listener);
	return pid;
}

#define must(call) want((call) == 0, #call)

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;

static void open_all(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_MULTI_RECV;
	hints->ep_attr->type = FI_EP_RDM;
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

/* leave_open starts one operation of each kind. */
static void leave_open(void)
{
	static unsigned char memory[65536], room[16384];
	struct {
		uint32_t magic, rank, endpoint, zero;
	} name = {0x5254554f, 1, 0, 0};
	struct fi_cq_tagged_entry e;
	struct iovec v = {room, sizeof room};
	fi_addr_t to;
	want(fi_av_insert(av, &name, 1, &to, 0, NULL) == 1, "fi_av_insert");
	must(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ, 0, 1, 0, &mr, NULL));
	struct fi_msg m = {.msg_iov = &v, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = room};
	must(fi_recvmsg(ep, &m, FI_MULTI_RECV));
	want(fi_cq_read(cq, &e, 1) == -FI_EAGAIN, "fi_cq_read"); /* posts the receives for requests of other ranks */
	must(fi_write(ep, memory, sizeof memory, NULL, to, 0, 1, NULL));
	must(fi_send(ep, memory, sizeof memory, NULL, to, NULL));
	must(fi_trecv(ep, room, 8, NULL, to, 5, 0, NULL));
	must(fi_tsend(ep, memory, sizeof memory, NULL, to, LAST_TAG, NULL));
}

int main(int argc, char **argv)
{
	want(argc == 2, "usage: liar SOCKET");
	alarm(60);
	pid_t sidecar = start(argv[1]);
	setenv("OUTRIGGER_SOCKET", argv[1], 1);
	setenv("OUTRIGGER_RANK", "0", 1);
	open_all();
	leave_open();
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry bad = {0};
	ssize_t n;
	while ((n = fi_cq_read(cq, &e, 1)) == -FI_EAGAIN)
		;
	want(n == -FI_EAVAIL && fi_cq_readerr(cq, &bad, 0) == 1 && bad.err == FI_ECONNABORTED, "the end of the sidecar");
	struct fid *all[] = {&mr->fid, &ep->fid, &cq->fid, &av->fid, &domain->fid, &fabric->fid};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		must(fi_close(all[i]));
	kill(sidecar, SIGKILL);
	waitpid(sidecar, NULL, 0);
	want(__lsan_do_recoverable_leak_check() == 0, "nothing left");
	puts("liar: no call reported the second completion");
	return 0;
}
