/* Calls only MPI_Init and MPI_Barrier, and waits until a file exists. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Barrier(MPI_COMM_WORLD);
	printf("held\n");
	fflush(stdout);
	while (access(argv[1], F_OK) != 0)
		usleep(10000);
	MPI_Finalize();
	return 0;
}
