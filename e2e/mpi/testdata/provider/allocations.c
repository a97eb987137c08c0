/* Tests that requests allocate no memory once as many requests have been open before. */
#include "provider.h"

#ifdef __SANITIZE_ADDRESS__ /* the sanitizer replaces the allocator */
static unsigned long taken;
#else
static _Atomic unsigned long taken;

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t each);
extern void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
	taken++;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
	taken++;
	return __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
	taken++;
	return __libc_realloc(p, n);
}
#endif

enum { SMALL = 100, LONG = 20000, MANY = 300 };

static unsigned char out[LONG], in[LONG], region[LONG];
static int here, there;

/* many posts more receives than are open at any later time. */
static void many(struct side *s)
{
	static int each[MANY];
	for (int i = 0; i < MANY; i++)
		must(fi_trecv(s->ep, in, SMALL, NULL, s->partner, 99, 0, &each[i]));
	for (int i = 0; i < MANY; i++)
		must(fi_cancel(&s->ep->fid, &each[i]));
	for (int i = 0; i < MANY; i++)
		fails(s->rx, &each[i]);
}

static void one_of_each(struct side *s, struct door d)
{
	for (size_t n = SMALL; n <= LONG; n *= LONG / SMALL) {
		must(fi_trecv(s->ep, in, n, NULL, s->partner, 4, 0, &there));
		must(fi_tsend(s->ep, out, n, NULL, s->partner, 4, &here));
		done(s->tx, &here);
		done(s->rx, &there);
		must(fi_recv(s->ep, in, n, NULL, s->partner, &there));
		must(fi_send(s->ep, out, n, NULL, s->partner, &here));
		done(s->tx, &here);
		done(s->rx, &there);
		must(fi_write(s->ep, out, n, NULL, s->partner, d.start, d.key, &here));
		done(s->tx, &here);
		must(fi_read(s->ep, in, n, NULL, s->partner, d.start, d.key, &here));
		done(s->tx, &here);
	}
	meet(s);
}

void allocations(struct side *s)
{
	scenario = "allocations";
	struct fid_mr *mr = expose(s, region, sizeof region, FI_REMOTE_READ | FI_REMOTE_WRITE, 5);
	struct door d = show(s, mr, region);
	many(s);
	for (int i = 0; i < 10; i++)
		one_of_each(s, d);
	unsigned long before = taken;
	for (int i = 0; i < 50; i++)
		one_of_each(s, d);
	want(taken == before, "%lu allocations in 50 rounds", taken - before);
	meet(s);
	must(fi_close(&mr->fid));
}
