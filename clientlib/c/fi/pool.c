/* Memory for what comes and goes with each request. The system's allocator may take a lock
 * or ask the kernel, which no small message is to pay for: pieces are taken from it in
 * blocks, as many as are ever needed at once, and kept. All is guarded by the lock. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#define BLOCK 64u /* pieces */

#ifdef __SANITIZE_ADDRESS__
/* The sanitizer sees the use of a piece that was given back only if it is freed. */
void *pool_take(struct pool *p) { return calloc(1, p->bytes); }

void pool_give(struct pool *p, void *piece)
{
	(void)p;
	free(piece);
}
#else
static bool grow(struct pool *p)
{
	char *block = malloc(BLOCK * p->bytes);
	for (size_t i = 0; block != NULL && i < BLOCK; i++)
		pool_give(p, block + i * p->bytes);
	return block != NULL;
}

void *pool_take(struct pool *p)
{
	if (p->spare == NULL && !grow(p))
		return NULL;
	struct piece *piece = p->spare;
	p->spare = piece->next;
	return memset(piece, 0, p->bytes);
}

void pool_give(struct pool *p, void *piece)
{
	struct piece *first = piece;
	first->next = p->spare;
	p->spare = first;
}
#endif
