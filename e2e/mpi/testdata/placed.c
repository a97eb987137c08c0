/*
 * An MPI program without any knowledge of Outrigger, which tests allocations: buffers
 * that are allocated before MPI_Init or after it, grow, shrink, are aligned, are
 * passed between threads, and exist after MPI_Finalize; and forks, whose children
 * write to the buffers, call exit, or execute another program. It checks every byte.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE (1u << 20)

static int rank, size;

static void must(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

static unsigned char byte(int from, size_t n, size_t at) { return (unsigned char)(at * 7 + at / 253 + n + (size_t)from * 31); }

static void fill(unsigned char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		b[i] = byte(rank, n, i);
}

static void check(const unsigned char *b, size_t n, int from)
{
	for (size_t i = 0; i < n; i++)
		must(b[i] == byte(from, n, i), "a byte of a buffer");
}

/* ring sends n bytes to the next rank, and checks the bytes of the previous one. */
static void ring(unsigned char *out, unsigned char *in, size_t n)
{
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	fill(out, n);
	memset(in, 0, n);
	MPI_Sendrecv(out, (int)n, MPI_BYTE, to, 3, in, (int)n, MPI_BYTE, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check(in, n, from);
	check(out, n, rank);
}

/* resized changes the address and the size of a buffer between messages. */
static unsigned char *resized(unsigned char *old)
{
	static const size_t sizes[] = {100, 3 * LARGE, 1000, LARGE, 2 * LARGE, 5000000, 64};
	unsigned char *b = old, *in = NULL;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		b = realloc(b, sizes[i]);
		in = realloc(in, sizes[i]);
		must(b != NULL && in != NULL, "no memory");
		ring(b, in, sizes[i]);
	}
	free(in);
	return b;
}

static void aligned(void)
{
	for (size_t align = 64; align <= 4 * LARGE; align *= 4) {
		void *out = aligned_alloc(align, 4 * LARGE), *in = NULL;
		must(out != NULL && posix_memalign(&in, align, LARGE) == 0, "no memory");
		must((size_t)out % align == 0 && (size_t)in % align == 0, "an alignment");
		ring(out, in, LARGE);
		unsigned char *zero = calloc(LARGE, 1);
		for (size_t i = 0; i < LARGE; i++)
			must(zero[i] == 0, "calloc's byte is not zero");
		memset(zero, 1, LARGE);
		free(zero);
		free(in);
		free(out);
	}
}

static void *releases(void *p)
{
	free(p);
	return malloc(2 * LARGE);
}

/* threads uses a buffer that another thread frees, and one that it has allocated. */
static void threads(void)
{
	for (int i = 0; i < 20; i++) {
		unsigned char *out = malloc(LARGE), *in = malloc(LARGE);
		pthread_t t;
		void *more;
		ring(out, in, LARGE);
		must(pthread_create(&t, NULL, releases, out) == 0 && pthread_join(t, &more) == 0 && more != NULL, "a thread");
		ring(more, in, LARGE);
		free(more);
		free(in);
	}
}

static void ends_well(pid_t child)
{
	int status;
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 40, "a child has failed");
}

/* forks has children write to their parent's buffers, while it receives or before. */
static void forks(void)
{
	unsigned char *out = malloc(LARGE), *in = malloc(LARGE), *kept = malloc(LARGE);
	fill(kept, LARGE);
	for (int i = 0; i < 6; i++) {
		pid_t child = fork();
		must(child >= 0, "fork");
		if (child == 0) {
			check(kept, LARGE, rank);
			memset(kept, 0xee, LARGE);
			memset(in, 0xee, LARGE);
			free(out);
			out = realloc(malloc(2 * LARGE), 3 * LARGE);
			memset(out, 0xee, 3 * LARGE);
			if (i % 2 == 0)
				exit(40); /* with the destructors of all libraries */
			execl("/bin/sh", "sh", "-c", "exit 40", (char *)NULL);
			_exit(1);
		}
		if (i < 2)
			ends_well(child); /* the rank's session is unaffected */
		for (int k = 0; k < 5; k++)
			ring(out, in, LARGE);
		if (i >= 2)
			ends_well(child);
		check(kept, LARGE, rank);
	}
	must(system("exit 3") == 3 << 8, "system");
	free(out);
	free(in);
	free(kept);
}

int main(int argc, char **argv)
{
	unsigned char *early = malloc(2 * LARGE);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	unsigned char *in = malloc(2 * LARGE);
	ring(early, in, 2 * LARGE);
	early = resized(early);
	aligned();
	threads();
	forks();
	/* More memory than an arena of the default size. */
	enum { MANY = 80 };
	static unsigned char *many[MANY];
	for (int i = 0; i < MANY; i++) {
		many[i] = malloc(4 * LARGE);
		must(many[i] != NULL, "no memory");
		ring(many[i], in, i % 8 == 0 ? LARGE : 1000);
		fill(many[i], LARGE / 8);
	}
	fill(in, 2 * LARGE);
	MPI_Finalize();
	for (int i = 0; i < MANY; i++) {
		check(many[i], LARGE / 8, rank);
		free(many[i]);
	}
	check(in, 2 * LARGE, rank);
	in = realloc(in, 8 * LARGE);
	memset(in, 5, 8 * LARGE);
	free(in);
	free(early);
	if (rank == 0)
		printf("placed over %d ranks\n", size);
	return 0;
}
