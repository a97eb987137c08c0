// turns.c: exchanges and sums while the program computes, children of forks, and the function with
// the most arguments, which between.c observes. Two ranks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 200, N = 20000 };

static void must(int good, const char *what) {
	if (!good) {
		fprintf(stderr, "turns: %s\n", what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static volatile double sink;

static void compute(int steps) {
	double x = 1;
	for (int i = 0; i < steps; i++)
		x = x * 1.0000001 + 1e-9;
	sink = x;
}

// forks has a child call its MPI, at whatever point of a step it was forked: the call must not block.
static void forks(void) {
	int status, bytes;
	pid_t child = fork();
	if (child == 0) {
		alarm(20);
		MPI_Type_size(MPI_INT, &bytes);
		_exit(bytes != (int)sizeof(int));
	}
	must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child of a fork");
}

// accumulate fetches a number from the other rank, and adds to it.
static void accumulate(int rank) {
	MPI_Win win;
	MPI_Request request;
	double held[4] = {1, 2, 3, 4}, add = 10, got = 0;
	MPI_Win_create(held, sizeof held, sizeof *held, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1 - rank, 0, win);
	MPI_Rget_accumulate(&add, 1, MPI_DOUBLE, &got, 1, MPI_DOUBLE, 1 - rank, 2, 1, MPI_DOUBLE, MPI_SUM, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Win_unlock(1 - rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	must(got == 3 && held[2] == 13 && held[3] == 4, "MPI_Rget_accumulate");
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
}

int main(int argc, char **argv) {
	static double out[N], in[N], sum[N];
	int rank, left, right;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Request r[3];
		out[N - 1] = i + rank;
		MPI_Isend(out, N, MPI_DOUBLE, 1 - rank, 1, MPI_COMM_WORLD, &r[0]);
		MPI_Irecv(in, N, MPI_DOUBLE, 1 - rank, 1, MPI_COMM_WORLD, &r[1]);
		MPI_Iallreduce(out, sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &r[2]);
		compute(i % 8 * 20000);
		if (i % 4 == 0)
			forks();
		MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
		must(in[N - 1] == i + 1 - rank && sum[N - 1] == 2 * i + 1, "an exchange or a sum");
	}
	MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 2, &left, 1, MPI_INT, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv_replace(&rank, 1, MPI_INT, 1 - rank, 3, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	right = rank;
	must(left == right, "MPI_Sendrecv");
	accumulate(1 - rank);
	MPI_Finalize();
	return 0;
}
