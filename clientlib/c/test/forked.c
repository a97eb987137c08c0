/*
 * Ranks that fork while messages are in flight and another thread calls the library. The
 * child calls every function, aborts and closes; its parent's session is not affected. Each
 * rank exchanges messages with rank^1.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

#define ROUNDS 20
#define BYTES 700001 /* staged, and large enough that the client reports its activity */

static outrigger *s;
static atomic_bool over;

static void die(const char *what) __attribute__((noreturn));

static void die(const char *what)
{
	fprintf(stderr, "forked: %s\n", what);
	_exit(1);
}

static void want(bool good, const char *what)
{
	if (!good)
		die(what);
}

/* busy polls, yields and allocates, so that forks happen while locks are held. */
static void *busy(void *arg)
{
	while (!atomic_load(&over)) {
		unsigned taken;
		void *p = outrigger_alloc(s, 1000);
		(void)outrigger_progress(s, &taken);
		outrigger_yield(s);
		want(p != NULL && outrigger_free(s, p) == OUTRIGGER_OK, "memory of the arena");
	}
	return arg;
}

static bool closed(int fd) { return fcntl(fd, F_GETFD) < 0 && errno == EBADF; }

/* child calls the functions of the library. None of the calls may reach the sidecar. */
static void child(const int fds[2], outrigger_request open)
{
	char b[64] = {0};
	struct outrigger_envelope e = {.peer = s->world.rank, .tag = 7};
	outrigger_request q;
	int done;
	unsigned taken;
	alarm(30);
	want(closed(fds[0]) && closed(fds[1]), "a child has its parent's socket or doorbell");
	want(outrigger_progress(s, &taken) == OUTRIGGER_NO_SIDECAR, "a child has polled for completions");
	want(outrigger_send(s, b, 8, &e, 0, NULL) == OUTRIGGER_NO_SIDECAR, "a child has sent");
	want(outrigger_send(s, b, sizeof b, &e, 0, &q) == OUTRIGGER_NO_SIDECAR, "a child has sent 64 bytes");
	want(outrigger_recv(s, b, sizeof b, &e, &q) == OUTRIGGER_NO_SIDECAR, "a child has received");
	want(outrigger_probe(s, &e, OUTRIGGER_NOW, NULL, NULL, &q) == OUTRIGGER_NO_SIDECAR, "a child has probed");
	want(outrigger_test(s, open, &done, NULL) == OUTRIGGER_NO_SIDECAR && !done, "a child has completed a request of its parent");
	want(outrigger_wait(s, open, NULL) == OUTRIGGER_NO_SIDECAR, "a child has waited for a request of its parent");
	want(outrigger_sleep(s, 1000) == OUTRIGGER_NO_SIDECAR, "a child has slept");
	want(outrigger_alloc(s, 64) == NULL && outrigger_free(s, s->arena.memory) == OUTRIGGER_INVALID, "a child has memory of the arena");
	want(outrigger_cancel(s, open) == OUTRIGGER_NO_SIDECAR, "a child has cancelled");
	outrigger_yield(s);
	want(outrigger_abort(s, 9, "I am a child") == OUTRIGGER_NO_SIDECAR, "a child has aborted");
	outrigger_failure(s, b, sizeof b);
	want(*b == 0, "a child reports a failure of the job");
	want(outrigger_close(s) == OUTRIGGER_NO_SIDECAR, "a child has closed its parent's session");
	exit(0);
}

static void leave_behind(outrigger_request open)
{
	int fds[2] = {s->socket, s->doorbell}, status;
	pid_t pid = fork();
	want(pid >= 0, "fork");
	if (pid == 0)
		child(fds, open);
	while (waitpid(pid, &status, 0) < 0)
		want(errno == EINTR, "waitpid");
	want(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child has failed");
}

/* quiet checks that a child does not change the control segment while its parent does
 * nothing. */
static void quiet(outrigger_request never)
{
	static unsigned char before[OR_SEG_OFF_RINGS];
	atomic_store(or_word(s, OR_SEG_OFF_PLACE), OR_PLACE_WAITS);
	memcpy(before, s->control + OR_SEG_OFF_WAITING, sizeof before - OR_SEG_OFF_WAITING);
	uint64_t head = atomic_load(s->complete.view.head), tail = s->submit.tail;
	leave_behind(never);
	want(memcmp(before, s->control + OR_SEG_OFF_WAITING, sizeof before - OR_SEG_OFF_WAITING) == 0, "a child wrote into the header");
	want(atomic_load(s->complete.view.head) == head, "a child took completions");
	want(atomic_load((_Atomic uint32_t *)(void *)or_entry(&s->submit.view, tail)) != (uint32_t)(tail + 1), "a child has submitted");
}

int main(void)
{
	struct outrigger_config config = {0};
	char why[256];
	pthread_t t;
	static unsigned char out[BYTES], in[BYTES];
	if (outrigger_open(&config, &s, why, sizeof why) != OUTRIGGER_OK)
		die(why);
	struct outrigger_envelope e = {.peer = s->world.rank ^ 1u};
	struct outrigger_envelope unmatched = {.peer = s->world.rank, .tag = 12345};
	outrigger_request never;
	want(outrigger_recv(s, in, 8, &unmatched, &never) == OUTRIGGER_OK, "receive");
	want(pthread_create(&t, NULL, busy, NULL) == 0, "thread");
	for (int i = 0; i < ROUNDS; i++) {
		outrigger_request r, w;
		e.tag = (uint64_t)i;
		memset(out, i, sizeof out);
		want(outrigger_recv(s, in, sizeof in, &e, &r) == OUTRIGGER_OK && outrigger_send(s, out, sizeof out, &e, 0, &w) == OUTRIGGER_OK, "starting a round");
		leave_behind(never);
		want(outrigger_wait(s, w, NULL) == OUTRIGGER_OK && outrigger_wait(s, r, NULL) == OUTRIGGER_OK, "ending a round");
		for (size_t k = 0; k < sizeof in; k++)
			want(in[k] == i, "a wrong byte");
	}
	atomic_store(&over, true);
	pthread_join(t, NULL);
	quiet(never);
	want(outrigger_cancel(s, never) == OUTRIGGER_OK && outrigger_wait(s, never, NULL) == OUTRIGGER_CANCELLED, "cancelling");
	want(outrigger_close(s) == OUTRIGGER_OK, "close");
	printf("forked: every message of %d rounds right\n", ROUNDS);
	return 0;
}
