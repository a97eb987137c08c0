/* Counts the signals SIGUSR1 and SIGUSR2 of each rank. The program ends when every rank has got
 * the first signal, or both if there is an argument, and some time has passed in which a
 * duplicate would arrive. Each rank prints how often it got each. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t got[2];

static void note(int s)
{
	got[s == SIGUSR2]++;
}

/* wait_for exchanges messages until every rank has got a signal. */
static void wait_for(int which)
{
	for (int all = 0; !all;) {
		int own = got[which] > 0;
		MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
		usleep(10000);
	}
	usleep(200000);
}

int main(int argc, char **argv)
{
	struct sigaction a = {.sa_handler = note, .sa_flags = SA_RESTART};
	int rank;

	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGUSR2, &a, NULL);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	printf("rank %d runs\n", rank);
	fflush(stdout);
	wait_for(0);
	if (argc > 1) {
		printf("rank %d has SIGUSR1\n", rank);
		fflush(stdout);
		wait_for(1);
	}
	printf("rank %d got SIGUSR1 %d times, SIGUSR2 %d times\n", rank, (int)got[0], (int)got[1]);
	MPI_Finalize();
	return 0;
}
