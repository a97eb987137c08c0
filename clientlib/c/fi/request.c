/* The requests that an endpoint has at the client. */
#include "provider.h"

static struct pool ops = {.bytes = sizeof(struct op)};

struct op *op_new(struct endpoint *ep, enum kind kind, outrigger_done done, void *context)
{
	struct op *op = pool_take(&ops);
	if (op == NULL)
		return NULL;
	op->ep = ep;
	op->kind = kind;
	op->done = done;
	op->context = context;
	doings++;
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

/* visit_ops visits all requests of an endpoint. A visit may free any of them: the place in
 * the list is kept by a node of its own. */
void visit_ops(struct endpoint *ep, void (*visit)(struct op *op, const void *arg), const void *arg)
{
	struct node place;
	list_add(ep->ops.next, &place);
	while (place.next != &ep->ops) {
		struct op *op = (struct op *)place.next;
		list_remove(&place);
		list_add(op->node.next, &place);
		visit(op, arg);
	}
	list_remove(&place);
}

struct choice {
	bool (*chosen)(const struct op *op, const void *arg);
	const void *arg;
};

static void cancel_chosen(struct op *op, const void *arg)
{
	const struct choice *c = arg;
	if (c->chosen(op, c->arg))
		(void)outrigger_cancel(client(), op->request); /* too late is as good; it ends with the session too */
}

/* cancel_ops asks for the end of the chosen requests. That may take completions. */
void cancel_ops(struct endpoint *ep, bool (*chosen)(const struct op *op, const void *arg), const void *arg)
{
	visit_ops(ep, cancel_chosen, &(struct choice){chosen, arg});
}
