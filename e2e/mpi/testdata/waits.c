/* Waits of all kinds: `waits WHAT SECONDS`. Those whose name begins with "right" do what correct
 * programs do, for so many seconds, and exit with 0; the others wait for ever. */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void compute(double seconds)
{
	for (double since = now(); now() - since < seconds;)
		;
}

int main(int argc, char **argv)
{
	int me, ranks, over = 0, there = 0;
	double x = 0, got = 0;
	MPI_Request r;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	const char *what = argv[1];
	double seconds = atof(argv[2]);
	int left = (me + ranks - 1) % ranks, right = (me + 1) % ranks;
	if (strcmp(what, "missing message") == 0 && me == 1)
		MPI_Recv(&got, 1, MPI_DOUBLE, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (strcmp(what, "probes") == 0 && me == 1)
		while (!there)
			MPI_Iprobe(2, 5, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
	if (strstr(what, "window") != NULL) {
		MPI_Win w;
		int64_t one = 1, sum = 0;
		static int64_t counter;
		bool wrong = strncmp(what, "right", 5) != 0, adds = strcmp(what, "right: adds to a window") == 0;
		MPI_Win_create(&counter, sizeof counter, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w);
		if (me == 1 && !adds)
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w);
		MPI_Barrier(MPI_COMM_WORLD);
		if (me == 1 && !adds && !wrong) {
			compute(seconds);
			MPI_Win_unlock(0, w);
		}
		if (me == 3) {
			MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w);
			double since = now();
			do {
				MPI_Fetch_and_op(&one, &sum, MPI_INT64_T, 0, 0, MPI_SUM, w);
				MPI_Win_flush(0, w);
			} while (adds && now() - since < seconds);
			MPI_Win_unlock(0, w);
		}
		if (!wrong)
			MPI_Win_free(&w);
	}
	if (strcmp(what, "truncated") == 0) {
		double two[2] = {0, 0};
		if (me == 0)
			MPI_Send(two, 2, MPI_DOUBLE, 1, 98, MPI_COMM_WORLD);
		if (me == 1)
			MPI_Recv(&got, 1, MPI_DOUBLE, 0, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	if (strcmp(what, "two communicators") == 0) {
		MPI_Comm a, b;
		MPI_Comm_dup(MPI_COMM_WORLD, &a);
		MPI_Comm_dup(MPI_COMM_WORLD, &b);
		MPI_Barrier(me == 0 ? a : b);
	}
	if (strcmp(what, "missing collective") == 0 && me != 3)
		MPI_Barrier(MPI_COMM_WORLD);
	if (strcmp(what, "missing collective") == 0) {
		MPI_Finalize();
		return 0;
	}
	MPI_Irecv(&got, 1, MPI_DOUBLE, left, 7, MPI_COMM_WORLD, &r);
	MPI_Barrier(MPI_COMM_WORLD);
	if (strcmp(what, "tests") == 0)
		while (!over)
			MPI_Test(&r, &over, MPI_STATUS_IGNORE);
	/* Rank 0 is a server, for which all others wait. */
	if (me == 0 && strncmp(what, "right: probes", 13) == 0)
		for (double since = now(); now() - since < seconds;) {
			MPI_Iprobe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
			if (strcmp(what, "right: probes and computes") == 0)
				compute(20e-6);
			if (strcmp(what, "right: probes and sleeps") == 0)
				nanosleep(&(struct timespec){0, 1000000}, NULL);
		}
	if (strcmp(what, "right: waits long") == 0 && me == 2) /* for rank 0, which computes */
		while (!there)
			MPI_Iprobe(0, 8, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
	if (strcmp(what, "right: computes") == 0)
		compute(seconds);
	if (strcmp(what, "right: tests, then computes") == 0) {
		for (double since = now(); now() - since < 0.3;)
			MPI_Test(&r, &over, MPI_STATUS_IGNORE);
		compute(seconds);
	}
	if (strcmp(what, "right: tests and sleeps") == 0)
		for (double since = now(); now() - since < seconds;) {
			MPI_Test(&r, &over, MPI_STATUS_IGNORE);
			nanosleep(&(struct timespec){0, 1000000}, NULL);
		}
	if (strcmp(what, "right: waits long") == 0 && me == 0) {
		compute(seconds);
		MPI_Send(&x, 1, MPI_DOUBLE, 2, 8, MPI_COMM_WORLD);
	}
	if (strcmp(what, "right: waits long") == 0 && me == 2)
		MPI_Recv(&got, 1, MPI_DOUBLE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Send(&x, 1, MPI_DOUBLE, right, 7, MPI_COMM_WORLD);
	if (!over)
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	MPI_Finalize();
	printf("rank %d is done\n", me);
	return 0;
}
