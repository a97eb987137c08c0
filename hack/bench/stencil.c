/* A solver of the heat equation as users write it: each rank has a strip of rows, exchanges a
 * row with each neighbour, computes, and reduces a residual in every step.
 *
 *	stencil POINTS STEPS
 *
 * prints the seconds of the steps, and the residual, which does not depend on the transport. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double step(const double *from, double *to, int rows, int n)
{
	double change = 0;
	for (int i = 1; i <= rows; i++) {
		for (int j = 1; j < n - 1; j++) {
			const double *p = from + (size_t)i * (size_t)n + j;
			double v = 0.25 * (p[-n] + p[n] + p[-1] + p[1]);
			change += fabs(v - *p);
			to[(size_t)i * (size_t)n + (size_t)j] = v;
		}
	}
	return change;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, ranks;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int n = argc > 1 ? atoi(argv[1]) : 1024, steps = argc > 2 ? atoi(argv[2]) : 2000;
	if (n < ranks || steps < 1) {
		fprintf(stderr, "usage: stencil POINTS STEPS, with at least as many points as ranks\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	int rows = n / ranks, above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
	double *now = calloc((size_t)(rows + 2) * (size_t)n, sizeof(double)), *next = calloc((size_t)(rows + 2) * (size_t)n, sizeof(double));
	if (now == NULL || next == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < rows + 2; i++) /* the left side is hot */
		now[(size_t)i * (size_t)n] = next[(size_t)i * (size_t)n] = 1;
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = MPI_Wtime(), residual = 0;
	for (int s = 0; s < steps; s++) {
		MPI_Request open[4];
		MPI_Irecv(now, n, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &open[0]);
		MPI_Irecv(now + (size_t)(rows + 1) * (size_t)n, n, MPI_DOUBLE, below, 2, MPI_COMM_WORLD, &open[1]);
		MPI_Isend(now + n, n, MPI_DOUBLE, above, 2, MPI_COMM_WORLD, &open[2]);
		MPI_Isend(now + (size_t)rows * (size_t)n, n, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &open[3]);
		MPI_Waitall(4, open, MPI_STATUSES_IGNORE);
		double change = step(now, next, rows, n);
		MPI_Allreduce(&change, &residual, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		double *old = now;
		now = next;
		next = old;
	}
	if (rank == 0)
		printf("stencil: %.4f seconds, residual %.12g\n", MPI_Wtime() - begin, residual);
	free(now);
	free(next);
	return MPI_Finalize();
}
