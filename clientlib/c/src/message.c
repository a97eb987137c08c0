/* Sends, receives, probes and tests: the functions of outrigger.h that take an envelope or a
 * request. The Go client has it in clientlib/message.go, probe.go and request.go. */
#include <stdlib.h>

#include "session.h"

/* The most silent sends that the engine has not taken over yet; the contract allows 65,536. A
 * send beyond it gets a request. */
#define SILENT_MAX 1024

/* Requests that a send with OUTRIGGER_MODEST leaves free, for receives. */
#define MODEST_LEFT 512u

#define CONTEXTS 0x80000000u /* numbers of contexts that programs may use */

/* measure adds up the lengths of the segments. false: too many segments, or too long. */
static bool measure(const struct iovec *iov, int segments, uint64_t *bytes)
{
	*bytes = 0;
	if (segments < 0 || segments > OUTRIGGER_IOV_MAX)
		return false;
	for (int i = 0; i < segments; i++) {
		if (iov[i].iov_len > INT64_MAX - *bytes)
			return false;
		*bytes += iov[i].iov_len;
	}
	return true;
}

/* set_segments copies the caller's list of segments, which need not outlive the call. */
static void set_segments(struct or_op *op, const struct iovec *iov, int segments)
{
	for (int i = 0; i < segments; i++)
		op->iov[i] = iov[i];
	op->segments = segments;
}

/* in_arena reports whether a message is one contiguous range of the arena, and sets its offset. */
static bool in_arena(const outrigger *s, const struct iovec *iov, int segments, uint64_t bytes, uint64_t *offset)
{
	const struct iovec *only = NULL;
	for (int i = 0; i < segments; i++) {
		if (iov[i].iov_len == 0)
			continue;
		if (only != NULL)
			return false;
		only = &iov[i];
	}
	if (only == NULL)
		return false;
	uintptr_t at = (uintptr_t)only->iov_base, base = (uintptr_t)s->arena.memory;
	if (at < base || at - base > s->arena.size || bytes > s->arena.size - (at - base))
		return false;
	*offset = at - base;
	return true;
}

/* copy_message copies the message of a send, so that the caller may change its memory before
 * the message is sent. */
static int copy_message(struct or_op *op, uint64_t bytes)
{
	unsigned char *copy = malloc(bytes);
	if (copy == NULL)
		return OUTRIGGER_NO_MEMORY;
	or_gather(op->iov, op->segments, 0, copy, bytes);
	op->copy = copy;
	op->iov[0] = (struct iovec){copy, bytes};
	op->segments = 1;
	return OUTRIGGER_OK;
}

/* describe_inline puts the message of a send into the descriptor; for a receive it says that a
 * small message comes in the descriptor of the completion. */
static void describe_inline(struct or_descriptor *d, const struct or_op *op, uint64_t bytes)
{
	d->class = OR_CLASS_INLINE;
	d->inline_length = (uint8_t)bytes;
	if (!op->receives)
		or_gather(op->iov, op->segments, 0, d->payload, bytes);
}

/* in_slot allocates a slot of the slab for a message that fits into one. */
static bool in_slot(outrigger *s, struct or_op *op, uint64_t bytes)
{
	op->slotted = bytes <= s->slab.slot_bytes && or_stack_pop(&s->slab.slots, &op->slot);
	return op->slotted;
}

/* describe chooses where the payload is: in the descriptor, in the arena, in a slot of the slab,
 * in one chunk, or in private memory that is staged in chunks. If the caller may change the
 * memory as soon as the call returns (fleeting), the payload is always copied. */
static int describe(outrigger *s, struct or_descriptor *d, struct or_op *op, uint64_t bytes, bool small, bool fleeting)
{
	struct or_chunk at = {.class = OR_CLASS_SLAB};
	if (small && bytes <= OR_INLINE_MAX) {
		describe_inline(d, op, bytes);
		s->traffic.sent_copied += op->receives ? 0 : bytes;
		return OUTRIGGER_OK;
	}
	if (!fleeting && in_arena(s, op->iov, op->segments, bytes, &at.offset)) {
		at.class = OR_CLASS_ARENA;
		op->in_place = true;
	} else if (in_slot(s, op, bytes)) {
		at.offset = op->slot;
	} else if (or_alloc_whole(s, op, bytes) || (fleeting && or_alloc_copy(s, op, bytes))) {
		at = op->spare.list[0];
	} else {
		int rc = fleeting ? copy_message(op, bytes) : OUTRIGGER_OK;
		if (rc != OUTRIGGER_OK)
			return rc;
		op->staged = !fleeting || !in_arena(s, op->iov, op->segments, bytes, &at.offset);
		at.class = op->staged ? OR_CLASS_STAGED : OR_CLASS_ARENA;
	}
	op->counted = op->staged || op->whole;
	s->ops.private += op->counted;
	if (op->staged) {
		op->room = bytes;
		op->want = op->receives ? 0 : bytes;
	}
	if (!op->receives && (op->slotted || op->whole))
		or_gather(op->iov, op->segments, 0, or_chunk_at(s, at), bytes);
	if (!op->receives)
		*(op->in_place ? &s->traffic.sent_in_place : &s->traffic.sent_copied) += bytes;
	d->class = at.class;
	d->addr = at.offset;
	d->len = bytes;
	return OUTRIGGER_OK;
}

static bool may_be_silent(const outrigger *s)
{
	return !s->failed && s->silent - or_retired(s) < SILENT_MAX;
}

/* find returns the operation of a request, or NULL if it has ended. */
static struct or_op *find(const outrigger *s, outrigger_request request, uint32_t *id)
{
	*id = (uint32_t)request;
	if (*id >= s->ops.count)
		return NULL;
	struct or_op *op = or_op_at(&s->ops, *id);
	return op->open && op->gen == request >> 32 ? op : NULL;
}

/* name_reply puts the receive that waits for the reply into the message's descriptor. If that
 * receive has ended, it has its reply, and its number may be in use again: then the message
 * names no receive. */
static void name_reply(const outrigger *s, struct or_descriptor *d, outrigger_request reply)
{
	uint32_t id;
	const struct or_op *op = find(s, reply, &id);
	if ((s->features & OR_FEATURE_REPLY) == 0 || op == NULL || !op->receives)
		return;
	d->flags |= OR_FLAG_REPLY;
	d->status = id;
}

/* send_silently sends a small message that has no request and no completion; the engine counts
 * it as retired when it has taken it over. */
static int send_silently(outrigger *s, struct or_descriptor *d, const struct iovec *iov, int segments, uint64_t bytes)
{
	d->flags |= OR_FLAG_SILENT;
	d->class = OR_CLASS_INLINE;
	d->inline_length = (uint8_t)bytes;
	or_gather(iov, segments, 0, d->payload, bytes);
	int rc = or_submit(s, d);
	s->silent += rc == OUTRIGGER_OK;
	s->traffic.sent_copied += bytes;
	return rc;
}

/* submit_op publishes the descriptor of an operation. If it cannot, it frees the operation. */
static int submit_op(outrigger *s, struct or_descriptor *d, uint32_t id, struct or_op *op, outrigger_request *request)
{
	outrigger_request name = (uint64_t)op->gen << 32 | id;
	uint64_t bytes = d->class == OR_CLASS_INLINE ? d->inline_length : d->len; /* an inline payload overlays len */
	d->req = id;
	int rc = or_submit(s, d);
	if (rc != OUTRIGGER_OK) {
		or_free_op(s, id, op);
		return rc;
	}
	or_activity_copied(s, bytes);
	if (request != NULL)
		*request = name;
	return OUTRIGGER_OK;
}

/* describe_call records the arguments that the text of an error of the operation quotes, and whether the
 * call is a message of an access. */
static void describe_call(struct or_op *op, const char *call, const struct or_descriptor *d, uint64_t bytes)
{
	op->call = call;
	op->peer = d->peer;
	op->tag = d->tag;
	op->bytes = bytes;
	op->reaches = (d->op == OR_OP_SEND || d->op == OR_OP_RECV) && d->context >= OR_PROVIDER_CONTEXT && (d->context & 2) != 0;
}

/* send_locked is outrigger_sendv with the session's lock held and the arguments checked. */
static int send_locked(outrigger *s, struct or_descriptor *d, const struct iovec *iov, int segments, uint64_t bytes,
		       unsigned flags, outrigger_request reply, outrigger_done done, void *arg, outrigger_request *request)
{
	bool unreported = done == NULL && request == NULL;
	bool small = (flags & OUTRIGGER_ACKED) == 0;
	if (unreported && small && bytes <= OR_INLINE_MAX && (flags & OUTRIGGER_SYNC) == 0 && may_be_silent(s)) {
		name_reply(s, d, reply);
		return s->gone ? OUTRIGGER_NO_SIDECAR : send_silently(s, d, iov, segments, bytes);
	}
	uint32_t id;
	struct or_op *op;
	if ((flags & OUTRIGGER_MODEST) != 0 && outrigger_room(s) <= MODEST_LEFT)
		return s->gone ? OUTRIGGER_NO_SIDECAR : OUTRIGGER_TOO_MANY;
	int rc = or_begin_op(s, &id, &op);
	if (rc != OUTRIGGER_OK)
		return rc;
	set_segments(op, iov, segments);
	describe_call(op, "send", d, bytes);
	op->notify = done;
	op->arg = arg;
	op->unreported = unreported;
	s->ops.unreported += unreported;
	rc = describe(s, d, op, bytes, small, unreported || (flags & OUTRIGGER_COPY) != 0);
	if (rc != OUTRIGGER_OK) {
		or_free_op(s, id, op);
		return rc;
	}
	if ((flags & OUTRIGGER_SYNC) != 0)
		d->flags |= OR_FLAG_SYNC;
	name_reply(s, d, reply);
	rc = submit_op(s, d, id, op, request);
	/* If a chunk cannot be submitted, the session has ended, which the next call returns: this
	 * request is open, and a completion that the sidecar published before may still end it. */
	if (rc == OUTRIGGER_OK && op->staged)
		(void)or_submit_chunks(s, id, op);
	return rc;
}

int outrigger_sendv(outrigger *s, const struct iovec *iov, int segments, const struct outrigger_envelope *to,
		    unsigned flags, outrigger_done done, void *arg, outrigger_request *request)
{
	uint64_t bytes;
	if (request != NULL)
		*request = 0;
	if (!measure(iov, segments, &bytes) || to->peer >= s->world.ranks || to->context >= CONTEXTS || flags > 63)
		return or_record_error(s, "send", to->peer, to->tag, bytes, OUTRIGGER_INVALID);
	bool replied = (flags & OUTRIGGER_REPLY) != 0;
	if (replied && (flags & (OUTRIGGER_SYNC | OUTRIGGER_DATA)) != 0)
		return OUTRIGGER_INVALID;
	struct or_descriptor d = {.op = OR_OP_SEND, .peer = to->peer, .context = to->context, .tag = to->tag};
	if ((flags & OUTRIGGER_DATA) != 0) {
		if (!outrigger_has_data(s))
			return OUTRIGGER_UNSUPPORTED;
		d.flags = OR_FLAG_DATA;
		d.status = to->data;
	}
	int rc = or_enter(s);
	if (rc != OUTRIGGER_OK)
		return rc;
	rc = send_locked(s, &d, iov, segments, bytes, flags, replied ? to->reply : 0, done, arg, request);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static bool good_pattern(const outrigger *s, const struct outrigger_envelope *from)
{
	return (from->peer == OUTRIGGER_ANY || from->peer < s->world.ranks) && from->context < CONTEXTS;
}

static int recv_locked(outrigger *s, struct or_descriptor *d, const struct iovec *iov, int segments, uint64_t bytes,
		       outrigger_done done, void *arg, outrigger_request *request)
{
	uint32_t id;
	struct or_op *op;
	int rc = or_begin_op(s, &id, &op);
	if (rc != OUTRIGGER_OK)
		return rc;
	set_segments(op, iov, segments);
	describe_call(op, "recv", d, bytes);
	op->notify = done;
	op->arg = arg;
	op->receives = true;
	(void)describe(s, d, op, bytes, true, false); /* fails only for want of a copy, which a receive does not make */
	return submit_op(s, d, id, op, request);
}

/* recv_any posts a receive by an envelope or of a claimed message, as d says. */
static int recv_any(outrigger *s, struct or_descriptor *d, const struct iovec *iov, int segments, outrigger_done done,
		    void *arg, outrigger_request *request)
{
	uint64_t bytes;
	if (request != NULL)
		*request = 0;
	if (!measure(iov, segments, &bytes) || (done == NULL && request == NULL))
		return OUTRIGGER_INVALID;
	int rc = or_enter(s);
	if (rc != OUTRIGGER_OK)
		return rc;
	rc = recv_locked(s, d, iov, segments, bytes, done, arg, request);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* In a receive of class inline the payload overlays addr and len. The ignore mask is in aux as
 * for the other classes. */
int outrigger_recvv(outrigger *s, const struct iovec *iov, int segments, const struct outrigger_envelope *from,
		    outrigger_done done, void *arg, outrigger_request *request)
{
	if (!good_pattern(s, from))
		return or_record_error(s, "recv", from->peer, from->tag, 0, OUTRIGGER_INVALID);
	struct or_descriptor d = {.op = OR_OP_RECV, .peer = from->peer, .context = from->context, .tag = from->tag, .aux = from->ignore};
	return recv_any(s, &d, iov, segments, done, arg, request);
}

int outrigger_claim(outrigger *s, uint64_t handle, const struct iovec *iov, int segments, outrigger_done done, void *arg,
		    outrigger_request *request)
{
	struct or_descriptor d = {.op = OR_OP_MRECV, .peer = OR_ANY_SOURCE, .aux2 = handle};
	return recv_any(s, &d, iov, segments, done, arg, request);
}

/* submit_alone submits a descriptor that belongs to no operation. */
static int submit_alone(outrigger *s, const struct or_descriptor *d)
{
	int rc = or_enter(s);
	if (rc != OUTRIGGER_OK)
		return rc;
	rc = or_submit(s, d);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int outrigger_drop(outrigger *s, uint64_t handle)
{
	struct or_descriptor d = {.op = OR_OP_DROP, .aux = handle};
	return submit_alone(s, &d);
}

int outrigger_shut(outrigger *s, uint32_t context)
{
	if ((s->features & OR_FEATURE_SHUT) == 0)
		return OUTRIGGER_UNSUPPORTED;
	if (context >= CONTEXTS)
		return OUTRIGGER_INVALID;
	struct or_descriptor d = {.op = OR_OP_SHUT, .context = context};
	return submit_alone(s, &d);
}

int outrigger_probe(outrigger *s, const struct outrigger_envelope *from, unsigned flags, outrigger_done done, void *arg,
		    outrigger_request *request)
{
	if (!good_pattern(s, from) || flags > 3 || (done == NULL && request == NULL))
		return OUTRIGGER_INVALID;
	struct or_descriptor d = {
		.op = (flags & OUTRIGGER_CLAIM) != 0 ? OR_OP_MPROBE : OR_OP_PROBE,
		.flags = (flags & OUTRIGGER_NOW) != 0 ? OR_FLAG_NOW : 0,
		.peer = from->peer, .context = from->context, .tag = from->tag, .aux = from->ignore,
	};
	uint32_t id;
	struct or_op *op;
	int rc = or_enter(s);
	if (rc != OUTRIGGER_OK)
		return rc;
	if ((flags & OUTRIGGER_NOW) != 0)
		or_activity_probes(s);
	rc = or_begin_op(s, &id, &op);
	if (rc == OUTRIGGER_OK) {
		describe_call(op, "probe", &d, 0);
		op->notify = done;
		op->arg = arg;
		rc = submit_op(s, &d, id, op, request);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int outrigger_send(outrigger *s, const void *data, size_t bytes, const struct outrigger_envelope *to, unsigned flags,
		   outrigger_request *request)
{
	struct iovec v = {(void *)(uintptr_t)data, bytes};
	return outrigger_sendv(s, &v, 1, to, flags, NULL, NULL, request);
}

int outrigger_recv(outrigger *s, void *data, size_t bytes, const struct outrigger_envelope *from, outrigger_request *request)
{
	struct iovec v = {data, bytes};
	return outrigger_recvv(s, &v, 1, from, NULL, NULL, request);
}

int outrigger_taken(outrigger *s, outrigger_request request)
{
	uint32_t id;
	pthread_mutex_lock(&s->lock);
	const struct or_op *op = find(s, request, &id);
	bool taken = op == NULL || op->done || !op->staged || op->offset == op->want;
	pthread_mutex_unlock(&s->lock);
	return taken;
}

int outrigger_cancel(outrigger *s, outrigger_request request)
{
	uint32_t id;
	int rc = OUTRIGGER_OK;
	pthread_mutex_lock(&s->lock);
	struct or_op *op = find(s, request, &id);
	if (op != NULL && !op->done && !op->cancels) {
		struct or_descriptor d = {.op = OR_OP_CANCEL, .req = id};
		rc = or_submit(s, &d);
		if (rc == OUTRIGGER_TOO_MANY) { /* the ring has no room: or_progress submits it */
			op->cancels = or_queue_push(&s->cancels, id) == 0;
			rc = op->cancels ? OUTRIGGER_OK : OUTRIGGER_NO_MEMORY;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int outrigger_release(outrigger *s, outrigger_request request)
{
	uint32_t id;
	int rc = OUTRIGGER_OK;
	pthread_mutex_lock(&s->lock);
	struct or_op *op = find(s, request, &id);
	if (op != NULL && op->in_place)
		rc = OUTRIGGER_UNSUPPORTED;
	else if (op != NULL && op->receives)
		op->segments = 0;
	else if (op != NULL && op->staged && op->copy == NULL && op->offset < op->want)
		rc = copy_message(op, op->want);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int outrigger_test(outrigger *s, outrigger_request request, int *over, struct outrigger_result *result)
{
	uint32_t id;
	*over = 0;
	if (request != 0 && or_in_vain(s, request))
		return OUTRIGGER_OK;
	pthread_mutex_lock(&s->lock);
	int rc = or_poll(s);
	struct or_op *op = find(s, request, &id);
	if (op != NULL && !op->done) {
		or_note_vain(s, request);
	} else {
		or_end_vain();
		*over = 1;
		rc = OUTRIGGER_OK;
		if (op != NULL) {
			rc = or_record_error(s, op->call, op->peer, op->tag, op->bytes, op->result.status);
			if (result != NULL)
				*result = op->result;
			or_free_op(s, id, op);
		} else if (result != NULL) {
			*result = (struct outrigger_result){.peer = OUTRIGGER_ANY};
		}
	}
	bool behind = or_behind(s);
	pthread_mutex_unlock(&s->lock);
	if (behind && !*over)
		sched_yield(); /* while something waits for room in the ring, outrigger_sleep does not sleep */
	return rc;
}
