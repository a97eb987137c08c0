/*
 * What goes on while the program computes (OUTRIGGER_MPI_PROGRESS): a thread, the
 * attendant, that takes what has come for a program which is not inside of libfabric. It
 * moves messages of private memory on, carries out the accesses of others, and, where all
 * is wanted, has the MPI take its own steps (clientlib/c/steps).
 *
 * The program hands over to it by depart(), where it is likely to go and compute: when it
 * has started something or found something, and when it looks now and then. One that looks
 * again and again takes everything itself, and the attendant sleeps; it looks now and then
 * whether such a program still does, since of many looks none shows that it is the last one.
 * Where all is wanted, the library that is before every call of the MPI knows when the program
 * returns from one: then that hands over, and no look in vain does.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"
#include "provider.h"

#define STACK_BYTES (1u << 20)      /* for messages */
#define STACK_MOST (UINT64_C(1) << 26) /* for a program that wants no limit */
#define WATCH_US 20000u  /* at most: the end of the session, or a program that is gone, is seen by then */
#define GONE_NS 10000000u /* a program that has not looked for so long is not one that waits */
#define HANDOVERS 3      /* tries of the program to take what comes while it goes */
#define PATIENCE_NS 1000000000u
#define SLICE_NS 100000u

static _Atomic bool dismissed; /* it is to end */
static _Atomic bool begun, ended;

/* The library that makes calls of the MPI, if the program has it. */
__attribute__((weak)) void outrigger_mpi_steps(void);
__attribute__((weak)) bool outrigger_mpi_within(void);
__attribute__((weak)) void outrigger_mpi_left_by(void (*left)(void));

static void rouse(void)
{
	if (!program.roused)
		outrigger_wake(client());
	program.roused = true;
}

/* hand_over leaves what comes from now on to the attendant. What is there already the
 * program takes itself, a few times; but not where the MPI would have to be asked. */
static void hand_over(void)
{
	int tries = program.all ? 0 : HANDOVERS;
	bool come;
	while ((come = outrigger_away(client(), program.all || served())) && tries-- > 0)
		progress();
	program.away = true;
	if (come || (program.all && unread > 0))
		rouse();
}

void depart(void)
{
	if (program.attended && client() != NULL && !behind())
		hand_over();
	unlock();
}

/* left is called by the program when it has returned from a call of its MPI. */
static void left(void)
{
	if (program.away && unread == 0)
		return; /* it has neither looked nor started anything */
	lock();
	if (program.attended && client() != NULL)
		hand_over();
	unlock();
}

/* enter takes the lock, unless the attendant is to end: who ends it has the lock. */
static bool enter(void)
{
	while (pthread_mutex_trylock(&provider_lock) != 0) {
		if (atomic_load(&dismissed))
			return false;
		nap();
	}
	return true;
}

/* take_over is hand_over for a program that has gone without a word. If it is in a call
 * that waits, its next look takes all back. */
static void take_over(void)
{
	if (program.away || nanoseconds() - program.looked < GONE_NS)
		return;
	(void)outrigger_away(client(), program.all || served());
	program.away = true;
}

/* serve does what there is to do. A step that the MPI has taken may make another one
 * possible, of which nothing tells: it is asked until it has neither read nor started
 * anything, and at every wake-up, also where nothing has come. */
static void serve(void)
{
	bool again = true;
	while (again && enter()) {
		program.roused = false;
		take_over();
		progress();
		uint64_t before = doings;
		again = program.all && program.away;
		unlock();
		if (!again)
			return;
		outrigger_mpi_steps();
		if (!enter())
			return;
		again = doings != before || program.roused;
		unlock();
	}
}

/* be_prompt asks for the shortest time slice, by which who wakes up runs at once instead of
 * after the slice of who waits there. (sched_setattr(2) of Linux 6.12; older ones change
 * nothing.) */
static void be_prompt(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr;
	if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != SCHED_OTHER)
		return; /* as it was told */
	attr.runtime = SLICE_NS;
	(void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *attends(void *session)
{
	be_prompt();
	(void)outrigger_watch(session, 0); /* from now on it is known */
	atomic_store(&begun, true);
	while (!atomic_load(&dismissed) && outrigger_watch(session, WATCH_US) == OUTRIGGER_OK)
		serve();
	atomic_store(&ended, true);
	return NULL;
}

/* wanted reads the environment. */
static bool wanted(void)
{
	const char *text = getenv(OR_NAME_ENV_MPI_PROGRESS);
	bool steps = text != NULL && strcmp(text, "all") == 0;
	program.all = steps && outrigger_mpi_steps != NULL && outrigger_mpi_within != NULL && outrigger_mpi_left_by != NULL;
	return steps || (text != NULL && strcmp(text, "messages") == 0);
}

/* stack_bytes is for whoever carries out the MPI's own steps what the program's first thread
 * has: the operators and callbacks that the program gave to its MPI are called there. */
static size_t stack_bytes(void)
{
	struct rlimit limit;
	if (!program.all || getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < STACK_BYTES)
		return STACK_BYTES;
	uint64_t bytes = limit.rlim_cur < STACK_MOST ? limit.rlim_cur : STACK_MOST;
	return (size_t)(bytes & ~(uint64_t)(STACK_BYTES - 1));
}

void attend(void)
{
	pthread_attr_t attr;
	sigset_t signals, before;
	if (!wanted() || pthread_attr_init(&attr) != 0)
		return;
	(void)pthread_attr_setstacksize(&attr, stack_bytes());
	/* Signals are the program's. */
	sigfillset(&signals);
	(void)pthread_sigmask(SIG_SETMASK, &signals, &before);
	atomic_store(&dismissed, false);
	atomic_store(&begun, false);
	atomic_store(&ended, false);
	program.attended = pthread_create(&program.attendant, &attr, attends, client()) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	while (program.attended && !atomic_load(&begun))
		nap(); /* what the program leaves before would be nobody's */
	if (program.attended && program.all)
		outrigger_mpi_left_by(left);
	if (!program.attended)
		fprintf(stderr, "outrigger: rank %u: %s is set, and no thread can be started: messages wait while the program computes\n",
			outrigger_world(client()).rank, OR_NAME_ENV_MPI_PROGRESS);
}

/* A program that ends inside of its MPI may have a lock of the MPI's, for which the
 * attendant waits: then it stays. */
bool dismiss(void)
{
	if (!program.attended)
		return true;
	if (program.all)
		outrigger_mpi_left_by(NULL);
	atomic_store(&dismissed, true);
	outrigger_wake(client());
	uint64_t since = nanoseconds();
	while (!atomic_load(&ended)) {
		if (nanoseconds() - since > PATIENCE_NS)
			return false;
		nap();
	}
	(void)pthread_join(program.attendant, NULL);
	program.attended = false;
	return true;
}
