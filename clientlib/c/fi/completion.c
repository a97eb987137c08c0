/* Writes completions to completion queues and counters; the program reads them (cq.c). */
#include <stdlib.h>

#include "provider.h"

_Atomic unsigned unread;
uint64_t activity;

/* cq_put appends a completion. If there is no memory, the next read returns FI_EOVERRUN. */
void cq_put(struct cq *cq, const struct completion *c)
{
	if (cq == NULL)
		return;
	if (cq->count == cq->room) {
		size_t room = cq->room == 0 ? 256 : 2 * cq->room;
		struct completion *list = malloc(room * sizeof *list);
		if (list == NULL) {
			cq->lost = true;
			return;
		}
		for (size_t i = 0; i < cq->count; i++)
			list[i] = cq->list[(cq->head + i) & (cq->room - 1)];
		free(cq->list);
		cq->list = list;
		cq->head = 0;
		cq->room = room;
	}
	cq->list[(cq->head + cq->count++) & (cq->room - 1)] = *c;
	cq->end_reported = cq->end_reported || c->status == OUTRIGGER_NO_SIDECAR;
	unread++;
}

/* count adds an operation to a counter, which may be NULL. */
void count(struct counter *c, int status)
{
	if (c == NULL)
		return;
	if (status == OUTRIGGER_OK)
		c->value++;
	else
		c->errors++;
}
