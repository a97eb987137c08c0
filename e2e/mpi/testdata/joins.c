/* Checks that MPI_Comm_accept and MPI_Comm_connect, which are not supported, return an error in every
 * rank, and that the ranks can continue. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	char port[MPI_MAX_PORT_NAME] = "nowhere";
	MPI_Comm other;
	int rank, size, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other) == MPI_SUCCESS ||
	    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other) == MPI_SUCCESS) {
		fprintf(stderr, "rank %d has joined another job\n", rank);
		return 1;
	}
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != size * (size - 1) / 2)
		return 1;
	if (rank == 0)
		printf("joining is refused\n");
	MPI_Finalize();
	return 0;
}
