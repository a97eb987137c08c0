/* Rank 1 is killed at a step of its communication with the others, which the argument names. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static int rank, ranks, step;
static char buffer[2 * BYTES];
static MPI_Win win;

static void die(const char *what, const char *wanted)
{
	if (rank == 1 && step > 20 && strcmp(what, wanted) == 0)
		kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	const char *wanted = argc > 1 ? argv[1] : "";
	MPI_Request r[2];
	long one = 1, old;
	char *memory;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	for (step = 0; step < 1000000; step++) {
		int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
		MPI_Irecv(buffer, BYTES, MPI_CHAR, from, 0, MPI_COMM_WORLD, &r[0]);
		MPI_Isend(buffer + BYTES, BYTES, MPI_CHAR, to, 0, MPI_COMM_WORLD, &r[1]);
		die("message", wanted);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
		die("lock", wanted);
		MPI_Put(buffer, BYTES, MPI_CHAR, to, 0, BYTES, MPI_CHAR, win);
		die("put", wanted);
		MPI_Win_unlock(to, win);
		MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
		MPI_Get(buffer, BYTES, MPI_CHAR, to, 0, BYTES, MPI_CHAR, win);
		die("get", wanted);
		MPI_Win_unlock(to, win);
		MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
		MPI_Fetch_and_op(&one, &old, MPI_LONG, to, 0, MPI_SUM, win);
		MPI_Accumulate(buffer, 1000, MPI_LONG, to, 8, 1000, MPI_LONG, MPI_SUM, win);
		die("atomic", wanted);
		MPI_Win_unlock(to, win);
		MPI_Iallreduce(MPI_IN_PLACE, buffer, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[0]);
		die("sum", wanted);
		MPI_Wait(&r[0], MPI_STATUS_IGNORE);
		MPI_Win_fence(0, win);
		die("fence", wanted);
		MPI_Win_fence(0, win);
	}
	printf("rank 1 was not killed\n");
	MPI_Finalize();
	return 0;
}
