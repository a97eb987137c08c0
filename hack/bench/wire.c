// wire.c: a bare ping-pong over loopback TCP, the yardstick of Outrigger's large
// messages between two pods.
//
// Two processes and nothing else: a message is 64 bytes, as of a header, and a
// payload, by one writev; the other side reads both into memory of its own and
// answers with as much. One copy into the kernel and one out of it are the cost of
// that structure on this machine, so that "1 MiB latency <= 1.35x the wire" bounds
// what two sidecars add. The socket has TCP_NODELAY and otherwise the system's
// defaults. Calls do not block; a process that cannot continue yields, as in
// chain.c.
//
// Loopback TCP has modes of its own, which last for a run or longer, so that only
// figures of one round may be compared.
//
// Method: for each size a tenth of the round trips as warm-up, then R repetitions
// of N round trips; the one-way latency of a repetition is its time / (2 N).
// Printed: the median and the minimum of the repetitions, in microseconds, as one
// JSON line a size.
//
// Usage: wire [repetitions]     default 7
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { HEADER = 64, REPS_MAX = 101, LIMIT_SECONDS = 120 };

static const struct {
	size_t bytes;
	int trips;
} sizes[] = {{64 << 10, 2000}, {1 << 20, 300}, {4 << 20, 80}};

enum { SIZES = sizeof sizes / sizeof sizes[0], LARGEST = 4 << 20 };

// advance removes the first n bytes from v.
static void advance(struct iovec *v, size_t n) {
	for (int i = 0; i < 2; i++) {
		size_t k = n < v[i].iov_len ? n : v[i].iov_len;
		v[i].iov_base = (char *)v[i].iov_base + k;
		v[i].iov_len -= k;
		n -= k;
	}
}

// move_all writes or reads a header and a payload of n bytes.
static void move_all(int fd, ssize_t (*call)(int, const struct iovec *, int), char *header, char *payload, size_t n) {
	struct iovec v[2] = {{header, HEADER}, {payload, n}};
	while (v[0].iov_len + v[1].iov_len > 0) {
		ssize_t k = call(fd, v, 2);
		if (k > 0)
			advance(v, (size_t)k);
		else if (k < 0 && (errno == EAGAIN || errno == EINTR))
			sched_yield();
		else
			die(k == 0 ? "the other process has ended" : "moving a message");
	}
}

// trips is n round trips from the side that begins, or from the other one.
static void trips(int fd, int begins, char *header, char *out, char *in, size_t bytes, int n) {
	while (n-- > 0) {
		if (begins)
			move_all(fd, writev, header, out, bytes);
		move_all(fd, readv, header, in, bytes);
		if (!begins)
			move_all(fd, writev, header, out, bytes);
	}
}

static void side(int fd, int begins, int reps) {
	static _Alignas(4096) char out[LARGEST], in[LARGEST], header[HEADER];
	int one = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
		die("set TCP_NODELAY");
	memset(out, 1 + begins, sizeof out);
	for (int s = 0; s < SIZES; s++) {
		double us[REPS_MAX];
		size_t bytes = sizes[s].bytes;
		int n = sizes[s].trips;
		trips(fd, begins, header, out, in, bytes, n / 10);
		for (int r = 0; r < reps; r++) {
			double start = now_us();
			trips(fd, begins, header, out, in, bytes, n);
			us[r] = (now_us() - start) / (2.0 * n);
		}
		if (in[0] != 2 - begins || in[bytes - 1] != 2 - begins) {
			fprintf(stderr, "wire: a message came changed\n");
			exit(1);
		}
		if (!begins)
			continue;
		qsort(us, reps, sizeof us[0], ascending);
		printf("{\"peer\":\"wire\",\"test\":\"latency\",\"bytes\":%zu,\"us\":%.3f,\"us_min\":%.3f}\n", bytes, us[reps / 2], us[0]);
		fflush(stdout);
	}
}

// pair makes a connection over loopback.
static void pair(int fd[2]) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &len) != 0)
		die("listen on loopback");
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (fd[0] < 0 || connect(fd[0], (struct sockaddr *)&a, sizeof a) != 0)
		die("connect over loopback");
	fd[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	if (fd[1] < 0)
		die("accept");
	close(listener);
}

int main(int argc, char **argv) {
	char *end = "";
	long reps = argc > 1 ? strtol(argv[1], &end, 10) : 7;
	if (*end != '\0' || reps < 1 || reps > REPS_MAX) {
		fprintf(stderr, "wire: the repetitions must be a number from 1 to %d\n", REPS_MAX);
		return 2;
	}
	int fd[2];
	pair(fd);
	pid_t self = getpid(), other = fork();
	if (other < 0)
		die("fork");
	alarm(LIMIT_SECONDS);
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != self)
			return 1;
		close(fd[0]);
		side(fd[1], 0, (int)reps);
		return 0;
	}
	close(fd[1]);
	if (fcntl(fd[0], F_SETFL, O_NONBLOCK) != 0)
		die("not to block");
	side(fd[0], 1, (int)reps);
	int status;
	if (waitpid(other, &status, 0) < 0)
		die("wait");
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
