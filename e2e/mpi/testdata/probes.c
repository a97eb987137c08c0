/* Tests whether a receive gets the message that a probe has found (MPI-4 3.8.1), if one of two
 * messages is the rank's own. Prints how often it does not, and exits with 0 in any case. */
#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 2000, TAG = 5 };

int main(int argc, char **argv)
{
	int rank, size, wrong = 0, all = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Request sends[2];
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Isend(&rank, 1, MPI_INT, rank, TAG, MPI_COMM_WORLD, &sends[0]);
		MPI_Isend(&rank, 1, MPI_INT, (rank + 1) % size, TAG, MPI_COMM_WORLD, &sends[1]);
		for (int k = 0; k < 2; k++) {
			MPI_Status found, got;
			int from;
			MPI_Probe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &found);
			MPI_Recv(&from, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &got);
			wrong += found.MPI_SOURCE != got.MPI_SOURCE;
		}
		MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
	}
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d of %d receives did not get what the probe had found\n", all, 2 * ROUNDS * size);
	MPI_Finalize();
	return 0;
}
