// chain.c: the bare chain of four processes, the yardstick of Outrigger's
// small-message latency.
//
// A message between two pods passes four processes: application A, sidecar A,
// sidecar B, application B. This program is those four processes with nothing
// inside them: no matching, no headers to check, no credits, no completions.
// Its latency is the cost of that structure on this machine, so that
// "8-byte latency <= 1.2x the chain" bounds what the engine adds.
//
//   app A  --flag-->  sidecar A  ==TCP==>  sidecar B  --flag-->  app B
//   app A  <--flag--  sidecar A  <==TCP==  sidecar B  <--flag--  app B
//
// A flag is a sequence word and 64 bytes of payload in shared memory, one for
// each direction. The sidecars exchange 64-byte frames over one loopback TCP
// connection with TCP_NODELAY and non-blocking calls. Each process waits by
// polling once and then calling sched_yield, because four pollers on a machine
// with fewer than four cores have to give the core to each other. A sidecar polls
// both its application and its socket on each turn, as a real one must: either
// may send next.
//
// Method: 1,000 round trips of warm-up, then R repetitions of N round trips;
// the one-way latency of a repetition is its time / (2 N). Printed: the median
// and the minimum of the repetitions, in microseconds, as one JSON line.
//
// Usage: chain [iterations [repetitions]]     default 20000 and 7
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { PAYLOAD = 64, WARMUP = 1000, REPS_MAX = 101, ITERS_MAX = 1000000, LIMIT_SECONDS = 120 };

// One direction of one wall. The word and the payload lie on lines of their
// own, so that a poller of the word does not slow the writer of the payload.
struct flag {
	_Alignas(128) _Atomic uint64_t seq;
	_Alignas(64) unsigned char payload[PAYLOAD];
};

// The two flags between one application and its sidecar.
struct wall {
	struct flag to_sidecar, to_app;
};

// The release store orders the payload before the word; the acquire load in
// arrived() is its other half.
static void publish(struct flag *f, uint64_t seq, const unsigned char *payload) {
	memcpy(f->payload, payload, PAYLOAD);
	atomic_store_explicit(&f->seq, seq, memory_order_release);
}

static int arrived(struct flag *f, uint64_t seq) {
	return atomic_load_explicit(&f->seq, memory_order_acquire) == seq;
}

static void await(struct flag *f, uint64_t seq, unsigned char *payload) {
	while (!arrived(f, seq))
		sched_yield();
	memcpy(payload, f->payload, PAYLOAD);
}

static void tune(int fd) {
	int one = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
		die("set TCP_NODELAY");
}

static void send_frame(int fd, const unsigned char *frame) {
	for (size_t sent = 0; sent < PAYLOAD;) {
		ssize_t n = send(fd, frame + sent, PAYLOAD - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			sent += (size_t)n;
		else if (n < 0 && (errno == EAGAIN || errno == EINTR))
			sched_yield();
		else
			die("send to the peer sidecar");
	}
}

// A sidecar forwards `total` messages each way and ends.
static void sidecar(int fd, struct wall *w, uint64_t total) {
	unsigned char out[PAYLOAD], in[PAYLOAD];
	size_t have = 0;
	uint64_t sent = 0, delivered = 0;
	tune(fd);
	while (sent < total || delivered < total) {
		int progress = 0;
		if (sent < total && arrived(&w->to_sidecar, sent + 1)) {
			memcpy(out, w->to_sidecar.payload, PAYLOAD);
			send_frame(fd, out);
			sent++;
			progress = 1;
		}
		if (delivered < total) {
			ssize_t n = recv(fd, in + have, PAYLOAD - have, MSG_DONTWAIT);
			if (n > 0) {
				have += (size_t)n;
				progress = 1;
			} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
				die("receive from the peer sidecar");
			}
			if (have == PAYLOAD) {
				publish(&w->to_app, ++delivered, in);
				have = 0;
			}
		}
		if (!progress)
			sched_yield();
	}
}

static void echo(struct wall *w, uint64_t total) {
	unsigned char payload[PAYLOAD];
	for (uint64_t seq = 1; seq <= total; seq++) {
		await(&w->to_app, seq, payload);
		publish(&w->to_sidecar, seq, payload);
	}
}

static void round_trips(struct wall *w, uint64_t *seq, long n) {
	unsigned char payload[PAYLOAD] = {0}, back[PAYLOAD];
	while (n-- > 0) {
		++*seq;
		memcpy(payload, seq, sizeof *seq);
		publish(&w->to_sidecar, *seq, payload);
		await(&w->to_app, *seq, back);
		if (memcmp(payload, back, PAYLOAD) != 0) {
			fprintf(stderr, "chain: message %llu came back changed\n", (unsigned long long)*seq);
			exit(1);
		}
	}
}

static void measure(struct wall *w, long iters, int reps) {
	double us[REPS_MAX];
	uint64_t seq = 0;
	round_trips(w, &seq, WARMUP);
	for (int r = 0; r < reps; r++) {
		double start = now_us();
		round_trips(w, &seq, iters);
		us[r] = (now_us() - start) / (2.0 * iters);
	}
	qsort(us, reps, sizeof us[0], ascending);
	printf("{\"peer\":\"chain\",\"test\":\"latency\",\"bytes\":%d,\"us\":%.3f,\"us_min\":%.3f}\n",
	       PAYLOAD, us[reps / 2], us[0]);
	fflush(stdout);
}

// Sidecar B dials in its own process, after the fork, so that the parent never
// holds an end that would keep the connection open past a dead sidecar.
static int dial(const struct sockaddr_in *where) {
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)where, sizeof *where) != 0)
		die("connect to the peer sidecar");
	return fd;
}

static int listen_loopback(struct sockaddr_in *where) {
	socklen_t len = sizeof *where;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	memset(where, 0, sizeof *where);
	where->sin_family = AF_INET;
	where->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)where, sizeof *where) != 0 || listen(fd, 1) != 0 ||
	    getsockname(fd, (struct sockaddr *)where, &len) != 0)
		die("listen on loopback");
	return fd;
}

static long argument(int argc, char **argv, int i, long fallback, long max) {
	char *end;
	if (i >= argc)
		return fallback;
	long v = strtol(argv[i], &end, 10);
	if (*end != '\0' || v < 1 || v > max) {
		fprintf(stderr, "chain: argument %d must be a number from 1 to %ld\n", i, max);
		exit(2);
	}
	return v;
}

// A child outlives neither its parent nor the time limit.
static pid_t child(pid_t parent) {
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			exit(1);
		alarm(LIMIT_SECONDS);
	}
	return pid;
}

int main(int argc, char **argv) {
	long iters = argument(argc, argv, 1, 20000, ITERS_MAX);
	int reps = (int)argument(argc, argv, 2, 7, REPS_MAX);
	uint64_t total = WARMUP + (uint64_t)iters * reps;
	struct sockaddr_in where;
	int listener = listen_loopback(&where);
	struct wall *walls = mmap(NULL, 2 * sizeof *walls, PROT_READ | PROT_WRITE,
	                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (walls == MAP_FAILED)
		die("map shared memory");

	pid_t self = getpid(), pids[4];
	for (int role = 0; role < 4; role++) {
		pids[role] = child(self);
		if (pids[role] != 0)
			continue;
		if (role == 0) { // sidecar A
			int fd = accept(listener, NULL, NULL);
			if (fd < 0)
				die("accept");
			sidecar(fd, &walls[0], total);
		} else if (role == 1) { // sidecar B
			close(listener);
			sidecar(dial(&where), &walls[1], total);
		} else if (role == 2) { // application B
			close(listener);
			echo(&walls[1], total);
		} else { // application A
			close(listener);
			measure(&walls[0], iters, reps);
		}
		exit(0);
	}
	close(listener);

	int failed = 0;
	for (int left = 4; left > 0; left--) {
		int status;
		pid_t gone = wait(&status);
		if (gone < 0)
			die("wait");
		for (int role = 0; role < 4; role++)
			if (pids[role] == gone)
				pids[role] = 0;
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			failed = 1;
			// The others wait for a message that will not come.
			for (int role = 0; role < 4; role++)
				if (pids[role] != 0)
					kill(pids[role], SIGKILL);
		}
	}
	if (failed)
		fprintf(stderr, "chain: a process failed or passed %d s; nothing was measured\n", LIMIT_SECONDS);
	return failed;
}
