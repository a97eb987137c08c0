/* Accesses that a program repeats, with the same results: an MPI that waits for the lock of a window tries
 * to acquire it again and again. Such accesses are no sign that the program goes on (LAYOUT §8.1);
 * all others are. The provider's lock is held. */
#include <string.h>

#include "access.h"

/* The last accesses. A trial of a lock consists of up to three: it is counted in a first word,
 * fails at a second one, and is revoked at the first one. */
#define KEPT 8u
static struct kept {
	uint64_t trial; /* hash of the access and its result */
	uint64_t word;  /* hash of the place that was accessed */
	bool repeated;  /* an earlier access had the same result */
} kept[KEPT];
static unsigned next;

/* hash is FNV-1a. */
static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *b = data;
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Only atomics of one small element are compared. Reads and writes carry data. */
static bool is_small(const struct access_call *w)
{
	return w->request.access >= ACCESS_ATOMIC && w->request.length <= REPEAT_BYTES && w->ins <= 1 && w->outs <= 2;
}

/* trial_begin notes the begin of an access to memory of a rank. */
void trial_begin(struct trial *t, const struct access_call *w, uint32_t rank)
{
	const struct request *r = &w->request;
	*t = (struct trial){.small = is_small(w)};
	if (!t->small) {
		outrigger_acts(client());
		return;
	}
	struct {
		uint64_t key, addr;
		uint32_t rank, kind;
	} place = {r->key, r->addr, rank, 0};
	t->word = hash(UINT64_C(0xcbf29ce484222325), &place, sizeof place);
	uint32_t kind = (uint32_t)r->access << 16 | (uint32_t)r->type << 8 | r->op;
	t->call = hash(t->word, &kind, sizeof kind);
	for (size_t i = 0; i < w->outs; i++)
		t->call = hash(t->call, w->out[i].iov_base, w->out[i].iov_len);
	t->length = w->ins == 1 && r->access != ACCESS_ATOMIC ? r->length : 0;
	t->result = t->length > 0 ? w->in[0].iov_base : NULL;
	if (r->access == ACCESS_COMPARE && w->outs == 2 && w->out[1].iov_len == r->length)
		memcpy(t->compared, w->out[1].iov_base, r->length);
	t->compares = r->access == ACCESS_COMPARE;
}

/* had_before reports whether an access had the same result lately. An access without a result has no
 * effect if it revokes one that is repeated. */
static bool had_before(const struct trial *t, uint64_t trial)
{
	for (unsigned i = 0; i < KEPT; i++)
		if (t->length > 0 ? kept[i].trial == trial : kept[i].repeated && kept[i].word == t->word)
			return true;
	return false;
}

/* trial_end notes the end of an access. A swap that has taken place is no repetition. */
void trial_end(const struct trial *t)
{
	if (!t->small) {
		outrigger_acts(client());
		return;
	}
	uint64_t trial = hash(t->call, t->result, t->length);
	bool swapped = t->compares && memcmp(t->compared, t->result, t->length) == 0;
	bool repeated = !swapped && had_before(t, trial);
	if (!repeated)
		outrigger_acts(client());
	kept[next++ % KEPT] = (struct kept){trial, t->word, repeated};
}
