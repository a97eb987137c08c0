/*
 * Progress while the program computes: a thread, the attendant, makes progress for a program that
 * is not inside of libfabric. It moves messages of private memory, executes accesses of other
 * ranks, and, with the value "all" of OUTRIGGER_MPI_PROGRESS, calls the MPI's own progress
 * (clientlib/c/steps). Without a value it starts when memory is registered for accesses: otherwise
 * a rank that accesses it would wait for the end of the target's computation. The program then does
 * not hand over in its calls: the attendant takes over after about 30 ms, or 2 ms if it has executed an
 * access within the last second.
 *
 * The program hands over to the attendant by unlock_and_hand_over() when it is likely to compute next: after it
 * has started an operation or read a completion, and after an occasional poll. While the program
 * polls in a loop, it handles all completions itself and the attendant sleeps. The last poll of
 * such a loop cannot be recognized; therefore the attendant checks every WATCH_US whether the
 * program still polls. With the value "all", the library that wraps every call of the MPI knows
 * when the program returns from a call, and hands over then; an empty poll does not.
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

#define STACK_BYTES (1u << 20)      /* the attendant's stack if it only moves messages */
#define STACK_MOST (UINT64_C(1) << 26) /* its largest stack, for a program whose stack has no limit */
#define WATCH_US 20000u  /* its longest sleep: after that it checks for the end of the session and whether the program still polls */
#define GONE_NS 10000000u /* a program that has not polled for so long does not wait in a loop */
/* The same two for a program whose memory is accessed while it computes: for so long after each such
 * access. A wait sleeps for 0.5 ms at a time (progress.c). */
#define ACCESSED_WATCH_US 1000u
#define ACCESSED_GONE_NS 1000000u
#define ACCESSED_NS 1000000000u
#define HANDOVERS 3      /* tries of the program to handle completions that arrive during a hand-over */
#define EXIT_WAIT_NS 1000000000u /* how long stop_attendant waits for the attendant's end */
#define SLICE_NS 100000u /* 0.1 ms: the shortest time slice of Linux */

static _Atomic bool stopping; /* the attendant must end */
static _Atomic bool begun, ended;

/* clientlib/c/steps, if the program has it: calls the MPI's progress, reports whether the program
 * is in a call of the MPI, and calls back when it returns from one. */
__attribute__((weak)) void outrigger_mpi_steps(void);
__attribute__((weak)) bool outrigger_mpi_within(void);
__attribute__((weak)) void outrigger_mpi_left_by(void (*left)(void));

/* wake_attendant wakes the attendant. */
static void wake_attendant(void)
{
	if (!program.woken)
		outrigger_wake(client());
	program.woken = true;
}

/* hand_over leaves completions from now on to the attendant. Completions that are there already
 * the program handles itself, up to HANDOVERS times, unless the MPI's progress is needed, too. */
static void hand_over(void)
{
	int tries = program.all ? 0 : HANDOVERS;
	bool pending;
	while ((pending = outrigger_away(client(), program.all || served())) && tries-- > 0)
		progress();
	program.away = true;
	if (pending || (program.all && unread > 0))
		wake_attendant();
}

/* unlock_and_hand_over hands over to the attendant, if there is one, and releases the lock. */
void unlock_and_hand_over(void)
{
	if (program.requested && client() != NULL && !is_attendant())
		hand_over();
	unlock();
}

/* program_left_mpi is called in the program's thread when it returns from a call of its MPI. */
static void program_left_mpi(void)
{
	if (program.away && unread == 0)
		return; /* the program has neither polled nor started an operation */
	lock();
	if (program.attended && client() != NULL)
		hand_over();
	unlock();
}

/* lock_unless_stopping acquires the lock for the attendant, unless the attendant must end: the thread that ends
 * it holds the lock and waits. */
static bool lock_unless_stopping(void)
{
	while (pthread_mutex_trylock(&provider_lock) != 0) {
		if (atomic_load(&stopping))
			return false;
		nap();
	}
	return true;
}

static uint64_t accessed; /* when the attendant last executed an access */

void note_attended_access(void) { accessed = nanoseconds(); }

static bool accessed_lately(void) { return accessed != 0 && nanoseconds() - accessed < ACCESSED_NS; }

/* take_over does a hand-over that the program has not made: it has not polled for GONE_NS, or
 * ACCESSED_GONE_NS. If the program is in a call that waits after all, its next poll revokes it. */
static void take_over(void)
{
	uint64_t gone = accessed_lately() ? ACCESSED_GONE_NS : GONE_NS;
	if (!(program.requested || served()) || program.away || nanoseconds() - program.polled < gone)
		return;
	(void)outrigger_away(client(), program.all || served());
	program.away = true;
}

/* serve makes progress until there is nothing left to do. A step of the MPI may make another step
 * possible without any notification. Therefore the MPI's progress is called until it has neither
 * read a completion nor started an operation, and at each wake-up, even if nothing has arrived. */
static void serve(void)
{
	bool again = true;
	while (again && lock_unless_stopping()) {
		program.woken = false;
		take_over();
		progress();
		uint64_t before = activity;
		again = program.all && program.away;
		unlock();
		if (!again)
			return;
		outrigger_mpi_steps();
		if (!lock_unless_stopping())
			return;
		again = activity != before || program.woken;
		unlock();
	}
}

/* shorten_time_slice requests the shortest time slice: a thread with a shorter slice preempts the running
 * thread when it wakes up. Linux has this in sched_setattr(2) since 6.12; older versions ignore
 * it. */
static void shorten_time_slice(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr;
	if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != SCHED_OTHER)
		return; /* the program or its user has chosen another policy */
	attr.runtime = SLICE_NS;
	(void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static bool polls_now(void) { return !program.away && nanoseconds() - program.polled < ACCESSED_GONE_NS; }

/* rest sleeps until the attendant has something to do, or has to look for it. A look for the end of the
 * program's polls neither watches nor takes a lock: after a watch the program's next poll would take
 * the lock, and the sidecar wake the attendant for what the program finds itself. */
static int rest(outrigger *session)
{
	if (!accessed_lately())
		return outrigger_watch(session, WATCH_US);
	if (program.away)
		return outrigger_watch(session, ACCESSED_WATCH_US);
	do
		nanosleep(&(struct timespec){.tv_nsec = ACCESSED_WATCH_US * 1000}, NULL);
	while (polls_now() && accessed_lately() && !atomic_load(&stopping));
	return OUTRIGGER_OK;
}

static void *attendant_main(void *session)
{
	shorten_time_slice();
	(void)outrigger_watch(session, 0); /* makes this thread the watcher */
	atomic_store(&begun, true);
	while (!atomic_load(&stopping) && rest(session) == OUTRIGGER_OK)
		serve();
	atomic_store(&ended, true);
	return NULL;
}

/* read_request sets program.requested and program.all as the environment requests. */
static void read_request(void)
{
	const char *text = getenv(OR_NAME_ENV_MPI_PROGRESS);
	bool steps = text != NULL && strcmp(text, "all") == 0;
	program.all = steps && outrigger_mpi_steps != NULL && outrigger_mpi_within != NULL && outrigger_mpi_left_by != NULL;
	program.requested = steps || (text != NULL && strcmp(text, "messages") == 0);
}

/* stack_bytes returns the size of the attendant's stack. If it calls the MPI's progress, its stack
 * is as large as that of the program's main thread, because operators and callbacks of the
 * program run on it. */
static size_t stack_bytes(void)
{
	struct rlimit limit;
	if (!program.all || getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < STACK_BYTES)
		return STACK_BYTES;
	uint64_t bytes = limit.rlim_cur < STACK_MOST ? limit.rlim_cur : STACK_MOST;
	return (size_t)(bytes & ~(uint64_t)(STACK_BYTES - 1));
}

/* start_attendant starts the attendant. Without one, the attendant's work waits for the program. */
static void start_attendant(void)
{
	pthread_attr_t attr;
	sigset_t signals, before;
	if (pthread_attr_init(&attr) != 0)
		return;
	(void)pthread_attr_setstacksize(&attr, stack_bytes());
	/* The program's threads handle all signals. */
	sigfillset(&signals);
	(void)pthread_sigmask(SIG_SETMASK, &signals, &before);
	atomic_store(&stopping, false);
	atomic_store(&begun, false);
	atomic_store(&ended, false);
	program.attended = pthread_create(&program.attendant, &attr, attendant_main, client()) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	while (program.attended && !atomic_load(&begun))
		nap(); /* no hand-over before the attendant watches: nothing would handle the completions */
	if (program.attended && program.all)
		outrigger_mpi_left_by(program_left_mpi);
}

/* start_requested_attendant starts the attendant if the environment requests it. */
void start_requested_attendant(void)
{
	read_request();
	if (!program.requested)
		return;
	start_attendant();
	program.requested = program.attended;
	if (!program.attended)
		fprintf(stderr, "outrigger: rank %u: %s is set, and no thread can be started: messages wait while the program computes\n",
			outrigger_world(client()).rank, OR_NAME_ENV_MPI_PROGRESS);
}

/* start_attendant_for_accesses starts the attendant unless the environment has a value. */
void start_attendant_for_accesses(void)
{
	const char *text = getenv(OR_NAME_ENV_MPI_PROGRESS);
	if (!program.attended && client() != NULL && (text == NULL || *text == 0))
		start_attendant();
}

/* stop_attendant ends the attendant. false: it has not ended within a second. A program that ends inside
 * of its MPI may hold a lock of the MPI for which the attendant waits. */
bool stop_attendant(void)
{
	if (!program.attended)
		return true;
	if (program.all)
		outrigger_mpi_left_by(NULL);
	atomic_store(&stopping, true);
	outrigger_wake(client());
	uint64_t since = nanoseconds();
	while (!atomic_load(&ended)) {
		if (nanoseconds() - since > EXIT_WAIT_NS)
			return false;
		nap();
	}
	(void)pthread_join(program.attendant, NULL);
	program.attended = program.requested = false;
	return true;
}
