/* After SIGTERM, the ranks agree by messages to write a checkpoint, take some seconds to write it,
 * and exit with 85, as batch programs do. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t got;

static void on(int s) { got = s; }

int main(int argc, char **argv)
{
	int rank, seconds = argc > 1 ? atoi(argv[1]) : 5, all = 0;
	struct sigaction a = {.sa_handler = on};
	MPI_Init(&argc, &argv);
	sigaction(SIGTERM, &a, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	printf("rank %d runs\n", rank);
	fflush(stdout);
	while (!all) {
		int mine = got;
		MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		usleep(20000);
	}
	for (int i = 0; i < seconds; i++) {
		sleep(1);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	printf("rank %d: signal %d, checkpoint written\n", rank, all);
	fflush(stdout);
	MPI_Finalize();
	return 85;
}
