/*
 * The receive queue of eager messages: small messages that are received into buffers of the
 * provider before their destination is known. These are untagged messages, of which one buffer
 * of the program may receive many (untagged.c), and requests for accesses (target.c). They are
 * handled in the order in which they were matched, which is the order of arrival.
 *
 * A message that does not fit is announced by an eager message and sent as a bulk message of its
 * own, whose tag is the same except for TAG_BULK.
 */
#include <stdlib.h>
#include <string.h>

#include "rxqueue.h"

#define EAGER_POSTED 16u /* buffers that are posted; each uses a slot of the slab */

static void on_eager(void *arg, const struct outrigger_result *r)
{
	struct op *op = arg;
	struct eager *m = op->of;
	m->message = *r;
	m->arrived = true;
	op_free(op);
}

/* post posts the receive of a buffer, of any source and any tag without TAG_BULK. */
static int post(struct eager *m)
{
	struct outrigger_envelope any = {.peer = OUTRIGGER_ANY, .context = context_of(m->ep->number, m->queue->space), .ignore = ~TAG_BULK};
	struct op *op = op_new(m->ep, OP_EAGER, on_eager, NULL);
	if (op == NULL)
		return OUTRIGGER_NO_MEMORY;
	op->of = m;
	m->arrived = m->applied = m->answered = false;
	struct iovec v = {m->bytes, sizeof m->bytes};
	int rc = outrigger_recvv(client(), &v, 1, &any, op->done, op, &op->request);
	if (rc != OUTRIGGER_OK) {
		op_free(op);
		return rc;
	}
	list_add(&m->queue->buffers_posted, &m->node);
	return rc;
}

/* fill allocates and posts the buffers of a queue that has none. A smaller number is sufficient;
 * if none could be posted, rx_first tries again. */
static void fill(struct endpoint *ep, struct rx_queue *b)
{
	for (unsigned i = 0; i < EAGER_POSTED; i++) {
		struct eager *m = calloc(1, sizeof *m);
		if (m == NULL)
			return;
		list_init(&m->node);
		m->ep = ep;
		m->queue = b;
		if (ring_full() || post(m) != OUTRIGGER_OK) {
			free(m);
			return;
		}
	}
}

struct eager *rx_first(struct endpoint *ep, struct rx_queue *b)
{
	if (ring_full())
		return NULL; /* the caller submits an answer or a receive, and the buffer is posted again */
	if (list_empty(&b->buffers_posted))
		fill(ep, b);
	struct eager *m = (struct eager *)b->buffers_posted.next;
	return list_empty(&b->buffers_posted) || !m->arrived ? NULL : m;
}

bool rx_waits(const struct rx_queue *b)
{
	return !list_empty(&b->buffers_posted) && !((const struct eager *)b->buffers_posted.next)->arrived;
}

void rx_repost(struct eager *m)
{
	list_remove(&m->node);
	if (post(m) != OUTRIGGER_OK)
		free(m);
}

struct eager *rx_copy(const struct eager *m)
{
	uint64_t bytes = offsetof(struct eager, bytes) + m->message.length;
	if (bytes > sizeof *m)
		bytes = sizeof *m;
	if (bytes < offsetof(struct eager, bytes) + WRITE_HEADER_BYTES)
		bytes = offsetof(struct eager, bytes) + WRITE_HEADER_BYTES;
	struct eager *copy = malloc(bytes);
	if (copy == NULL)
		return NULL;
	memcpy((void *)copy, m, bytes);
	list_init(&copy->node);
	return copy;
}

void rx_close(struct rx_queue *b)
{
	for (struct node *n = b->buffers_posted.next, *next; n != &b->buffers_posted; n = next) {
		struct eager *m = (struct eager *)n;
		next = n->next;
		if (m->arrived) {
			list_remove(n);
			free(m);
		}
	}
}
