/* Checks that MPI_Comm_spawn, which is not supported, returns an error, and that the ranks can
 * continue. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	MPI_Comm others;
	char text[MPI_MAX_ERROR_STRING];
	int code, length, rank, size, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	code = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others, MPI_ERRCODES_IGNORE);
	if (code == MPI_SUCCESS) {
		fprintf(stderr, "rank %d has spawned\n", rank);
		return 1;
	}
	MPI_Error_string(code, text, &length);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != size * (size - 1) / 2)
		return 1;
	if (rank == 0)
		printf("spawn is refused: %s\n", text);
	MPI_Finalize();
	return 0;
}
