/* The life of a session (open, close, abort) and its memory (alloc, free, lend, extend). The Go
 * client has it in clientlib/session.go, open.go, close.go and arena.go. */
#include <stdio.h>
#include <stdlib.h>

#include "session.h"

int outrigger_open(const struct outrigger_config *config, outrigger **out, char *why, size_t why_bytes)
{
	outrigger *s = calloc(1, sizeof *s);
	*out = NULL;
	if (why_bytes > 0)
		*why = 0;
	if (s == NULL)
		return OUTRIGGER_NO_MEMORY;
	s->socket = s->doorbell = s->files[0] = s->files[1] = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->pieces_lock, NULL);
	or_vain_init(s);
	int rc = or_register_session(s);
	if (rc == OUTRIGGER_OK)
		rc = or_attach(config, s, why, why_bytes);
	else if (why_bytes > 0)
		snprintf(why, why_bytes, "no memory to prepare for fork");
	if (rc != OUTRIGGER_OK) {
		or_detach(s);
		pthread_mutex_destroy(&s->lock);
		free(s);
		return rc;
	}
	*out = s;
	return OUTRIGGER_OK;
}

/* unsent returns the number of sends that will be reported to no caller and have not been taken
 * over yet. */
static uint64_t unsent(outrigger *s)
{
	return s->ops.unreported + s->silent - or_retired(s);
}

int outrigger_close(outrigger *s)
{
	int rc = OUTRIGGER_OK;
	if (s->forked) {
		or_unmap(s);
		return OUTRIGGER_NO_SIDECAR;
	}
	while (rc == OUTRIGGER_OK) {
		pthread_mutex_lock(&s->lock);
		rc = s->gone ? OUTRIGGER_NO_SIDECAR : or_progress(s); /* without a sidecar no request will complete */
		bool over = s->failed || unsent(s) == 0;
		pthread_mutex_unlock(&s->lock);
		if (over)
			break;
		if (outrigger_full(s))
			sched_yield(); /* outrigger_sleep does not sleep if chunks wait for room in the ring */
		if (rc == OUTRIGGER_OK)
			rc = outrigger_sleep(s, 1000);
	}
	if (rc == OUTRIGGER_OK)
		rc = or_enter(s);
	if (rc == OUTRIGGER_OK) {
		struct or_descriptor d = {.op = OR_OP_DETACH};
		rc = or_submit(s, &d);
		pthread_mutex_unlock(&s->lock);
	}
	or_detach(s);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return rc;
}

int outrigger_abort(outrigger *s, int code, const char *reason)
{
	struct or_descriptor d = {.op = OR_OP_ABORT, .status = (uint32_t)code};
	int rc = or_enter(s);
	if (rc != OUTRIGGER_OK)
		return rc;
	uint64_t slot;
	if (!s->forked && reason != NULL && *reason != 0 && or_stack_pop(&s->slab.slots, &slot)) {
		size_t n = strlen(reason);
		if (n > s->slab.slot_bytes)
			n = s->slab.slot_bytes;
		memcpy(s->slab.memory + slot, reason, n);
		d.class = OR_CLASS_SLAB;
		d.addr = slot;
		d.len = n; /* the slot is not freed: the job ends */
	}
	rc = or_submit(s, &d);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void outrigger_tags(outrigger *s, uint32_t layout)
{
	pthread_mutex_lock(&s->lock);
	if (!s->forked)
		atomic_store(or_word(s, OR_SEG_OFF_TAGS), layout);
	pthread_mutex_unlock(&s->lock);
}

void *outrigger_alloc(outrigger *s, size_t bytes)
{
	uint64_t offset;
	pthread_mutex_lock(&s->lock);
	bool ok = !s->forked && or_arena_alloc(&s->arena, bytes, true, &offset);
	pthread_mutex_unlock(&s->lock);
	return ok ? s->arena.memory + offset : NULL;
}

/* take_unallocated allocates the first bytes of an unused arena without having the sidecar
 * allocate them. */
static bool take_unallocated(outrigger *s, uint64_t bytes, uint64_t *offset)
{
	struct or_arena *a = &s->arena;
	uint64_t ready = a->ready;
	a->ready = a->size;
	bool ok = or_arena_alloc(a, bytes, true, offset);
	a->ready = ok && ready < bytes ? bytes : ready; /* the rest of the arena grows from there */
	s->lent_ready = ready < bytes ? ready : bytes;
	s->lent_size = bytes;
	return ok;
}

void *outrigger_lend_pieces(outrigger *s, size_t *bytes)
{
	uint64_t want = s->arena.size / 4 * 3 & ~(uint64_t)(OR_SEG_PAGE_BYTES - 1);
	uint64_t offset;
	pthread_mutex_lock(&s->lock);
	/* If nothing is used, the allocation is at the start of the arena, which is the start of a
	 * page. */
	bool ok = !s->forked && want > 0 && s->arena.used.count == 0 && take_unallocated(s, want, &offset);
	s->lent = s->lent || ok;
	pthread_mutex_unlock(&s->lock);
	*bytes = ok ? want : 0;
	return ok ? s->arena.memory + offset : NULL;
}

size_t outrigger_extend(outrigger *s, size_t bytes)
{
	if (bytes > s->lent_size)
		bytes = s->lent_size;
	if (!or_grow_arena(s, &s->lent_ready, bytes, s->lent_size, false))
		return 0;
	return bytes;
}

void *outrigger_lend(outrigger *s, size_t *bytes)
{
	void *memory = outrigger_lend_pieces(s, bytes);
	if (memory == NULL || or_grow_arena(s, &s->lent_ready, *bytes, s->lent_size, true))
		return memory;
	*bytes = 0; /* the part stays allocated, so that no message uses it */
	return NULL;
}

struct outrigger_traffic outrigger_traffic(outrigger *s)
{
	pthread_mutex_lock(&s->lock);
	struct outrigger_traffic t = s->traffic;
	pthread_mutex_unlock(&s->lock);
	return t;
}

/* uses reports whether an open request still reads or writes a byte of the memory. A send whose
 * message was copied reads none. */
static bool uses(const struct or_op *op, uintptr_t at, uint64_t bytes)
{
	bool copied = !op->receives && !op->in_place && (!op->staged || op->offset == op->want);
	if (!op->open || op->done || copied)
		return false;
	for (int i = 0; i < op->segments; i++) {
		uintptr_t from = (uintptr_t)op->iov[i].iov_base;
		if (from < at + bytes && at < from + op->iov[i].iov_len)
			return true;
	}
	return false;
}

/* in_use reports whether any request uses the memory. It visits all requests, because memory is
 * freed far less often than it is sent. */
static bool in_use(const outrigger *s, const void *memory, uint64_t bytes)
{
	if (s->gone)
		return false; /* no sidecar uses it */
	for (uint32_t id = 0; id < s->ops.count; id++)
		if (uses(or_op_at(&s->ops, id), (uintptr_t)memory, bytes))
			return true;
	return false;
}

int outrigger_free(outrigger *s, void *memory)
{
	uintptr_t at = (uintptr_t)memory, base = (uintptr_t)s->arena.memory;
	if (at < base || at - base >= s->arena.size)
		return OUTRIGGER_INVALID;
	pthread_mutex_lock(&s->lock);
	uint64_t bytes = s->forked ? 0 : or_arena_size(&s->arena, at - base);
	int rc = bytes == 0 ? OUTRIGGER_INVALID : in_use(s, memory, bytes) ? OUTRIGGER_BUSY : OUTRIGGER_OK;
	if (rc == OUTRIGGER_OK && !or_arena_release(&s->arena, at - base))
		rc = OUTRIGGER_INVALID;
	pthread_mutex_unlock(&s->lock);
	return rc;
}
