/*
 * The rings of descriptors (LAYOUT §4). The Go client has them in api/shm/ring. There is no
 * shared tail: an entry is published if its first word is its position plus one, so that a
 * message moves one cache line between two cores.
 */
#ifndef OUTRIGGER_RING_H
#define OUTRIGGER_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "layout.h"

#define OR_RING_HEADER 64

/* A descriptor (LAYOUT §4.1). Only the ring reads and writes seq. */
struct or_descriptor {
	uint32_t seq;
	uint8_t op, flags, class, inline_length;
	uint32_t req;
	uint32_t peer;
	uint32_t context;
	uint32_t status;
	uint64_t tag;
	union {
		struct {
			uint64_t addr, len, aux, aux2;
		};
		uint8_t payload[OR_INLINE_MAX];
	};
};

_Static_assert(sizeof(struct or_descriptor) == OR_DESCRIPTOR_BYTES, "descriptor");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the contract is little-endian");

#define OR_WORDS (OR_DESCRIPTOR_BYTES / 8)

/* The memory of a ring. An entry is read as eight words of 64 bits; the lower half of the first
 * one is the sequence number. */
struct or_view {
	_Atomic uint64_t *head; /* only the consumer advances this */
	unsigned char *entries;
	uint64_t mask;
};

/* The writing end of a ring. */
struct or_producer {
	struct or_view view;
	uint64_t tail;      /* next position to write */
	uint64_t head_seen; /* the consumer's head as last read and checked */
};

/* The reading end of a ring. */
struct or_consumer {
	struct or_view view;
	_Atomic uint64_t pos; /* next position to read; only the reader that holds the session's lock writes it */
	uint64_t released; /* the head as last published */
};

/* or_view_init sets up a view of a ring of so many entries, a power of two. */
static inline void or_view_init(struct or_view *v, void *memory, uint32_t entries)
{
	v->head = (_Atomic uint64_t *)memory;
	v->entries = (unsigned char *)memory + OR_RING_HEADER;
	v->mask = entries - 1;
}

static inline unsigned char *or_entry(const struct or_view *v, uint64_t pos)
{
	return v->entries + (pos & v->mask) * OR_DESCRIPTOR_BYTES;
}

/* or_push publishes d. It returns 1, or 0 if the ring is full, or -1 if the head that the other
 * side has written is impossible. */
static inline int or_push(struct or_producer *p, const struct or_descriptor *d)
{
	if (p->tail - p->head_seen > p->view.mask) {
		/* Acquire: the consumer's reads of an entry are over before it is
		 * written again. */
		uint64_t head = atomic_load_explicit(p->view.head, memory_order_acquire);
		if (head > p->tail || head < p->head_seen)
			return -1;
		__atomic_store_n(&p->head_seen, head, __ATOMIC_RELAXED); /* or_has_room reads both without the lock */
		if (p->tail - head > p->view.mask)
			return 0;
	}
	unsigned char *e = or_entry(&p->view, p->tail);
	memcpy(e + 4, (const unsigned char *)d + 4, OR_DESCRIPTOR_BYTES - 4);
	__atomic_store_n(&p->tail, p->tail + 1, __ATOMIC_RELAXED);
	/* Sequentially consistent, which includes release: a reader that sees the word sees the entry
	 * and its payload, and the caller's read of the engine's flag is not reordered before the
	 * store (LAYOUT §8). */
	atomic_store_explicit((_Atomic uint32_t *)(void *)e, (uint32_t)p->tail, memory_order_seq_cst);
	return 1;
}

/* or_has_room reports whether n entries can be pushed now. It reads the shared head only if there is
 * no room by the last one read. An impossible head counts as room: or_push returns the error. It may
 * be called without the session's lock: it then answers for a moment of the call. */
static inline bool or_has_room(const struct or_producer *p, uint64_t n)
{
	uint64_t size = p->view.mask + 1, seen = __atomic_load_n(&p->head_seen, __ATOMIC_ACQUIRE);
	uint64_t tail = __atomic_load_n(&p->tail, __ATOMIC_RELAXED);
	if (tail - seen <= size - n)
		return true;
	uint64_t head = atomic_load_explicit(p->view.head, memory_order_acquire), used = tail - head;
	return used <= size - n || used > size || head < seen;
}

/* or_position returns the next position to read. */
static inline uint64_t or_position(const struct or_consumer *c)
{
	return atomic_load_explicit(&c->pos, memory_order_relaxed);
}

/* or_publish_head publishes the head, so that the producer may write the entries that were read. */
static inline void or_publish_head(struct or_consumer *c)
{
	uint64_t pos = or_position(c);
	if (c->released != pos) {
		c->released = pos;
		atomic_store_explicit(c->view.head, pos, memory_order_release);
	}
}

/* or_ready reports whether an entry can be read. It may be called without the session's lock: it
 * then answers for a moment of the call. */
static inline bool or_ready(const struct or_consumer *c)
{
	uint64_t pos = or_position(c);
	_Atomic uint32_t *seq = (_Atomic uint32_t *)(void *)or_entry(&c->view, pos);
	return atomic_load_explicit(seq, memory_order_seq_cst) == (uint32_t)(pos + 1);
}

/* or_pop copies the next entry into d and reports whether there was one. It reads each byte once,
 * because the other process may change the entry at any time. It publishes the head after each
 * half of the ring. */
static inline bool or_pop(struct or_consumer *c, struct or_descriptor *d)
{
	uint64_t pos = or_position(c);
	unsigned char *e = or_entry(&c->view, pos);
	if (atomic_load_explicit((_Atomic uint32_t *)(void *)e, memory_order_acquire) != (uint32_t)(pos + 1))
		return false;
	uint64_t words[OR_WORDS];
	for (int i = 0; i < OR_WORDS; i++)
		words[i] = atomic_load_explicit((_Atomic uint64_t *)(void *)e + i, memory_order_relaxed);
	memcpy(d, words, sizeof words);
	atomic_store_explicit(&c->pos, pos + 1, memory_order_relaxed); /* one writer: no locked instruction */
	if (pos + 1 - c->released > c->view.mask / 2)
		or_publish_head(c);
	return true;
}

#endif
