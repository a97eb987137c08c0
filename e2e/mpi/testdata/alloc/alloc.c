/*
 * Compares the allocator for MPI programs with a model, with private memory instead of
 * an arena: for all calls and threads, allocations keep their bytes and do not overlap,
 * and forks behave as with other allocators. The argument is the seed. The allocator's
 * functions have other names here, so that sanitizers keep theirs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap.h"
#include "placement.h"
#include "layout.h"

void *alloc_malloc(size_t);
void *alloc_calloc(size_t, size_t);
void *alloc_realloc(void *, size_t);
void *alloc_reallocarray(void *, size_t, size_t);
void alloc_free(void *);
int alloc_posix_memalign(void **, size_t, size_t);
void *alloc_aligned_alloc(size_t, size_t);
void *alloc_memalign(size_t, size_t);
void *alloc_valloc(size_t);
void *alloc_pvalloc(size_t);
size_t alloc_malloc_usable_size(void *);

#define LARGE 16384u /* the value that main sets in the environment */
#define ARENA (24u << 20)

static unsigned long seed;

#define must(good, ...) \
	do { \
		if (!(good)) { \
			fprintf(stderr, "alloc: seed %lu: line %d: ", seed, __LINE__); \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr); \
			abort(); \
		} \
	} while (0)

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* A heap is compared with a list of each page's owner. */
#define PAGES 300u

static void heap_round(uint64_t *state, struct heap *h, uint16_t owner[PAGES], uint16_t *names)
{
	uint32_t at = (uint32_t)(draw(state) % PAGES), n = 1 + (uint32_t)(draw(state) % (draw(state) % 4 == 0 ? PAGES : 12));
	void *piece = h->memory + (size_t)at * HEAP_PAGE;
	bool starts = owner[at] != 0 && (at == 0 || owner[at - 1] != owner[at]);
	uint32_t had = 0, room;
	while (starts && at + had < PAGES && owner[at + had] == owner[at])
		had++;
	for (room = had; starts && at + room < PAGES && owner[at + room] == 0;)
		room++;
	must(heap_size(h, piece) == (size_t)had * HEAP_PAGE, "page %u: size %zu, want %u pages", at, heap_size(h, piece), had);
	must(heap_size(h, (char *)piece + 8) == 0 && !heap_give(h, (char *)piece + 8), "a piece starts within a page");
	switch (draw(state) % 4) {
	case 0:
		must(heap_give(h, piece) == starts, "page %u given back, starts %d", at, starts);
		memset(owner + at, 0, had * sizeof *owner);
		return;
	case 1:
		must(heap_resize(h, piece, (size_t)n * HEAP_PAGE) == (starts && n <= room), "page %u of %u to %u pages, room %u", at, had, n, room);
		for (uint32_t i = 0, name = owner[at]; starts && n <= room && i < (n > had ? n : had); i++)
			owner[at + i] = i < n ? (uint16_t)name : 0;
		return;
	}
	size_t align = (size_t)HEAP_PAGE << draw(state) % 6, dirty;
	unsigned char *p = heap_take(h, (size_t)n * HEAP_PAGE - draw(state) % HEAP_PAGE, align, &dirty);
	if (p == NULL)
		return;
	must(((uintptr_t)p & (align - 1)) == 0, "alignment %zu: %p", align, (void *)p);
	at = (uint32_t)((size_t)(p - h->memory) / HEAP_PAGE);
	*names = *names == UINT16_MAX ? 1 : *names + 1;
	for (uint32_t i = 0; i < n; i++) {
		must(at + i < PAGES && owner[at + i] == 0, "page %u is given twice", at + i);
		owner[at + i] = *names;
		for (size_t b = dirty > (size_t)i * HEAP_PAGE ? dirty - (size_t)i * HEAP_PAGE : 0; b < HEAP_PAGE; b += 512)
			must(p[(size_t)i * HEAP_PAGE + b] == 0, "page %u is said to be zero", at + i);
		p[(size_t)i * HEAP_PAGE] = p[(size_t)i * HEAP_PAGE + 512] = 1;
	}
}

static void heap_model(uint64_t *state)
{
	struct heap h;
	uint16_t owner[PAGES] = {0}, names = 0;
	unsigned char *memory = aligned_alloc((size_t)HEAP_PAGE << 5, 320 * HEAP_PAGE);
	struct heap_page *list = calloc(1, heap_bytes((size_t)PAGES * HEAP_PAGE));
	memset(memory, 0, (size_t)PAGES * HEAP_PAGE);
	heap_init(&h, memory, (size_t)PAGES * HEAP_PAGE, list);
	for (int i = 0; i < 20000; i++) {
		/* Neighbours must have different names, otherwise the model sees one piece. */
		heap_round(state, &h, owner, &names);
		uint32_t used = 0;
		for (uint32_t p = 0; p < PAGES; p++)
			used += owner[p] != 0;
		must(h.taken == used, "%u pages are taken, want %u", h.taken, used);
	}
	size_t bytes, dirty;
	for (void *p = heap_next(&h, NULL, &bytes); p != NULL; p = heap_next(&h, NULL, &bytes))
		must(heap_give(&h, p), "a piece that heap_next names");
	must(h.taken == 0 && heap_take(&h, (size_t)PAGES * HEAP_PAGE, 1, &dirty) == memory, "an empty heap is not one piece");
	free(list);
	free(memory);
}

/* piece is an allocation of a thread, and its contents. Other threads free some pieces. */
struct piece {
	unsigned char *p;
	size_t bytes;
	unsigned char mark;
};

#define SLOTS 64
static struct piece shelf[SLOTS]; /* pieces that threads exchange */
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;

static void fill(struct piece *x, unsigned char mark)
{
	x->mark = mark;
	if (x->bytes > 0) {
		memset(x->p, mark, x->bytes < 64 ? x->bytes : 64);
		x->p[x->bytes - 1] = x->p[x->bytes / 2] = mark;
	}
}

static void check(const struct piece *x, size_t bytes)
{
	for (size_t i = 0; i < bytes && i < 64; i++)
		must(x->p[i] == x->mark, "byte %zu of %zu is %u, want %u", i, x->bytes, x->p[i], x->mark);
	if (bytes >= x->bytes && bytes > 0)
		must(x->p[x->bytes - 1] == x->mark && x->p[x->bytes / 2] == x->mark, "the end of %zu bytes", x->bytes);
}

static size_t size(uint64_t *state)
{
	static const uint64_t most[] = {64, LARGE, 2 * LARGE, 40 * LARGE};
	return 1 + draw(state) % most[draw(state) % 4]; /* TSan reports another size for allocations of 0 bytes */
}

static void allocate(uint64_t *state, struct piece *x)
{
	size_t align = (size_t)8 << draw(state) % 14, n = size(state);
	void *p = NULL;
	bool zero = false;
	switch (draw(state) % 8) {
	case 0: p = alloc_calloc(n / 8 + 1, 8), n = (n / 8 + 1) * 8, zero = true, align = 8; break;
	case 1: must(alloc_posix_memalign(&p, align, n) == 0, "posix_memalign"); break;
	case 2: n = (n + align - 1) & ~(align - 1), p = alloc_aligned_alloc(align, n); break;
	case 3: p = alloc_memalign(align, n); break;
	case 4: p = draw(state) % 2 ? alloc_valloc(n) : alloc_pvalloc(n), align = 4096; break;
	case 5: p = alloc_realloc(NULL, n), align = 8; break;
	case 6: p = alloc_reallocarray(NULL, n / 4 + 1, 4), n = (n / 4 + 1) * 4, align = 4; break;
	default: p = alloc_malloc(n), align = 8;
	}
	must(p != NULL && ((uintptr_t)p & (align - 1)) == 0, "%zu bytes aligned to %zu: %p", n, align, p);
	must(alloc_malloc_usable_size(p) >= n, "usable size %zu of %zu", alloc_malloc_usable_size(p), n);
	must(n >= LARGE || !in_arena(p), "%zu bytes are in the arena", n);
	for (size_t i = 0; zero && i < n; i++)
		must(((unsigned char *)p)[i] == 0, "byte %zu of calloc's %zu is not zero", i, n);
	*x = (struct piece){.p = p, .bytes = n};
	fill(x, (unsigned char)(1 + draw(state) % 255));
}

static void reallocate(uint64_t *state, struct piece *x)
{
	size_t n = size(state) + 1, kept = n < x->bytes ? n : x->bytes;
	unsigned char *p = alloc_realloc(x->p, n);
	must(p != NULL, "realloc to %zu", n);
	struct piece now = {.p = p, .bytes = x->bytes, .mark = x->mark};
	check(&now, kept);
	x->p = p;
	x->bytes = n;
	fill(x, (unsigned char)(1 + draw(state) % 255));
}

static void *thread(void *arg)
{
	uint64_t state = (uint64_t)(uintptr_t)arg;
	struct piece mine[8] = {{0}};
	for (int i = 0; i < 8000; i++) {
		struct piece *x = &mine[draw(&state) % 8];
		if (x->p == NULL) {
			allocate(&state, x);
			continue;
		}
		check(x, x->bytes);
		if (draw(&state) % 3 == 0) {
			reallocate(&state, x);
		} else if (draw(&state) % 2 == 0) {
			alloc_free(x->p);
			*x = (struct piece){0};
		} else { /* for another thread to check and free */
			pthread_mutex_lock(&shelf_lock);
			struct piece *s = &shelf[draw(&state) % SLOTS], other = *s;
			*s = *x;
			*x = other;
			pthread_mutex_unlock(&shelf_lock);
		}
	}
	for (int i = 0; i < 8; i++)
		alloc_free(mine[i].p);
	return NULL;
}

/* forks checks that a child has its parent's allocations, and that its changes are private. */
static void forks(uint64_t *state)
{
	struct piece x[12];
	for (int i = 0; i < 12; i++)
		allocate(state, &x[i]);
	for (int round = 0; round < 20; round++) {
		pid_t child = fork();
		must(child >= 0, "fork: %s", strerror(errno));
		if (child == 0) {
			for (int i = 0; i < 12; i++) {
				check(&x[i], x[i].bytes);
				fill(&x[i], 0xaa);
				if (i % 3 == 0)
					reallocate(state, &x[i]);
				else
					alloc_free(x[i].p);
			}
			struct piece more;
			allocate(state, &more);
			must(!in_arena(more.p), "a child allocates in the arena");
			pid_t grandchild = fork();
			if (grandchild == 0)
				_exit(7);
			int status;
			must(waitpid(grandchild, &status, 0) == grandchild && WEXITSTATUS(status) == 7, "a grandchild");
			_exit(5);
		}
		for (int i = 0; i < 12; i++)
			reallocate(state, &x[i]); /* the child does not see the change */
		int status;
		must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5, "a child ended with status %x", status);
		for (int i = 0; i < 12; i++)
			check(&x[i], x[i].bytes);
	}
	for (int i = 0; i < 12; i++)
		alloc_free(x[i].p);
}

/* refusals checks that libc still reports invalid arguments. */
static void refusals(void)
{
	void *p = NULL, *volatile gone;
	volatile size_t huge = SIZE_MAX / 2 + 7;
	must(alloc_posix_memalign(&p, 24, LARGE) == EINVAL && alloc_posix_memalign(&p, 4, LARGE) == EINVAL, "a bad alignment is taken");
	gone = alloc_calloc(huge, 4);
	must(gone == NULL && alloc_reallocarray(NULL, huge, 4) == NULL, "more than there is");
	p = alloc_malloc(LARGE);
	must(in_arena(p) && alloc_realloc(p, 0) == NULL, "realloc to nothing");
	alloc_free(NULL);
	must(alloc_malloc_usable_size(NULL) == 0, "the size of nothing");
}

static void full(void)
{
	static void *list[ARENA / LARGE + 8];
	size_t n = 0, inside = 0;
	for (; n < ARENA / LARGE + 8; n++) {
		list[n] = alloc_malloc(LARGE);
		must(list[n] != NULL, "a full arena is no reason to fail");
		inside += in_arena(list[n]);
	}
	must(inside > 0 && inside == ARENA / LARGE, "%zu pieces in an arena for %u", inside, ARENA / LARGE);
	while (n > 0)
		alloc_free(list[--n]);
}

/* The arena is allocated in pieces: the rest is inaccessible, so that an access ends the program. */
static unsigned char *arena;
static size_t extended; /* guarded by the allocator's lock, with which extend is called */
static atomic_bool refuses;

#define STEP ((size_t)16 * HEAP_PAGE)

static size_t extend(void *arg, size_t bytes)
{
	must(arg == &extended && bytes > extended && bytes <= ARENA, "extended to %zu bytes from %zu", bytes, extended);
	if (refuses)
		return 0;
	extended = (bytes + STEP - 1) / STEP * STEP;
	if (extended > ARENA)
		extended = ARENA;
	must(mprotect(arena, extended, PROT_READ | PROT_WRITE) == 0, "mprotect");
	return extended;
}

/* shortage checks that allocations come from libc if the arena cannot grow, also ones that grow. */
static void shortage(void)
{
	void *p = alloc_malloc(LARGE), *list[ARENA / LARGE];
	must(in_arena(p) && extended < ARENA, "the first piece is %zu bytes", extended);
	refuses = true;
	size_t n = 0, most = extended;
	do
		list[n] = alloc_malloc(LARGE);
	while (in_arena(list[n++]));
	must((n + 1) * LARGE >= most && extended == most, "%zu pieces in %zu bytes", n, most);
	alloc_free(list[--n]);
	must((p = alloc_realloc(p, 4 * LARGE)) != NULL && !in_arena(p), "grown where no memory is");
	refuses = false;
	p = alloc_realloc(p, 5 * LARGE);
	must(in_arena(p) && extended > most, "placed when there is memory again");
	alloc_free(p);
	while (n > 0)
		alloc_free(list[--n]);
}

static void wrong(void (*what)(void *))
{
	pid_t child = fork();
	if (child == 0) {
		void *p = alloc_malloc(4 * LARGE);
		if (!in_arena(p)) /* the child of a fork does not use the arena: use a piece of the parent's */
			p = shelf[0].p;
		(void)!freopen("/dev/null", "w", stderr);
		what(p);
		_exit(0);
	}
	int status;
	must(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "a wrong free ended with status %x", status);
}

static void twice(void *p) { alloc_free(p), alloc_free(p); }
static void within(void *p) { alloc_free((char *)p + HEAP_PAGE); }

int main(int argc, char **argv)
{
	enum { THREADS = 4 };
	seed = argc > 1 ? strtoul(argv[1], NULL, 10) : (unsigned long)getpid();
	uint64_t state = seed;
	void *before = alloc_malloc(4 * LARGE);
	must(before != NULL && !in_arena(before), "before there is an arena");
	heap_model(&state);
	arena = mmap(NULL, ARENA, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(arena != MAP_FAILED && !outrigger_alloc_adopt_pieces(arena, ARENA, extend, &extended), "adopted without being asked");
	setenv(OR_NAME_ENV_MPI_ARENA, "16384", 1);
	must(outrigger_alloc_adopt_pieces(arena, ARENA, extend, &extended) && !outrigger_alloc_adopt_pieces(arena, ARENA, extend, &extended), "adopt, once");
	shortage();
	before = alloc_realloc(before, 5 * LARGE);
	must(in_arena(before), "grown in the arena");
	alloc_free(before);
	refusals();
	full();
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], NULL, thread, (void *)(uintptr_t)draw(&state)) == 0, "a thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < SLOTS; i++)
		if (shelf[i].p != NULL) {
			check(&shelf[i], shelf[i].bytes);
			alloc_free(shelf[i].p);
		}
	full(); /* no memory was lost */
	forks(&state);
	shelf[0].p = alloc_malloc(4 * LARGE);
	wrong(twice);
	wrong(within);
	void *last = alloc_malloc(LARGE);
	must(in_arena(last) && outrigger_alloc_adopt_pieces(NULL, 0, NULL, NULL) && !in_arena(alloc_malloc(LARGE)), "the session's end");
	alloc_free(last);
	printf("alloc: content with seed %lu\n", seed);
	return 0;
}
