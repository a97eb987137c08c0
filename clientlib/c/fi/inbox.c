/*
 * Small messages that are received before it is known what becomes of them:
 * untagged ones, of which one buffer takes many, and requests for accesses. They
 * are received into letters, and looked at in the order in which they were
 * matched, which is that of their arrival: a later one never overtakes.
 *
 * What does not fit into a letter travels as a message of its own beside it,
 * with the same tag but for TAG_BULK.
 */
#include <stdlib.h>
#include <string.h>

#include "inbox.h"

#define LETTERS 16u /* received at once; each takes a slot of the slab */

static void on_letter(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct letter *l = op->of;
	l->message = *r;
	l->come = true;
	op_free(op);
}

static int post(struct letter *l)
{
	struct outrigger_envelope any = {.peer = OUTRIGGER_ANY, .context = context_of(l->ep->number, l->inbox->space), .ignore = ~TAG_BULK};
	struct op *op = op_new(l->ep, OP_LETTER, on_letter, NULL);
	if (op == NULL)
		return OUTRIGGER_NO_MEMORY;
	op->of = l;
	l->come = l->applied = l->answered = false;
	struct iovec v = {l->bytes, sizeof l->bytes};
	int rc = outrigger_recvv(client(), &v, 1, &any, op->done, op, &op->request);
	if (rc != OUTRIGGER_OK) {
		op_free(op);
		return rc;
	}
	list_add(&l->inbox->letters, &l->node);
	return rc;
}

/* fill posts all letters of a box that has none. Fewer will do; with none it is
 * tried again. */
static void fill(struct endpoint *ep, struct inbox *b)
{
	for (unsigned i = 0; i < LETTERS; i++) {
		struct letter *l = calloc(1, sizeof *l);
		if (l == NULL)
			return;
		list_init(&l->node);
		l->ep = ep;
		l->inbox = b;
		if (post(l) != OUTRIGGER_OK) {
			free(l);
			return;
		}
	}
}

struct letter *inbox_first(struct endpoint *ep, struct inbox *b)
{
	if (list_empty(&b->letters))
		fill(ep, b);
	struct letter *l = (struct letter *)b->letters.next;
	return list_empty(&b->letters) || !l->come ? NULL : l;
}

void inbox_next(struct letter *l)
{
	list_remove(&l->node);
	if (post(l) != OUTRIGGER_OK)
		free(l);
}

struct letter *inbox_copy(const struct letter *l)
{
	uint64_t bytes = offsetof(struct letter, bytes) + l->message.length;
	if (bytes > sizeof *l)
		bytes = sizeof *l;
	if (bytes < offsetof(struct letter, bytes) + TELLING_BYTES)
		bytes = offsetof(struct letter, bytes) + TELLING_BYTES;
	struct letter *copy = malloc(bytes);
	if (copy == NULL)
		return NULL;
	memcpy((void *)copy, l, bytes);
	list_init(&copy->node);
	return copy;
}

void inbox_close(struct inbox *b)
{
	for (struct node *n = b->letters.next, *next; n != &b->letters; n = next) {
		struct letter *l = (struct letter *)n;
		next = n->next;
		if (l->come) {
			list_remove(n);
			free(l);
		}
	}
}
