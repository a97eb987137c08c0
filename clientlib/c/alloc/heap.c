#include "heap.h"

#define NONE 0u

/* class_of returns the class of runs of n pages: n itself for one to three, then
 * four classes for each power of two. */
static uint32_t class_of(uint32_t n)
{
	uint32_t bits = 31u - (uint32_t)__builtin_clz(n);
	return bits < 2 ? n : bits * 4u + (n >> (bits - 2u) & 3u);
}

/* class_above returns the first class in which every run has at least n pages. */
static uint32_t class_above(uint32_t n)
{
	uint32_t bits = 31u - (uint32_t)__builtin_clz(n);
	if (bits < 2)
		return n;
	uint32_t below = (1u << (bits - 2u)) - 1u;
	return class_of(n) + ((n & below) != 0);
}

static uint32_t pages_for(size_t bytes) { return (uint32_t)((bytes + HEAP_PAGE - 1) / HEAP_PAGE); }

size_t heap_bytes(size_t bytes) { return (bytes / HEAP_PAGE + 1) * sizeof(struct heap_page); }

/* add_free records a free run. */
static void add_free(struct heap *h, uint32_t at, uint32_t n)
{
	uint32_t c = class_of(n);
	struct heap_page *p = &h->page[at];
	p->pages = n;
	p->used = 0;
	h->page[at + n - 1].ended = n;
	p->prev = NONE;
	p->next = h->first[c];
	if (p->next != NONE)
		h->page[p->next - 1].prev = at + 1;
	h->first[c] = at + 1;
	h->some[c / 64] |= UINT64_C(1) << c % 64;
}

/* remove_free removes a free run from its list, and returns its number of pages. */
static uint32_t remove_free(struct heap *h, uint32_t at)
{
	struct heap_page *p = &h->page[at];
	uint32_t n = p->pages, c = class_of(n);
	if (p->next != NONE)
		h->page[p->next - 1].prev = p->prev;
	if (p->prev != NONE)
		h->page[p->prev - 1].next = p->next;
	else
		h->first[c] = p->next;
	if (h->first[c] == NONE)
		h->some[c / 64] &= ~(UINT64_C(1) << c % 64);
	p->pages = 0;
	h->page[at + n - 1].ended = 0;
	return n;
}

/* mark_used records a run that is in use. */
static void mark_used(struct heap *h, uint32_t at, uint32_t n)
{
	h->page[at].pages = n;
	h->page[at].used = 1;
	h->taken += n;
	if (at + n > h->fresh)
		h->fresh = at + n;
}

/* release frees a run, and joins it with free neighbours. */
static void release(struct heap *h, uint32_t at, uint32_t n)
{
	if (at + n < h->pages && !h->page[at + n].used)
		n += remove_free(h, at + n);
	if (at > 0 && h->page[at - 1].ended > 0) {
		uint32_t before = h->page[at - 1].ended;
		at -= before;
		n += remove_free(h, at);
	}
	add_free(h, at, n);
}

void heap_init(struct heap *h, void *memory, size_t bytes, struct heap_page *list)
{
	size_t pages = bytes / HEAP_PAGE;
	*h = (struct heap){.memory = memory, .pages = pages > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)pages, .page = list};
	if (h->pages > 0)
		add_free(h, 0, h->pages);
}

/* How many runs of the class of n find compares, so that its time is bounded. */
#define TRIES 32

/* find returns the first page + 1 of a free run of at least n pages. It prefers the
 * classes in which every run is large enough. If they are empty, it tries some runs
 * of the class of n, not all of which are. */
static uint32_t find(const struct heap *h, uint32_t n)
{
	for (uint32_t c = class_above(n); c < HEAP_CLASSES; c = (c / 64 + 1) * 64) {
		uint64_t some = h->some[c / 64] >> c % 64;
		if (some != 0)
			return h->first[c + (uint32_t)__builtin_ctzll(some)];
	}
	uint32_t at = h->first[class_of(n)];
	for (int i = 0; i < TRIES && at != NONE; i++, at = h->page[at - 1].next)
		if (h->page[at - 1].pages >= n)
			return at;
	return NONE;
}

void *heap_take(struct heap *h, size_t bytes, size_t align, size_t *dirty)
{
	size_t room = (size_t)h->pages * HEAP_PAGE;
	if (bytes > room || align > room || (align & (align - 1)) != 0)
		return NULL;
	uint32_t n = bytes == 0 ? 1 : pages_for(bytes), skip = 0;
	uint32_t slack = align > HEAP_PAGE ? (uint32_t)(align / HEAP_PAGE) - 1 : 0;
	uint32_t at = n + slack > h->pages ? NONE : find(h, n + slack);
	if (at-- == NONE)
		return NULL;
	uint32_t all = remove_free(h, at);
	if (slack > 0) {
		uintptr_t start = (uintptr_t)h->memory + (uintptr_t)at * HEAP_PAGE;
		skip = (uint32_t)(((start + align - 1) & ~(uintptr_t)(align - 1)) - start) / HEAP_PAGE;
	}
	/* The neighbours of a free run are in use, so that the remainders on either side
	 * cannot be joined with them. */
	if (skip > 0)
		add_free(h, at, skip);
	if (all > skip + n)
		add_free(h, at + skip + n, all - skip - n);
	at += skip;
	*dirty = h->fresh <= at ? 0 : h->fresh >= at + n ? (size_t)n * HEAP_PAGE : (size_t)(h->fresh - at) * HEAP_PAGE;
	mark_used(h, at, n);
	return h->memory + (size_t)at * HEAP_PAGE;
}

/* piece_at sets *at to the first page of a piece; false: no piece starts there. */
static bool piece_at(const struct heap *h, const void *piece, uint32_t *at)
{
	uintptr_t offset = (uintptr_t)piece - (uintptr_t)h->memory;
	if (offset >= (uintptr_t)h->pages * HEAP_PAGE || offset % HEAP_PAGE != 0)
		return false;
	*at = (uint32_t)(offset / HEAP_PAGE);
	return h->page[*at].pages > 0 && h->page[*at].used;
}

bool heap_give(struct heap *h, const void *piece)
{
	uint32_t at;
	if (!piece_at(h, piece, &at))
		return false;
	uint32_t n = h->page[at].pages;
	h->page[at].pages = h->page[at].used = 0;
	h->taken -= n;
	release(h, at, n);
	return true;
}

size_t heap_size(const struct heap *h, const void *piece)
{
	uint32_t at;
	return piece_at(h, piece, &at) ? (size_t)h->page[at].pages * HEAP_PAGE : 0;
}

bool heap_resize(struct heap *h, const void *piece, size_t bytes)
{
	uint32_t at;
	if (bytes > (size_t)h->pages * HEAP_PAGE || !piece_at(h, piece, &at))
		return false;
	uint32_t n = bytes == 0 ? 1 : pages_for(bytes), had = h->page[at].pages;
	if (n > had) {
		if (at + had == h->pages || h->page[at + had].used || h->page[at + had].pages < n - had)
			return false;
		uint32_t more = remove_free(h, at + had);
		if (more > n - had)
			add_free(h, at + n, more - (n - had));
	}
	h->taken -= had;
	mark_used(h, at, n);
	if (n < had)
		release(h, at + n, had - n);
	return true;
}

void *heap_next(const struct heap *h, const void *from, size_t *bytes)
{
	uint32_t at = from == NULL ? 0 : (uint32_t)(((uintptr_t)from - (uintptr_t)h->memory + HEAP_PAGE - 1) / HEAP_PAGE);
	while (at < h->pages && !h->page[at].used)
		at += h->page[at].pages;
	if (at >= h->pages)
		return NULL;
	*bytes = (size_t)h->page[at].pages * HEAP_PAGE;
	return h->memory + (size_t)at * HEAP_PAGE;
}
