/* One heap, one lock; what fork does to both. */
#define _GNU_SOURCE
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heap.h"
#include "layout.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct heap heap; /* by the lock; memory and pages are set once */

/* Of the heap's memory the first bytes are allocated, and more by extend; by the lock. */
static size_t ready_bytes;
static place_extend extend; /* NULL: there is no more */
static void *extend_arg;

/* The range of addresses: start is set last, when the heap is there. */
static _Atomic uintptr_t start, end;
static atomic_size_t smallest = SIZE_MAX; /* allocation that is placed */

/* A thread that forks has the lock from before until after, while handlers of
 * others call malloc and free. */
static _Thread_local bool forking __attribute__((tls_model("initial-exec")));
static bool detached; /* the memory is private, in the child of a fork */

static void enter(void)
{
	if (!forking)
		pthread_mutex_lock(&lock);
}

static void leave(void)
{
	if (!forking)
		pthread_mutex_unlock(&lock);
}

/* stop ends a program whose heap is not to be trusted, as libc does. */
static _Noreturn void stop(const char *what)
{
	ssize_t n = write(STDERR_FILENO, what, strlen(what));
	(void)n; /* nobody can be told */
	abort();
}

static void report_no_copy(void)
{
	static const char text[] = "outrigger: no memory to copy the program's large allocations into the child of a fork, which will fail where it uses them; unset OUTRIGGER_MPI_ARENA\n";
	ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
	(void)n;
}

/*
 * Fork. The arena is shared memory: what a child wrote would be its parent's. So
 * the child gets a copy of all pieces at the same addresses, as the child of a
 * fork has of all other memory. The parent waits until it is made, on a pipe whose
 * other end only the child has: a child that dies before closes it too. Children
 * that come without handlers (vfork, posix_spawn, clone) have the parent's memory
 * as it is or, with an address space of their own, find none there (DONTFORK).
 */
static int ready[2] = {-1, -1};

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	forking = true;
	if (heap.pages == 0 || detached)
		return;
	if (pipe2(ready, O_CLOEXEC) != 0)
		ready[0] = ready[1] = -1;
	(void)madvise(heap.memory, (size_t)heap.pages * HEAP_PAGE, MADV_DOFORK);
}

static void in_parent(void)
{
	int saved = errno;
	if (heap.pages > 0 && !detached) {
		(void)madvise(heap.memory, (size_t)heap.pages * HEAP_PAGE, MADV_DONTFORK);
		if (ready[1] >= 0) {
			char byte;
			close(ready[1]);
			while (read(ready[0], &byte, 1) < 0 && errno == EINTR)
				;
			close(ready[0]);
		}
	}
	forking = false;
	pthread_mutex_unlock(&lock);
	errno = saved;
}

/* detach gives this process pieces of its own. */
static bool detach(void)
{
	size_t room = (size_t)heap.pages * HEAP_PAGE, bytes;
	unsigned char *copy = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (copy == MAP_FAILED)
		return false;
	for (unsigned char *p = heap_next(&heap, NULL, &bytes); p != NULL; p = heap_next(&heap, p + bytes, &bytes))
		memcpy(copy + (p - heap.memory), p, bytes);
	if (mremap(copy, room, room, MREMAP_MAYMOVE | MREMAP_FIXED, heap.memory) != MAP_FAILED) {
		ready_bytes = room; /* of this process's own account */
		return true;
	}
	munmap(copy, room);
	return false;
}

static void in_child(void)
{
	int saved = errno;
	if (heap.pages > 0 && !detached) {
		extend = NULL;
		atomic_store(&smallest, SIZE_MAX);
		if (ready[1] < 0 || !detach()) {
			report_no_copy();
			munmap(heap.memory, (size_t)heap.pages * HEAP_PAGE);
		}
		detached = true;
		if (ready[1] >= 0) {
			close(ready[0]);
			close(ready[1]);
		}
	}
	forking = false;
	pthread_mutex_init(&lock, NULL); /* its owner was a thread of the parent */
	errno = saved;
}

/* wanted is the smallest allocation that is to be placed, in bytes, as the launcher
 * says it; SIZE_MAX: none. */
static size_t wanted(void)
{
	const char *text = getenv(OR_NAME_ENV_MPI_ARENA);
	char *unit = NULL;
	unsigned long long n = text == NULL ? 0 : strtoull(text, &unit, 10);
	if (n == 0 || *unit != 0)
		return SIZE_MAX;
	return n < HEAP_PAGE ? HEAP_PAGE : (size_t)n;
}

__attribute__((visibility("default"))) bool outrigger_alloc_adopt_pieces(void *memory, size_t bytes, place_extend more, void *arg)
{
	if (memory == NULL) {
		atomic_store(&smallest, SIZE_MAX);
		pthread_mutex_lock(&lock); /* what it was called with may go */
		extend = NULL;
		pthread_mutex_unlock(&lock);
		return true;
	}
	size_t least = wanted();
	if (least == SIZE_MAX || heap.pages > 0 || bytes < HEAP_PAGE)
		return false;
	struct heap_page *list = mmap(NULL, heap_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (list == MAP_FAILED)
		return false;
	if (pthread_atfork(before_fork, in_parent, in_child) != 0 || madvise(memory, bytes, MADV_DONTFORK) != 0) {
		munmap(list, heap_bytes(bytes));
		return false;
	}
	pthread_mutex_lock(&lock);
	heap_init(&heap, memory, bytes, list);
	extend = more;
	extend_arg = arg;
	ready_bytes = more == NULL ? bytes : 0;
	pthread_mutex_unlock(&lock);
	atomic_store(&end, (uintptr_t)memory + bytes);
	atomic_store(&start, (uintptr_t)memory);
	atomic_store(&smallest, least); /* releases the heap to who places */
	return true;
}

bool places(size_t bytes) { return bytes >= atomic_load_explicit(&smallest, memory_order_acquire) && !forking; }

bool placed(const void *p)
{
	/* Who has a piece has it from a thread that saw both. */
	uintptr_t from = atomic_load_explicit(&start, memory_order_relaxed);
	return from != 0 && (uintptr_t)p >= from && (uintptr_t)p < atomic_load_explicit(&end, memory_order_relaxed);
}

/* usable reports whether a piece may be touched; more memory is asked for where it may not.
 * The lock is held. */
static bool usable(const void *p)
{
	size_t end = (size_t)((const unsigned char *)p - heap.memory) + heap_size(&heap, p);
	if (end > ready_bytes && extend != NULL) {
		size_t n = extend(extend_arg, end);
		if (n > ready_bytes)
			ready_bytes = n;
	}
	return end <= ready_bytes;
}

void *place(size_t bytes, size_t align, bool zeroed)
{
	size_t dirty = 0;
	enter();
	void *p = heap_take(&heap, bytes, align, &dirty);
	if (p != NULL && !usable(p)) {
		(void)heap_give(&heap, p); /* it came from there */
		p = NULL;
	}
	leave();
	if (p != NULL && zeroed)
		memset(p, 0, dirty < bytes ? dirty : bytes);
	return p;
}

size_t placed_size(const void *p)
{
	enter();
	size_t n = heap_size(&heap, p);
	leave();
	if (n == 0)
		stop("outrigger: malloc_usable_size or realloc of an address in the arena where no allocation starts\n");
	return n;
}

void displace(const void *p)
{
	enter();
	bool ok = heap_give(&heap, p);
	leave();
	if (!ok)
		stop("outrigger: free of an address in the arena where no allocation starts: a double free, or one of another address\n");
}

bool resize(const void *p, size_t bytes)
{
	enter();
	size_t had = heap_size(&heap, p);
	bool ok = heap_resize(&heap, p, bytes);
	if (ok && !usable(p)) {
		(void)heap_resize(&heap, p, had); /* it shrinks to what it was */
		ok = false;
	}
	leave();
	return ok;
}
