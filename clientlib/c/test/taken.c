/* Tests, without a sidecar, that a thread that is about to sleep does not if a second thread
 * has processed the completion that it waits for, and a third thread has set the waiting word
 * for its own sleep. Both happen in this program's syscall, at the futex call of the first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

#define ENTRIES 16u

static _Alignas(4096) unsigned char control[4096], complete[4096];
static outrigger *s;
static atomic_uint naps;
static bool slept; /* the first futex call slept */
static pthread_t third;

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "taken: %s\n", what);
	exit(1);
}

static void *sleep_too(void *arg)
{
	(void)outrigger_sleep(s, 100000);
	return arg;
}

/* meddle processes the completion that the caller waits for, and has another thread set the
 * waiting word. */
static void meddle(void)
{
	struct or_descriptor d = {.op = OR_OP_DONE};
	struct or_producer sidecar = {0};
	unsigned came;
	or_view_init(&sidecar.view, complete, ENTRIES);
	want(or_push(&sidecar, &d) == 1, "publishing");
	want(outrigger_progress(s, &came) == OUTRIGGER_OK && came == 1, "taking");
	want(atomic_load(or_word(s, OR_SEG_OFF_WAITING)) == 0, "the waiting word is still set");
	want(pthread_create(&third, NULL, sleep_too, NULL) == 0, "starting a thread");
	while (atomic_load(or_word(s, OR_SEG_OFF_WAITING)) == 0)
		sched_yield();
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
	long a[6];
	va_list args;
	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	bool first = number == SYS_futex && a[1] == FUTEX_WAIT && naps++ == 0;
	if (first)
		meddle();
	long rc = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	int cause = errno;
	if (first)
		slept = rc == 0 || cause != EAGAIN;
	errno = cause;
	return rc;
}

int main(void)
{
	int pair[2];
	uint32_t id;
	struct or_op *op;
	s = calloc(1, sizeof *s);
	want(s != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "preparing");
	s->socket = pair[0];
	s->control = control;
	pthread_mutex_init(&s->lock, NULL);
	or_view_init(&s->complete.view, complete, ENTRIES);
	want(or_wait_policy_init(s, "block") == OUTRIGGER_OK && or_op_alloc(&s->ops, &id, &op) == 0, "preparing");
	want(outrigger_wait(s, (uint64_t)op->gen << 32 | id, NULL) == OUTRIGGER_OK, "waiting");
	pthread_join(third, NULL);
	want(!slept, "the thread slept although its request had completed");
	puts("taken: awake");
	return 0;
}
