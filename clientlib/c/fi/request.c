/* The requests of an endpoint at the client. */
#include "provider.h"

static struct pool ops = {.bytes = sizeof(struct op)};

/* op_new returns a request of an endpoint, or NULL if there is no memory. */
struct op *op_new(struct endpoint *ep, enum kind kind, outrigger_done done, void *context)
{
	struct op *op = pool_take(&ops);
	if (op == NULL)
		return NULL;
	op->ep = ep;
	op->kind = kind;
	op->done = done;
	op->context = context;
	activity++;
	list_add(&ep->ops, &op->node);
	list_init(&op->receive);
	return op;
}

void op_free(struct op *op)
{
	list_remove(&op->node);
	list_remove(&op->receive);
	pool_give(&ops, op);
}

/* visit_ops visits all requests of an endpoint. A visit may free any request; therefore a node of
 * its own marks the position in the list. */
void visit_ops(struct endpoint *ep, void (*visit)(struct op *op, const void *arg), const void *arg)
{
	struct node position;
	list_add(ep->ops.next, &position);
	while (position.next != &ep->ops) {
		struct op *op = (struct op *)position.next;
		list_remove(&position);
		list_add(op->node.next, &position);
		visit(op, arg);
	}
	list_remove(&position);
}

struct choice {
	bool (*chosen)(const struct op *op, const void *arg);
	const void *arg;
};

static void cancel_chosen(struct op *op, const void *arg)
{
	const struct choice *c = arg;
	if (c->chosen(op, c->arg))
		(void)outrigger_cancel(client(), op->request); /* if it fails, the request has completed or ends with the session */
}

/* cancel_ops cancels the chosen requests. It may handle completions. */
void cancel_ops(struct endpoint *ep, bool (*chosen)(const struct op *op, const void *arg), const void *arg)
{
	visit_ops(ep, cancel_chosen, &(struct choice){chosen, arg});
}
