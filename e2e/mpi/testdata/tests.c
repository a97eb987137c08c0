/* Tests that a program that tests its requests between short pieces of work does not sleep in these
 * calls: each rank calls MPI_Test, MPI_Testany and MPI_Testall in vain, for half a second each, and
 * counts how often it sleeps. The messages come afterwards.
 *
 * Usage: tests CALLS
 * CALLS: how many of the three calls are tested */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define SECONDS 0.5
#define SLEEPS_MAX 100 /* one in 5 ms; a wait sleeps 0.5 ms at a time */

static MPI_Request requests[2];

static void test(int *over) { MPI_Test(&requests[0], over, MPI_STATUS_IGNORE); }

static void test_any(int *over)
{
	int which;
	MPI_Testany(2, requests, &which, over, MPI_STATUS_IGNORE);
}

static void test_all(int *over) { MPI_Testall(2, requests, over, MPI_STATUSES_IGNORE); }

static long sleeps(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_nvcsw;
}

/* repeats repeats a call and a little work, and returns how often this process has slept meanwhile. */
static long repeats(void (*call)(int *over), long *calls)
{
	static volatile double x = 1;
	long before = sleeps();
	*calls = 0;
	for (double begun = MPI_Wtime(); MPI_Wtime() - begun < SECONDS; ++*calls) {
		int over = 0;
		call(&over);
		if (over)
			MPI_Abort(MPI_COMM_WORLD, 9);
		for (int i = 0; i < 20; i++)
			x = x * 1.0000001;
	}
	return sleeps() - before;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*call)(int *over);
	} all[] = {{"MPI_Test", test}, {"MPI_Testany", test_any}, {"MPI_Testall", test_all}};
	int rank, got[2], token = 7, most = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	int peer = rank ^ 1;
	for (int i = 0; i < 2; i++)
		MPI_Irecv(&got[i], 1, MPI_INT, peer, i, MPI_COMM_WORLD, &requests[i]);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < atoi(argv[1]); i++) {
		long calls, n = repeats(all[i].call, &calls);
		printf("rank %d slept %ld times in %ld calls of %s\n", rank, n, calls, all[i].name);
		most = n > most ? (int)n : most;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 2; i++)
		MPI_Send(&token, 1, MPI_INT, peer, i, MPI_COMM_WORLD);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	int all_most;
	MPI_Allreduce(&most, &all_most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0)
		puts(all_most <= SLEEPS_MAX ? "tests do not sleep" : "a rank slept in calls that only test");
	MPI_Finalize();
	return 0;
}
