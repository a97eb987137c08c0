/*
 * Checks that MPI_COMM_TYPE_SHARED gives each rank the ranks of its pod, in order, and that their
 * shared window is the same memory. The argument is the number of ranks of a pod.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, local, locals, each = argc > 1 ? atoi(argv[1]) : 1, unit, wrong = 0, all = 0;
	MPI_Comm pod;
	MPI_Win win;
	MPI_Aint bytes;
	int *own, *first;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &pod);
	MPI_Comm_rank(pod, &local);
	MPI_Comm_size(pod, &locals);
	if (local != rank % each || locals != each) {
		printf("wrong: rank %d is %d of %d in its pod\n", rank, local, locals);
		wrong++;
	}
	MPI_Win_allocate_shared(sizeof *own, sizeof *own, MPI_INFO_NULL, pod, &own, &win);
	MPI_Win_fence(0, win);
	*own = 100 + rank;
	MPI_Win_fence(0, win);
	MPI_Win_shared_query(win, 0, &bytes, &unit, &first);
	if (*first != 100 + rank - local) {
		printf("wrong: rank %d sees %d of the first rank of its pod\n", rank, *first);
		wrong++;
	}
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("split: %d wrong\n", all);
	MPI_Finalize();
	return all != 0;
}
