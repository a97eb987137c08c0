// interrupted.c: ranks that call exit in a signal handler, at any point in MPI, as programs do at
// the end of their time limit.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { BYTES = 4 << 20 };

static void end(int number) {
	(void)number;
	exit(0);
}

int main(int argc, char **argv) {
	struct itimerval later = {.it_value = {.tv_usec = 300000}};
	MPI_Init(&argc, &argv);
	int rank;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	char *in = calloc(1, BYTES), *out = calloc(1, BYTES);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("exchanging\n");
		fflush(stdout);
	}
	signal(SIGALRM, end);
	setitimer(ITIMER_REAL, &later, NULL);
	for (;;)
		MPI_Sendrecv(out, BYTES, MPI_BYTE, rank ^ 1, 0, in, BYTES, MPI_BYTE, rank ^ 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
