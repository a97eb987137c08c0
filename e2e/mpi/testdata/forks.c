/* Ranks that fork while messages are in flight, which MPI allows if the child does not call MPI.
 * The child ends by exit, which calls the destructors of all its libraries. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 25, BYTES = 300001 };

int main(int argc, char **argv)
{
	static char out[BYTES], in[BYTES];
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Request r[2];
		int status;
		memset(out, rank + i, BYTES);
		MPI_Irecv(in, BYTES, MPI_CHAR, (rank + ranks - 1) % ranks, i, MPI_COMM_WORLD, &r[0]);
		MPI_Isend(out, BYTES, MPI_CHAR, (rank + 1) % ranks, i, MPI_COMM_WORLD, &r[1]);
		pid_t pid = fork();
		if (pid == 0)
			exit(0);
		if (waitpid(pid, &status, 0) != pid || status != 0)
			MPI_Abort(MPI_COMM_WORLD, 1);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		for (int k = 0; k < BYTES; k++)
			if (in[k] != (char)((rank + ranks - 1) % ranks + i))
				MPI_Abort(MPI_COMM_WORLD, 2);
	}
	pid_t left = fork();
	if (left == 0) {
		sleep(2); /* longer than the rank lives */
		exit(0);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("forked over %d ranks\n", ranks);
	MPI_Finalize();
	return 0;
}
