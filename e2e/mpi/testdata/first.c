/*
 * Sends messages of 1,000 integers around a ring. Each rank prints a line before its first message.
 * A rank that is refused prints nothing.
 */
#include <mpi.h>
#include <stdio.h>

#define N 1000

int main(int argc, char **argv)
{
	static int out[N], in[N];
	int rank, size, wrong = 0, all = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	printf("first: rank %d of %d has begun\n", rank, size);
	fflush(stdout);
	int from = (rank + size - 1) % size;
	for (int i = 0; i < N; i++)
		out[i] = rank * N + i;
	MPI_Sendrecv(out, N, MPI_INT, (rank + 1) % size, 5, in, N, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < N; i++)
		wrong += in[i] != from * N + i;
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("first: %d wrong over %d ranks\n", all, size);
	MPI_Finalize();
	return all != 0;
}
