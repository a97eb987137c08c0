/* The heap of large allocations, its lock, and the handlers of fork for both. */
#define _GNU_SOURCE
#include "placement.h"

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
static struct heap heap; /* guarded by lock; memory and pages are set once */

/* The sidecar has allocated the first ready_bytes of the heap's memory; extend allocates more.
 * Guarded by lock. */
static size_t ready_bytes;
static arena_extend extend; /* NULL: ready_bytes does not grow */
static void *extend_arg;

/* The heap's range of addresses: start is set last, after the heap was initialized. */
static _Atomic uintptr_t start, end;
static atomic_size_t smallest = SIZE_MAX; /* the smallest allocation from the arena, in bytes */

/* A thread that forks has the lock from before_fork until in_parent or in_child, while
 * other libraries' handlers call malloc and free in it. */
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

/* stop aborts a program whose heap may be corrupt, as libc does. */
static _Noreturn void stop(const char *what)
{
	ssize_t n = write(STDERR_FILENO, what, strlen(what));
	(void)n; /* an error cannot be reported either */
	abort();
}

static void report_no_copy(void)
{
	static const char text[] = "outrigger: no memory to copy the program's large allocations into the child of a fork, which will fail where it uses them; unset OUTRIGGER_MPI_ARENA\n";
	ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
	(void)n;
}

/*
 * Fork. The arena is shared memory, so that writes of a child would change its
 * parent's memory. The child therefore gets a copy of all pieces at the same
 * addresses, as it has of all other memory. The parent waits until the copy is
 * made, on a pipe whose write end only the child has: if the child dies before,
 * that end closes as well. Children created without handlers (vfork, posix_spawn,
 * clone) share the parent's memory or, if they have an address space of their own,
 * have none at these addresses (MADV_DONTFORK).
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

/* detach replaces the shared memory of the heap by a private copy. */
static bool detach(void)
{
	size_t room = (size_t)heap.pages * HEAP_PAGE, bytes;
	unsigned char *copy = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (copy == MAP_FAILED)
		return false;
	for (unsigned char *p = heap_next(&heap, NULL, &bytes); p != NULL; p = heap_next(&heap, p + bytes, &bytes))
		memcpy(copy + (p - heap.memory), p, bytes);
	if (mremap(copy, room, room, MREMAP_MAYMOVE | MREMAP_FIXED, heap.memory) != MAP_FAILED) {
		ready_bytes = room; /* private memory is allocated by the kernel on access */
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

/* wanted returns the smallest allocation from the arena in bytes, which the launcher
 * sets in the environment; SIZE_MAX: none. */
static size_t wanted(void)
{
	const char *text = getenv(OR_NAME_ENV_MPI_ARENA);
	char *unit = NULL;
	unsigned long long n = text == NULL ? 0 : strtoull(text, &unit, 10);
	if (n == 0 || *unit != 0)
		return SIZE_MAX;
	return n < HEAP_PAGE ? HEAP_PAGE : (size_t)n;
}

__attribute__((visibility("default"))) bool outrigger_alloc_adopt_pieces(void *memory, size_t bytes, arena_extend more, void *arg)
{
	if (memory == NULL) {
		atomic_store(&smallest, SIZE_MAX);
		pthread_mutex_lock(&lock); /* the caller may free extend_arg afterwards */
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
	atomic_store(&smallest, least); /* publishes the heap to other threads */
	return true;
}

bool wants_arena(size_t bytes) { return bytes >= atomic_load_explicit(&smallest, memory_order_acquire) && !forking; }

bool in_arena(const void *p)
{
	/* Relaxed loads suffice: a piece comes from a thread that saw start and end. */
	uintptr_t from = atomic_load_explicit(&start, memory_order_relaxed);
	return from != 0 && (uintptr_t)p >= from && (uintptr_t)p < atomic_load_explicit(&end, memory_order_relaxed);
}

/* usable reports whether the sidecar has allocated the memory of a piece, and extends the
 * allocated memory if not. The caller holds the lock. */
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

void *arena_alloc(size_t bytes, size_t align, bool zeroed)
{
	size_t dirty = 0;
	enter();
	void *p = heap_take(&heap, bytes, align, &dirty);
	if (p != NULL && !usable(p)) {
		(void)heap_give(&heap, p); /* cannot fail */
		p = NULL;
	}
	leave();
	if (p != NULL && zeroed)
		memset(p, 0, dirty < bytes ? dirty : bytes);
	return p;
}

size_t arena_size(const void *p)
{
	enter();
	size_t n = heap_size(&heap, p);
	leave();
	if (n == 0)
		stop("outrigger: malloc_usable_size or realloc of an address in the arena where no allocation starts\n");
	return n;
}

void arena_free(const void *p)
{
	enter();
	bool ok = heap_give(&heap, p);
	leave();
	if (!ok)
		stop("outrigger: free of an address in the arena where no allocation starts: a double free, or not an address that malloc returned\n");
}

bool arena_resize(const void *p, size_t bytes)
{
	enter();
	size_t had = heap_size(&heap, p);
	bool ok = heap_resize(&heap, p, bytes);
	if (ok && !usable(p)) {
		(void)heap_resize(&heap, p, had); /* shrinking cannot fail */
		ok = false;
	}
	leave();
	return ok;
}
