/* Rank 1 ends in the way that the argument names, while the others wait for it. */
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* leave_child leaves a child that has all descriptors: a raw clone runs no library's handlers. */
static void leave_child(void)
{
	if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != 0)
		return;
	setsid();
	sleep(60);
	_exit(0);
}

/* go_on has the other ranks work without rank 1, which has finished and then crashes. Some MPIs
 * make it wait for the others in MPI_Finalize. */
static void go_on(int rank)
{
	MPI_Comm others;
	MPI_Comm_split(MPI_COMM_WORLD, rank == 1, rank, &others);
	for (int i = 0; rank != 1 && i < 100; i++) {
		MPI_Barrier(others);
		usleep(10000);
	}
	MPI_Finalize();
	usleep(100000);
	if (rank == 1)
		raise(SIGKILL);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	double mine = 1, sum;
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 1 && strcmp(how, "abort") == 0) {
		MPI_Abort(MPI_COMM_WORLD, argc > 2 ? atoi(argv[2]) : 7);
		for (;;) /* if MPI_Abort returns, the launcher must end this process */
			;
	}
	if (rank == 1 && strcmp(how, "exit") == 0)
		exit(0);
	if (rank == 1 && strcmp(how, "child") == 0) {
		leave_child();
		_exit(0);
	}
	if (strcmp(how, "late") == 0) {
		go_on(rank);
		return 0;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	printf("rank %d has ended well\n", rank);
	return 0;
}
