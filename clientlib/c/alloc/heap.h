/*
 * A heap of whole pages in memory that the caller owns: for few, large pieces.
 * Its data about the pages is separate from them, because the application and its
 * sidecar write to the pages. It has no lock and calls nothing.
 *
 * Free runs of pages are listed by size in classes, four for each power of two,
 * and found by a bitmap (the scheme of Masmano et al., TLSF, ECRTS 2004). The time
 * of allocating, freeing and growing does not depend on the number of pieces.
 */
#ifndef OUTRIGGER_HEAP_H
#define OUTRIGGER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_PAGE 4096u
#define HEAP_CLASSES 128u /* four for each bit of a 32-bit number of pages */

/* heap_page describes a page. The first page of a run describes the run, and so does
 * the last page of a free run, so that the run behind it finds it; the entries of all
 * other pages are zero. */
struct heap_page {
	uint32_t pages; /* pages of the run that starts here; 0: none does */
	uint32_t ended; /* pages of the free run that ends here; 0: none does */
	uint32_t next, prev; /* free runs of the same class: first page + 1; 0: none */
	uint32_t used;
};

struct heap {
	unsigned char *memory;
	uint32_t pages;
	struct heap_page *page;
	uint32_t first[HEAP_CLASSES]; /* first free run of each class: page + 1; 0: none */
	uint64_t some[HEAP_CLASSES / 64]; /* bitmap of the classes with free runs */
	uint32_t fresh; /* this page and later ones were never allocated and are zero */
	uint32_t taken; /* pages in use */
};

/* heap_bytes returns the size of the list that heap_init needs for memory of so many
 * bytes. The list must be zero. */
size_t heap_bytes(size_t bytes);

/* heap_init makes a heap of memory that is aligned to a page and zero. */
void heap_init(struct heap *h, void *memory, size_t bytes, struct heap_page *list);

/* heap_take allocates a piece, aligned to a power of two, or returns NULL. It sets
 * *dirty to the number of its first bytes that may not be zero. */
void *heap_take(struct heap *h, size_t bytes, size_t align, size_t *dirty);

/* heap_give frees a piece, heap_size returns its size; false and 0: no piece starts
 * there. */
bool heap_give(struct heap *h, const void *piece);
size_t heap_size(const struct heap *h, const void *piece);

/* heap_resize shrinks a piece, or grows it into the free run behind it; false: there
 * is none that is large enough. */
bool heap_resize(struct heap *h, const void *piece, size_t bytes);

/* heap_next iterates over the pieces in use: it returns the first one at or behind
 * an address (NULL: the start of the memory), or NULL if there is none, and sets
 * *bytes to its size. The heap must not change during the iteration. */
void *heap_next(const struct heap *h, const void *at, size_t *bytes);

#endif
