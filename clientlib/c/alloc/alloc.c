/*
 * liboutrigger-alloc.so: malloc and its relatives for a program whose large
 * allocations come from the arena of its rank (placement.h). It is loaded before
 * the program's libraries (LD_PRELOAD), and passes all other calls on to the
 * allocator that the program would use without it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "placement.h"

/* A test gives these functions other names, so that the test program itself uses
 * the sanitizer's. */
#ifndef NAME
#define NAME(function) function
#endif
#define EXPORT __attribute__((visibility("default")))

static struct {
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void (*free)(void *);
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	void *(*memalign)(size_t, size_t);
	void *(*valloc)(size_t);
	void *(*pvalloc)(size_t);
	size_t (*malloc_usable_size)(void *);
} next;

static atomic_bool found; /* next is set */

/* Memory for the loader, which may allocate while the next allocator is being
 * found. It is never freed. */
static struct {
	_Alignas(16) unsigned char bytes[8192];
	size_t used;
} pool;

static _Thread_local bool finding __attribute__((tls_model("initial-exec")));

static bool pooled(const void *p) { return (uintptr_t)p - (uintptr_t)pool.bytes < sizeof pool.bytes; }

static void *from_pool(size_t bytes)
{
	if (bytes > sizeof pool.bytes - pool.used)
		return NULL;
	void *p = pool.bytes + pool.used;
	pool.used += (bytes + 15) & ~(size_t)15;
	if (pool.used > sizeof pool.bytes)
		pool.used = sizeof pool.bytes;
	return p;
}

/* set stores the address of the next function of a name in *function. POSIX
 * guarantees that data and function pointers have the same size where dlsym exists. */
static void set(void *function, const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	memcpy(function, &symbol, sizeof symbol);
}

/* find looks up the functions of the next allocator. The first call happens while
 * the process has one thread, because the loader allocates. */
static void find(void)
{
	finding = true;
	set(&next.malloc, "malloc");
	set(&next.calloc, "calloc");
	set(&next.realloc, "realloc");
	set(&next.free, "free");
	set(&next.posix_memalign, "posix_memalign");
	set(&next.aligned_alloc, "aligned_alloc");
	set(&next.memalign, "memalign");
	set(&next.valloc, "valloc");
	set(&next.pvalloc, "pvalloc");
	set(&next.malloc_usable_size, "malloc_usable_size");
	finding = false;
	atomic_store_explicit(&found, true, memory_order_release);
}

/* ready reports whether the next allocator can be called: false only within find. */
static inline bool ready(void)
{
	if (atomic_load_explicit(&found, memory_order_acquire))
		return true;
	if (finding)
		return false;
	find();
	return true;
}

__attribute__((constructor)) static void begin(void) { (void)ready(); }

EXPORT void *NAME(malloc)(size_t bytes)
{
	if (wants_arena(bytes)) {
		void *p = arena_alloc(bytes, HEAP_PAGE, false);
		if (p != NULL)
			return p;
	}
	return ready() ? next.malloc(bytes) : from_pool(bytes);
}

EXPORT void *NAME(calloc)(size_t count, size_t each)
{
	size_t bytes;
	if (!__builtin_mul_overflow(count, each, &bytes) && wants_arena(bytes)) {
		void *p = arena_alloc(bytes, HEAP_PAGE, true);
		if (p != NULL)
			return p;
	}
	return ready() ? next.calloc(count, each) : from_pool(count * each); /* the pool is zero and never reused */
}

EXPORT void NAME(free)(void *p)
{
	if (in_arena(p))
		arena_free(p);
	else if (!pooled(p) && ready())
		next.free(p);
}

/* move copies an allocation of had bytes to a new one and frees it. It returns to,
 * and does nothing if to is NULL. */
static void *move(void *to, void *p, size_t had, size_t bytes)
{
	if (to == NULL)
		return NULL;
	memcpy(to, p, had < bytes ? had : bytes);
	NAME(free)(p);
	return to;
}

static void *realloc_in_arena(void *p, size_t bytes)
{
	if (bytes == 0) {
		arena_free(p);
		return NULL;
	}
	size_t had = arena_size(p);
	/* An allocation that has become small moves to libc, because a page is the least that it
	 * uses in the arena. */
	bool stays = wants_arena(bytes) || bytes >= ARENA_LARGE;
	if (stays && arena_resize(p, bytes))
		return p;
	void *to = move(stays ? NAME(malloc)(bytes) : next.malloc(bytes), p, had, bytes);
	return to == NULL && bytes <= had ? p : to;
}

EXPORT void *NAME(realloc)(void *p, size_t bytes)
{
	if (p == NULL)
		return NAME(malloc)(bytes);
	if (in_arena(p))
		return realloc_in_arena(p, bytes);
	if (pooled(p)) {
		size_t had = sizeof pool.bytes - (size_t)((unsigned char *)p - pool.bytes);
		return move(NAME(malloc)(bytes), p, had, bytes);
	}
	if (wants_arena(bytes)) {
		void *to = move(arena_alloc(bytes, HEAP_PAGE, false), p, next.malloc_usable_size(p), bytes);
		if (to != NULL)
			return to;
	}
	return ready() ? next.realloc(p, bytes) : NULL;
}

EXPORT void *NAME(reallocarray)(void *p, size_t count, size_t each)
{
	size_t bytes;
	if (__builtin_mul_overflow(count, each, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return NAME(realloc)(p, bytes);
}

/* aligned allocates from the arena if align is a power of two. If it returns NULL,
 * the caller asks libc, which also reports invalid alignments. */
static void *aligned(size_t align, size_t bytes)
{
	bool power = align != 0 && (align & (align - 1)) == 0;
	return power && wants_arena(bytes) ? arena_alloc(bytes, align < HEAP_PAGE ? HEAP_PAGE : align, false) : NULL;
}

EXPORT int NAME(posix_memalign)(void **out, size_t align, size_t bytes)
{
	void *p = align % sizeof(void *) == 0 ? aligned(align, bytes) : NULL;
	if (p == NULL)
		return ready() ? next.posix_memalign(out, align, bytes) : ENOMEM;
	*out = p;
	return 0;
}

EXPORT void *NAME(aligned_alloc)(size_t align, size_t bytes)
{
	void *p = aligned(align, bytes);
	return p != NULL || !ready() ? p : next.aligned_alloc(align, bytes);
}

EXPORT void *NAME(memalign)(size_t align, size_t bytes)
{
	void *p = aligned(align, bytes);
	return p != NULL || !ready() ? p : next.memalign(align, bytes);
}

EXPORT void *NAME(valloc)(size_t bytes)
{
	void *p = aligned(HEAP_PAGE, bytes);
	return p != NULL || !ready() ? p : next.valloc(bytes);
}

EXPORT void *NAME(pvalloc)(size_t bytes)
{
	void *p = aligned(HEAP_PAGE, bytes);
	return p != NULL || !ready() ? p : next.pvalloc(bytes);
}

EXPORT size_t NAME(malloc_usable_size)(void *p)
{
	if (in_arena(p))
		return arena_size(p);
	if (pooled(p))
		return sizeof pool.bytes - (size_t)((unsigned char *)p - pool.bytes);
	return p != NULL && ready() ? next.malloc_usable_size(p) : 0;
}
