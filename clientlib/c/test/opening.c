/*
 * Opens and closes sessions while another thread forks. A child must inherit none of their
 * descriptors: if it had the socket, the sidecar would not notice that its parent was
 * killed. A child process plays the sidecar. It answers a greeting only after a child was
 * forked and has ended since; the first greeting it answers with too many descriptors.
 */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

#define ROUNDS 200
#define FILES 256     /* descriptors 0 to 255 are checked */
#define PASSED 3      /* descriptors attached to a Welcome */
#define ENTRIES 64u   /* entries of a ring */
#define SLAB (64u << 10)
#define ARENA (64u << 10)
#define SECOND (3u * OR_SEG_PAGE_BYTES) /* where the second ring starts */
#define SLAB_AT (5u * OR_SEG_PAGE_BYTES)

static atomic_bool over;
static bool mine[FILES]; /* descriptors open before the first session */
static int gone[2];      /* pipe with a byte from each child that has finished its check */
static const char *path;

static void die(const char *what) __attribute__((noreturn));

static void die(const char *what)
{
	fprintf(stderr, "opening: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void want(bool good, const char *what)
{
	if (!good)
		die(what);
}

/* sealed returns a memory file sealed as a sidecar seals it. */
static int sealed(size_t bytes)
{
	int fd = (int)syscall(SYS_memfd_create, "opening", 3 /* MFD_CLOEXEC, MFD_ALLOW_SEALING */);
	want(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, 1033 /* F_ADD_SEALS */, 6 /* F_SEAL_SHRINK | F_SEAL_GROW */) == 0, "a file of memory");
	return fd;
}

static void head(int file)
{
	uint64_t words[5] = {
		OR_SEG_HEADER_MAGIC, OR_ABI_VERSION, ENTRIES | (uint64_t)ENTRIES << 32, SLAB_AT, SLAB,
	};
	want(pwrite(file, words, sizeof words, 0) == sizeof words, "the header");
}

static void welcome(int to, const int *fds, size_t count)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE((PASSED + 1) * sizeof(int))];
	} control = {0};
	unsigned char b[OR_WELCOME_BYTES] = {0};
	const uint32_t words[] = {OR_WELCOME_MAGIC, OR_ABI_VERSION, OR_FEATURES_REQUIRED, 0, 1, 0, 1, 0, 1, 0};
	const uint64_t sizes[] = {SLAB_AT + SLAB, ARENA, 4096};
	memcpy(b, words, sizeof words);
	memcpy(b + sizeof words, sizes, sizeof sizes);
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	want(sendmsg(to, &m, MSG_NOSIGNAL) == sizeof b, "the welcome");
}

/* one_more waits until a child was forked and has finished after the call. It reads two
 * bytes, because the first may be from a child that was forked before. */
static void one_more(void)
{
	char b[4096];
	while (read(gone[0], b, sizeof b) > 0)
		;
	for (int n = 0; n < 2;) {
		if (read(gone[0], b, 1) == 1)
			n++;
		else
			usleep(50);
	}
}

static void serve(int listener)
{
	for (bool first = true;; first = false) {
		unsigned char b[OR_HELLO_BYTES];
		int fd = accept(listener, NULL, NULL);
		int fds[PASSED + 1] = {sealed(SLAB_AT + SLAB), sealed(ARENA), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), dup(listener)};
		want(fd >= 0 && read(fd, b, sizeof b) == sizeof b, "a greeting");
		head(fds[0]);
		if (!first)
			one_more();
		welcome(fd, fds, first ? PASSED + 1 : PASSED);
		while (read(fd, b, sizeof b) > 0) /* until the client closes it */
			;
		close(fd);
		for (int i = 0; i <= PASSED; i++)
			close(fds[i]);
	}
}

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static void child(void)
{
	for (int fd = 0; fd < FILES; fd++)
		if (is_open(fd) && !mine[fd]) {
			char name[64], link[64];
			snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
			ssize_t n = readlink(name, link, sizeof link);
			fprintf(stderr, "opening: a child has %.*s of a session\n", n < 0 ? 0 : (int)n, link);
			_exit(1);
		}
	char b = 0;
	(void)!write(gone[1], &b, 1);
	_exit(0);
}

static void *fork_on(void *count)
{
	while (!atomic_load(&over)) {
		int status;
		pid_t pid = fork();
		want(pid >= 0, "fork");
		if (pid == 0)
			child();
		while (waitpid(pid, &status, 0) < 0)
			want(errno == EINTR, "waitpid");
		want(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child has failed");
		++*(unsigned *)count;
	}
	return count;
}

static int begin(outrigger **s, char why[256])
{
	struct outrigger_config config = {.socket = path, .wait = "yield"};
	return outrigger_open(&config, s, why, 256);
}

/* too_many checks that opening fails if the sidecar passes one descriptor too many, and that
 * the client keeps none of them open. */
static void too_many(void)
{
	char why[256];
	outrigger *s;
	want(begin(&s, why) == OUTRIGGER_NO_SIDECAR && strstr(why, "more than 3 descriptors") != NULL, why);
	for (int fd = 0; fd < FILES; fd++)
		want(is_open(fd) == mine[fd], "a descriptor of the sidecar's was kept");
}

static pid_t start_sidecar(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	want(strlen(path) < sizeof at.sun_path, "a short path");
	strcpy(at.sun_path, path);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	want(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 4) == 0, "listening");
	pid_t pid = fork();
	want(pid >= 0, "fork");
	if (pid == 0) {
		alarm(120);
		serve(listener);
	}
	close(listener);
	return pid;
}

int main(int argc, char **argv)
{
	want(argc == 2, "usage: opening SOCKET");
	path = argv[1];
	want(pipe2(gone, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
	pid_t sidecar = start_sidecar();
	for (int fd = 0; fd < FILES; fd++)
		mine[fd] = is_open(fd);
	alarm(120);
	too_many();
	unsigned children = 0;
	pthread_t t;
	want(pthread_create(&t, NULL, fork_on, &children) == 0, "thread");
	for (int i = 0; i < ROUNDS; i++) {
		char why[256];
		outrigger *s;
		if (begin(&s, why) != OUTRIGGER_OK || outrigger_close(s) != OUTRIGGER_OK)
			die(why);
	}
	atomic_store(&over, true);
	pthread_join(t, NULL);
	kill(sidecar, SIGKILL);
	waitpid(sidecar, NULL, 0);
	unlink(path);
	want(children >= ROUNDS, "as many children as sessions");
	printf("opening: %d sessions, of which children inherited no descriptor\n", ROUNDS);
	return 0;
}
