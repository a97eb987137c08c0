/*
 * liboutrigger-alloc.so: malloc and its relatives for a program whose large
 * allocations shall lie in the arena of its rank (place.h). It is loaded before
 * the program's libraries (LD_PRELOAD), and hands all else on to the allocator
 * that the program would have without it.
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
#include "place.h"

/* A test calls these functions by other names, so that a sanitizer's own are the
 * program's. */
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

/* While the next allocator is being found, the loader may allocate. What it gets
 * is never given back. */
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

/* set makes a pointer to a function of dlsym's: the two kinds have one size where
 * there is dlsym (POSIX). */
static void set(void *function, const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	memcpy(function, &symbol, sizeof symbol);
}

/* find is first called while a process has one thread: the loader allocates. */
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

/* ready reports whether the next allocator is there; false: within find. */
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
	if (places(bytes)) {
		void *p = place(bytes, HEAP_PAGE, false);
		if (p != NULL)
			return p;
	}
	return ready() ? next.malloc(bytes) : from_pool(bytes);
}

EXPORT void *NAME(calloc)(size_t count, size_t each)
{
	size_t bytes;
	if (!__builtin_mul_overflow(count, each, &bytes) && places(bytes)) {
		void *p = place(bytes, HEAP_PAGE, true);
		if (p != NULL)
			return p;
	}
	return ready() ? next.calloc(count, each) : from_pool(count * each); /* which is zero */
}

EXPORT void NAME(free)(void *p)
{
	if (placed(p))
		displace(p);
	else if (!pooled(p) && ready())
		next.free(p);
}

/* move brings a piece of so many bytes to a new place. */
static void *move(void *to, void *p, size_t had, size_t bytes)
{
	if (to == NULL)
		return NULL;
	memcpy(to, p, had < bytes ? had : bytes);
	NAME(free)(p);
	return to;
}

static void *realloc_placed(void *p, size_t bytes)
{
	if (bytes == 0) {
		displace(p);
		return NULL;
	}
	size_t had = placed_size(p);
	/* What has become small goes back to libc, or it would keep a page of the arena. */
	bool stays = places(bytes) || bytes >= PLACE_LARGE;
	if (stays && resize(p, bytes))
		return p;
	void *to = move(stays ? NAME(malloc)(bytes) : next.malloc(bytes), p, had, bytes);
	return to == NULL && bytes <= had ? p : to;
}

EXPORT void *NAME(realloc)(void *p, size_t bytes)
{
	if (p == NULL)
		return NAME(malloc)(bytes);
	if (placed(p))
		return realloc_placed(p, bytes);
	if (pooled(p)) {
		size_t had = sizeof pool.bytes - (size_t)((unsigned char *)p - pool.bytes);
		return move(NAME(malloc)(bytes), p, had, bytes);
	}
	if (places(bytes)) {
		void *to = move(place(bytes, HEAP_PAGE, false), p, next.malloc_usable_size(p), bytes);
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

/* aligned places an allocation with an alignment that is one; NULL: libc is asked,
 * which judges the others. */
static void *aligned(size_t align, size_t bytes)
{
	bool power = align != 0 && (align & (align - 1)) == 0;
	return power && places(bytes) ? place(bytes, align < HEAP_PAGE ? HEAP_PAGE : align, false) : NULL;
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
	if (placed(p))
		return placed_size(p);
	if (pooled(p))
		return sizeof pool.bytes - (size_t)((unsigned char *)p - pool.bytes);
	return p != NULL && ready() ? next.malloc_usable_size(p) : 0;
}
