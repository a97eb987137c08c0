/* Tests that an event wakes a watcher that is falling asleep. Between its last check of the
 * futex word and the kernel's check, the program leaves the library and an event happens:
 * another thread's outrigger_wake, or a message. The word may have its earlier value again by
 * then. This program's syscall delays the futex call between the two checks; a watcher whose
 * wake-up is lost sleeps for a minute.
 *
 * It also tests that the watcher hides no event from a thread of the program that is falling
 * asleep. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "outrigger.h"

enum { ROUNDS = 20, TIMEOUT_S = 20, SECOND_US = 1000000, MINUTE_US = 60000000 };

static outrigger *session;
static sem_t ready, falls_asleep, go_on, awake;
static _Thread_local bool stops; /* this thread stops before its next futex wait */
static _Thread_local bool slept; /* the last futex wait slept until it was woken or timed out */
static _Atomic unsigned ended;

static void die(const char *what)
{
	fprintf(stderr, "missed: %s\n", what);
	exit(1);
}

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (next == NULL) {
		void *symbol = dlsym(RTLD_NEXT, "syscall");
		memcpy(&next, &symbol, sizeof next);
	}
	if (stops && number == SYS_futex && a[1] == FUTEX_WAIT) {
		stops = false;
		sem_post(&falls_asleep);
		sem_wait(&go_on);
	}
	long rc = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	slept = number == SYS_futex && a[1] == FUTEX_WAIT && (rc == 0 || errno != EAGAIN);
	return rc;
}

static void *watches(void *arg)
{
	(void)arg;
	for (int i = 0; i < 2 * ROUNDS; i++) {
		sem_wait(&ready);
		stops = true;
		if (outrigger_watch(session, MINUTE_US) != OUTRIGGER_OK)
			die("the sidecar has ended");
		stops = false;
		sem_post(&awake);
	}
	return NULL;
}

static void on_end(void *arg, const struct outrigger_result *r)
{
	(void)arg;
	if (r->status != OUTRIGGER_OK)
		die("a message");
	atomic_fetch_add(&ended, 1);
}

/* send_one sends a message to this rank. */
static void send_one(int tag)
{
	static char out[4], in[4];
	struct outrigger_envelope e = {.peer = outrigger_world(session).rank, .tag = (uint64_t)tag};
	struct iovec to = {out, sizeof out}, from = {in, sizeof in};
	if (outrigger_recvv(session, &from, 1, &e, on_end, NULL, NULL) != OUTRIGGER_OK ||
	    outrigger_sendv(session, &to, 1, &e, OUTRIGGER_SYNC, on_end, NULL, NULL) != OUTRIGGER_OK)
		die("a message cannot be started");
}

static void is_back(int round)
{
	while (atomic_load(&ended) < 2 * (unsigned)round)
		if (outrigger_progress(session, NULL) != OUTRIGGER_OK || outrigger_sleep(session, 1000) != OUTRIGGER_OK)
			die("the sidecar has ended");
	(void)outrigger_progress(session, NULL);
}

/* sleeps runs in a thread of the program. It sets *arg if its sleep was not prevented by the
 * message that arrived before. */
static void *sleeps(void *arg)
{
	stops = true;
	if (outrigger_sleep(session, SECOND_US) != OUTRIGGER_OK)
		die("the sidecar has ended");
	*(bool *)arg = slept;
	return NULL;
}

static void *watches_once(void *arg)
{
	if (outrigger_watch(session, SECOND_US) != OUTRIGGER_OK || outrigger_attend(session) != OUTRIGGER_OK || outrigger_watch(session, 1) != OUTRIGGER_OK)
		die("the sidecar has ended");
	return arg;
}

/* program_sleeps has a message arrive while a thread of the program falls asleep. The sidecar
 * wakes the watcher, which takes no completions because the program has not left the library. */
static void program_sleeps(int round)
{
	pthread_t program, watcher;
	bool missed = true;
	if (pthread_create(&program, NULL, sleeps, &missed) != 0)
		die("no thread");
	sem_wait(&falls_asleep);
	if (pthread_create(&watcher, NULL, watches_once, NULL) != 0)
		die("no thread");
	usleep(2000); /* until the watcher sleeps */
	send_one(round);
	pthread_join(watcher, NULL);
	sem_post(&go_on);
	pthread_join(program, NULL);
	if (missed)
		die("a thread of the program sleeps although a message has ended");
}

int main(void)
{
	struct outrigger_config config = {0};
	char why[256];
	pthread_t watcher;
	if (outrigger_open(&config, &session, why, sizeof why) != OUTRIGGER_OK)
		die(why);
	alarm(TIMEOUT_S);
	(void)outrigger_watch(session, 0); /* from now on the session has a watcher */
	(void)outrigger_progress(session, NULL);
	sem_init(&ready, 0, 0);
	sem_init(&falls_asleep, 0, 0);
	sem_init(&go_on, 0, 0);
	sem_init(&awake, 0, 0);
	if (pthread_create(&watcher, NULL, watches, NULL) != 0)
		die("no thread");
	for (int round = 0; round < 2 * ROUNDS; round++) {
		sem_post(&ready);
		sem_wait(&falls_asleep);
		(void)outrigger_away(session, 1);
		if (round % 2 == 0) {
			outrigger_wake(session);
		} else {
			send_one(round);
			usleep(2000); /* time for the sidecar to deliver it */
		}
		sem_post(&go_on);
		sem_wait(&awake);
		is_back((round + 1) / 2);
	}
	pthread_join(watcher, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		program_sleeps(2 * ROUNDS + round);
		is_back(ROUNDS + round + 1);
	}
	if (outrigger_close(session) != OUTRIGGER_OK)
		die("goodbye");
	printf("nothing was missed in %d rounds\n", 3 * ROUNDS);
	return 0;
}
