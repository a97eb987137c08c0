/*
 * Computes minima and maxima of negative integers in a window of another rank, by each operation
 * that can. Over Open MPI's btl ofi the network would compare them as unsigned numbers.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

static int wrong;

static void check(const char *what, long long have, long long want)
{
	if (have == want)
		return;
	wrong++;
	printf("wrong: %s is %lld, want %lld\n", what, have, want);
}

#define TRY(type, mpi_type, text)                                                                                                \
	do {                                                                                                                     \
		type *window, low = -5, high = 3, old = 0;                                                                       \
		MPI_Win win;                                                                                                     \
		MPI_Win_allocate(4 * sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);              \
		window[0] = window[1] = window[2] = window[3] = 2;                                                               \
		MPI_Barrier(MPI_COMM_WORLD);                                                                                     \
		if (rank == 0) {                                                                                                 \
			MPI_Win_lock(MPI_LOCK_SHARED, last, 0, win);                                                             \
			MPI_Accumulate(&low, 1, mpi_type, last, 0, 1, mpi_type, MPI_MIN, win);                                   \
			MPI_Accumulate(&low, 1, mpi_type, last, 1, 1, mpi_type, MPI_MAX, win);                                   \
			MPI_Fetch_and_op(&low, &old, mpi_type, last, 2, MPI_MIN, win);                                           \
			MPI_Win_flush(last, win);                                                                                \
			check(text " fetched", old, 2);                                                                          \
			MPI_Get_accumulate(&low, 1, mpi_type, &old, 1, mpi_type, last, 3, 1, mpi_type, MPI_MIN, win);            \
			MPI_Win_flush(last, win);                                                                                \
			MPI_Accumulate(&high, 1, mpi_type, last, 3, 1, mpi_type, MPI_MAX, win);                                  \
			MPI_Win_unlock(last, win);                                                                               \
		}                                                                                                                \
		MPI_Barrier(MPI_COMM_WORLD);                                                                                     \
		if (rank == last) {                                                                                              \
			MPI_Win_lock(MPI_LOCK_SHARED, last, 0, win);                                                             \
			check(text " MPI_Accumulate MPI_MIN", window[0], -5);                                                    \
			check(text " MPI_Accumulate MPI_MAX", window[1], 2);                                                     \
			check(text " MPI_Fetch_and_op MPI_MIN", window[2], -5);                                                  \
			check(text " MPI_MIN, then MPI_MAX", window[3], 3);                                                      \
			MPI_Win_unlock(last, win);                                                                               \
		}                                                                                                                \
		MPI_Win_free(&win);                                                                                              \
	} while (0)

int main(int argc, char **argv)
{
	int rank, last, all = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &last);
	last--;
	TRY(int8_t, MPI_INT8_T, "int8");
	TRY(int16_t, MPI_INT16_T, "int16");
	TRY(int32_t, MPI_INT32_T, "int32");
	TRY(int64_t, MPI_INT64_T, "int64");
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("signed: %d wrong\n", all);
	MPI_Finalize();
	return all != 0;
}
