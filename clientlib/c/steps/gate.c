#define _GNU_SOURCE
#include "gate.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long a step waits for threads of the program to leave the MPI, 20 ms. A thread that stays
 * longer is in a blocking call, which makes progress itself. */
#define LEAVE_TIMEOUT_NS 20000000

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* held while the gate is shut */
static _Atomic bool shut;
static _Atomic uint32_t inside; /* threads of the program in the MPI or waiting for the gate */
static _Atomic bool awaited;    /* the stepping thread waits until inside is 0 */
static void (*_Atomic on_leave)(void);

static _Thread_local unsigned depth __attribute__((tls_model("initial-exec")));

/* Each side sets its word (inside or shut) before it reads the other's, so that at least one of
 * them sees the other. */
void gate_enter(void)
{
	if (depth++ > 0)
		return;
	atomic_fetch_add(&inside, 1);
	while (atomic_load(&shut)) {
		pthread_mutex_lock(&turn);
		pthread_mutex_unlock(&turn);
	}
}

void gate_leave(void)
{
	if (--depth > 0)
		return;
	if (atomic_fetch_sub(&inside, 1) == 1 && atomic_load(&awaited))
		(void)syscall(SYS_futex, &inside, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	void (*call)(void) = atomic_load(&on_leave);
	if (call != NULL)
		call();
}

bool gate_within(void) { return depth > 0; }

void gate_on_leave(void (*call)(void)) { atomic_store(&on_leave, call); }

/* wait_empty waits until no thread of the program is inside, and returns whether that is so. */
static bool wait_empty(void)
{
	const struct timespec timeout = {.tv_nsec = LEAVE_TIMEOUT_NS};
	atomic_store(&awaited, true);
	uint32_t n = atomic_load(&inside);
	if (n > 0)
		(void)syscall(SYS_futex, &inside, FUTEX_WAIT_PRIVATE, n, &timeout, NULL, 0);
	atomic_store(&awaited, false);
	return atomic_load(&inside) == 0;
}

bool gate_shut(void)
{
	for (bool again = true; again; again = wait_empty()) {
		pthread_mutex_lock(&turn);
		atomic_store(&shut, true);
		if (atomic_load(&inside) == 0) {
			depth++;
			return true;
		}
		atomic_store(&shut, false);
		pthread_mutex_unlock(&turn);
	}
	return false;
}

bool gate_asked(void) { return atomic_load(&inside) > 0; }

void gate_open(void)
{
	depth--;
	atomic_store(&shut, false);
	pthread_mutex_unlock(&turn);
}

/* in_child resets the gate: the child of a fork has only the thread that forked, so that no
 * other thread can open the gate or leave. */
static void in_child(void)
{
	pthread_mutex_init(&turn, NULL);
	atomic_store(&shut, false);
	atomic_store(&awaited, false);
	atomic_store(&inside, depth > 0);
	atomic_store(&on_leave, NULL);
}

__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, in_child); }
