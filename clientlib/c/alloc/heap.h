/*
 * A heap of whole pages in memory that somebody else has: for few, large pieces.
 * What it knows of the pages is beside them, since what is in them is written by
 * the application and by its sidecar. It has no lock and calls nothing.
 *
 * Free runs of pages are kept by size in classes of four to a power of two, and
 * found by bitmap (the scheme of Masmano et al., TLSF, ECRTS 2004): taking,
 * giving and growing cost the same at any number of pieces.
 */
#ifndef OUTRIGGER_HEAP_H
#define OUTRIGGER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_PAGE 4096u
#define HEAP_CLASSES 128u /* four for each bit of a number of pages */

/* What is known of a page. A run is told by its first page, a free one by its
 * last one too, so that neighbours find it; all other pages have zeros. */
struct heap_page {
	uint32_t pages; /* of the run that starts here; 0: none does */
	uint32_t ended; /* of the free run that ends here; 0: none does */
	uint32_t next, prev; /* of the free runs of a class: page + 1; 0: none */
	uint32_t used;
};

struct heap {
	unsigned char *memory;
	uint32_t pages;
	struct heap_page *page;
	uint32_t first[HEAP_CLASSES]; /* page + 1 */
	uint64_t some[HEAP_CLASSES / 64];
	uint32_t fresh; /* pages from here on have never been given out: zeros */
	uint32_t taken; /* pages that are in use */
};

/* heap_bytes is the size of the list that heap_init wants for memory of so many
 * bytes, full of zeros. */
size_t heap_bytes(size_t bytes);

/* heap_init makes a heap of memory that starts at a page and is zero. */
void heap_init(struct heap *h, void *memory, size_t bytes, struct heap_page *list);

/* heap_take gives a piece, aligned to a power of two, or NULL. *dirty is how many
 * of its first bytes may not be zero. */
void *heap_take(struct heap *h, size_t bytes, size_t align, size_t *dirty);

/* heap_give takes a piece back, heap_size is its size; false and 0: no piece
 * starts there. */
bool heap_give(struct heap *h, const void *piece);
size_t heap_size(const struct heap *h, const void *piece);

/* heap_resize shrinks a piece, or lets it grow into what follows it; false: that
 * is in use. */
bool heap_resize(struct heap *h, const void *piece, size_t bytes);

/* heap_next goes through the pieces in use, of a heap that does not change
 * meanwhile: the first one at or behind the end of another (NULL: the start); NULL
 * when there is none. */
void *heap_next(const struct heap *h, const void *at, size_t *bytes);

#endif
