/* Prints the thread level that an MPI provides: levels init|LEVEL. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	int given, asked, rank;
	if (argc != 2)
		return 2;
	if (strcmp(argv[1], "init") == 0) {
		MPI_Init(&argc, &argv);
		MPI_Query_thread(&given);
	} else {
		MPI_Init_thread(&argc, &argv, atoi(argv[1]), &given);
	}
	MPI_Query_thread(&asked);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	const char *left = getenv("OMPI_MPI_THREAD_LEVEL");
	printf("rank %d: level %d, %d when asked, its programs get %s\n", rank, given, asked, left == NULL ? "none" : left);
	MPI_Finalize();
	return 0;
}
