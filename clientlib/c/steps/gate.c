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

/* How long a step waits for those inside. Who stays longer takes its steps itself. */
#define PATIENCE_NS 20000000

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* held while the gate is shut */
static _Atomic bool shut;
static _Atomic uint32_t inside; /* threads of the program, and those that wait for the gate */
static _Atomic bool awaited;    /* their last one */
static void (*_Atomic on_left)(void);

static _Thread_local unsigned depth __attribute__((tls_model("initial-exec")));

/* Both sides say what they want before they look at the other's word, so that one of them
 * sees the other. */
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
	void (*left)(void) = atomic_load(&on_left);
	if (left != NULL)
		left();
}

bool gate_within(void) { return depth > 0; }

void gate_left_by(void (*left)(void)) { atomic_store(&on_left, left); }

/* empty waits until nobody is inside; false: somebody stays. */
static bool empty(void)
{
	const struct timespec patience = {.tv_nsec = PATIENCE_NS};
	atomic_store(&awaited, true);
	uint32_t n = atomic_load(&inside);
	if (n > 0)
		(void)syscall(SYS_futex, &inside, FUTEX_WAIT_PRIVATE, n, &patience, NULL, 0);
	atomic_store(&awaited, false);
	return atomic_load(&inside) == 0;
}

bool gate_shut(void)
{
	for (bool again = true; again; again = empty()) {
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

/* The child of a fork has the thread that forked, and nobody else who could open the gate or
 * leave. */
static void in_child(void)
{
	pthread_mutex_init(&turn, NULL);
	atomic_store(&shut, false);
	atomic_store(&awaited, false);
	atomic_store(&inside, depth > 0);
	atomic_store(&on_left, NULL);
}

__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, in_child); }
