/* Tests MPI_THREAD_MULTIPLE: every thread communicates with the same thread of the next rank. With an
 * argument only one thread does. Prints whether Open MPI yields between its polls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 300 };

static int rank, size;

static void *talk(void *arg)
{
	int me = (int)(size_t)arg, n = me % 2 ? 20000 : 5;
	int *out = calloc((size_t)n, sizeof *out), *in = calloc((size_t)n, sizeof *in);
	for (int i = 0; i < ROUNDS; i++) {
		out[0] = rank * 100000 + me * 1000 + i;
		out[n - 1] = out[0] + 7;
		MPI_Sendrecv(out, n, MPI_INT, (rank + 1) % size, me, in, n, MPI_INT, (rank + size - 1) % size, me, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		int want = (rank + size - 1) % size * 100000 + me * 1000 + i;
		if (in[0] != want + (n == 1 ? 7 : 0) || in[n - 1] != want + 7) {
			fprintf(stderr, "rank %d thread %d round %d: %d and %d, want %d\n", rank, me, i, in[0], in[n - 1], want);
			MPI_Abort(MPI_COMM_WORLD, 9);
		}
	}
	free(out);
	free(in);
	return NULL;
}

int main(int argc, char **argv)
{
	int level;
	pthread_t t[THREADS];
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (level != MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "rank %d: thread level %d\n", rank, level);
		MPI_Abort(MPI_COMM_WORLD, 9);
	}
	int threads = argc > 1 ? 1 : THREADS;
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, talk, (void *)(size_t)i);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	const bool *yields = dlsym(RTLD_DEFAULT, "opal_progress_yield_when_idle");
	printf("rank %d: the MPI %s\n", rank, yields == NULL ? "is no Open MPI" : *yields ? "yields" : "does not yield");
	if (rank == 0)
		printf("%d threads of %d ranks have talked\n", threads, size);
	MPI_Finalize();
	return 0;
}
