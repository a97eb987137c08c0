/* Memory for the state of requests. The system's allocator may acquire a lock or call the kernel,
 * which is too slow for each small message. Therefore pieces are allocated in blocks and never
 * freed: a pool has as many as were ever in use at once. The provider's lock guards pools. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#define BLOCK 64u /* pieces */

#ifdef __SANITIZE_ADDRESS__
/* The sanitizer detects the use of a released piece only if the piece was freed. */
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
