/* Tests passive targets: every rank writes, adds to and reads the memory of the next rank,
 * which waits in a barrier, with lengths on both sides of every limit. An argument is the
 * greatest length to use. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 300000 };

static int rank, size;

static void want(int good, const char *what, int n)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s of %d numbers is wrong\n", rank, what, n);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

static int value(int of, int i) { return of * 1000003 + i; }

static void epoch(MPI_Win w, const int *out, int *in, int n, int kind)
{
	int next = (rank + 1) % size;
	MPI_Win_lock(kind == 1 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, next, 0, w);
	MPI_Put(out, n, MPI_INT, next, 5, n, MPI_INT, w);
	MPI_Win_flush(next, w);
	MPI_Accumulate(out, n, MPI_INT, next, 5, n, MPI_INT, MPI_SUM, w);
	MPI_Win_flush(next, w);
	MPI_Get(in, n, MPI_INT, next, 5, n, MPI_INT, w);
	MPI_Win_unlock(next, w);
}

int main(int argc, char **argv)
{
	int most = argc > 1 ? atoi(argv[1]) : MOST;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int *own = malloc((MOST + 10) * sizeof *own), *out = malloc(MOST * sizeof *out), *in = malloc(MOST * sizeof *in), *given;
	MPI_Win made, allocated, total;
	MPI_Win_create(own, (MOST + 10) * sizeof *own, sizeof *own, MPI_INFO_NULL, MPI_COMM_WORLD, &made);
	MPI_Win_allocate((MOST + 10) * sizeof *given, sizeof *given, MPI_INFO_NULL, MPI_COMM_WORLD, &given, &allocated);
	for (int i = 0; i < MOST; i++)
		out[i] = value(rank, i);
	static const int lengths[] = {1, 7, 100, 2047, 2049, 10000, 70000, MOST};
	for (size_t l = 0; l < sizeof lengths / sizeof *lengths && lengths[l] <= most; l++)
		for (int kind = 0; kind < 4; kind++) {
			int n = lengths[l], *memory = kind < 2 ? own : given;
			epoch(kind < 2 ? made : allocated, out, in, n, kind % 2);
			MPI_Barrier(MPI_COMM_WORLD);
			MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, kind < 2 ? made : allocated);
			for (int i = 0; i < n; i++) {
				want(memory[5 + i] == 2 * value((rank + size - 1) % size, i), "what was written and added", n);
				want(in[i] == 2 * value(rank, i), "what was read", n);
			}
			MPI_Win_unlock(rank, kind < 2 ? made : allocated);
			MPI_Barrier(MPI_COMM_WORLD);
		}
	/* All ranks add to one number. */
	long long *sum, one = 1, before;
	MPI_Win_allocate(sizeof *sum, sizeof *sum, MPI_INFO_NULL, MPI_COMM_WORLD, &sum, &total);
	*sum = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, total);
	for (int i = 0; i < 200; i++) {
		MPI_Fetch_and_op(&one, &before, MPI_LONG_LONG, 0, 0, MPI_SUM, total);
		MPI_Win_flush(0, total);
	}
	MPI_Win_unlock_all(total);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, total);
	want(rank != 0 || *sum == 200LL * size, "sum", 1);
	MPI_Win_unlock(rank, total);
	MPI_Win_free(&total);
	MPI_Win_free(&allocated);
	MPI_Win_free(&made);
	if (rank == 0)
		printf("windows of %d ranks are right\n", size);
	MPI_Finalize();
	return 0;
}
