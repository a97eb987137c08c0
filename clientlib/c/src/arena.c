/* The arena's allocator (first fit over spans sorted by address), and the stack and queue
 * that the other files use. The Go client has it in clientlib/arena.go. */
#include <stdlib.h>

#include "session.h"

/* or_stack_push adds v. It fails only if the list must grow and there is no memory. */
int or_stack_push(struct or_stack *s, uint64_t v)
{
	if (s->count == s->room) {
		size_t room = s->room == 0 ? 64 : 2 * s->room;
		uint64_t *list = realloc(s->list, room * sizeof *list);
		if (list == NULL)
			return -1;
		s->list = list;
		s->room = room;
	}
	s->list[s->count++] = v;
	return 0;
}

bool or_stack_pop(struct or_stack *s, uint64_t *v)
{
	if (s->count == 0)
		return false;
	*v = s->list[--s->count];
	return true;
}

/* or_queue_push appends a request number; a full ring is copied into one of twice its size. */
int or_queue_push(struct or_queue *q, uint32_t id)
{
	if (q->count == q->room) {
		size_t room = q->room == 0 ? 64 : 2 * q->room;
		uint32_t *list = malloc(room * sizeof *list);
		if (list == NULL)
			return -1;
		for (size_t i = 0; i < q->count; i++)
			list[i] = q->list[(q->head + i) & (q->room - 1)];
		free(q->list);
		q->list = list;
		q->head = 0;
		q->room = room;
	}
	q->list[(q->head + q->count) & (q->room - 1)] = id;
	or_set(q->count, q->count + 1);
	return 0;
}

bool or_queue_first(const struct or_queue *q, uint32_t *id)
{
	if (q->count == 0)
		return false;
	*id = q->list[q->head];
	return true;
}

bool or_queue_pop(struct or_queue *q, uint32_t *id)
{
	if (!or_queue_first(q, id))
		return false;
	q->head = (q->head + 1) & (q->room - 1);
	or_set(q->count, q->count - 1);
	return true;
}

/* find returns the index of the first span at or after offset. */
static size_t find(const struct or_spans *s, uint64_t offset)
{
	size_t low = 0, high = s->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (s->list[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ensure allocates room for one more span, so that insert cannot fail. */
static bool ensure(struct or_spans *s)
{
	if (s->count < s->room)
		return true;
	size_t room = s->room == 0 ? 64 : 2 * s->room;
	struct or_span *list = realloc(s->list, room * sizeof *list);
	if (list == NULL)
		return false;
	s->list = list;
	s->room = room;
	return true;
}

static void insert(struct or_spans *s, size_t at, struct or_span v)
{
	memmove(s->list + at + 1, s->list + at, (s->count - at) * sizeof v);
	s->list[at] = v;
	s->count++;
}

/* take_out removes the span at an index. */
static void take_out(struct or_spans *s, size_t at)
{
	s->count--;
	memmove(s->list + at, s->list + at + 1, (s->count - at) * sizeof *s->list);
}

/* merge joins the span at an index with the next one if they touch. */
static void merge(struct or_spans *s, size_t at)
{
	if (at + 1 < s->count && s->list[at].offset + s->list[at].size == s->list[at + 1].offset) {
		s->list[at].size += s->list[at + 1].size;
		take_out(s, at + 1);
	}
}

int or_arena_init(struct or_arena *a, unsigned char *memory, uint64_t size)
{
	a->memory = memory;
	a->size = a->ready = size;
	if (!ensure(&a->spare))
		return -1;
	if (size > 0)
		insert(&a->spare, 0, (struct or_span){0, size});
	return 0;
}

void or_arena_free(struct or_arena *a)
{
	free(a->spare.list);
	free(a->used.list);
}

/* or_arena_alloc allocates bytes, rounded up to the alignment, in the first free span that is
 * large enough. If the sidecar has not allocated that part of the arena yet, it is asked to. */
bool or_arena_alloc(struct or_arena *a, uint64_t bytes, bool insist, uint64_t *offset)
{
	if (bytes > a->size || !ensure(&a->used))
		return false;
	uint64_t want = (bytes + OR_ARENA_ALIGN - 1) & ~(uint64_t)(OR_ARENA_ALIGN - 1);
	if (want == 0)
		want = OR_ARENA_ALIGN;
	for (size_t i = 0; i < a->spare.count; i++) {
		struct or_span *v = &a->spare.list[i];
		if (v->size < want)
			continue;
		if (v->offset + want > a->ready && !or_grow_arena(a->owner, &a->ready, v->offset + want, a->size, insist))
			return false;
		*offset = v->offset;
		v->offset += want;
		v->size -= want;
		if (v->size == 0)
			take_out(&a->spare, i);
		insert(&a->used, find(&a->used, *offset), (struct or_span){*offset, want});
		return true;
	}
	return false;
}

uint64_t or_arena_size(const struct or_arena *a, uint64_t offset)
{
	size_t at = find(&a->used, offset);
	return at < a->used.count && a->used.list[at].offset == offset ? a->used.list[at].size : 0;
}

/* or_arena_release frees the allocation at offset and merges it with its free neighbours. false:
 * no allocation starts there. */
bool or_arena_release(struct or_arena *a, uint64_t offset)
{
	size_t at = find(&a->used, offset);
	if (at == a->used.count || a->used.list[at].offset != offset || !ensure(&a->spare))
		return false;
	struct or_span v = a->used.list[at];
	take_out(&a->used, at);
	at = find(&a->spare, offset);
	insert(&a->spare, at, v);
	merge(&a->spare, at);
	if (at > 0)
		merge(&a->spare, at - 1);
	return true;
}
