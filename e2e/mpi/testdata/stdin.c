/*
 * Rank 0 reads its whole standard input before its first message, as programs do that read their
 * input deck from there; that of the others is empty. If the argument is a number, rank 0 reads so
 * many bytes and does not wait for the end, and the others do not read. The sum is FNV-1a.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static unsigned char buf[10007];
	unsigned long long read_by[2] = {0, 14695981039346656037ULL}, others = 0, all = 0;
	int rank, size;
	ssize_t n;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	unsigned long long left = argc < 2 ? ~0ULL : rank == 0 ? strtoull(argv[1], NULL, 10) : 0;
	while (read_by[0] < left && (n = read(0, buf, sizeof buf)) > 0)
		for (ssize_t i = 0; i < n; i++) {
			read_by[0]++;
			read_by[1] = (read_by[1] ^ buf[i]) * 1099511628211ULL;
		}
	others = rank == 0 ? 0 : read_by[0];
	MPI_Bcast(read_by, 2, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
	MPI_Reduce(&others, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == size - 1)
		printf("stdin: rank 0 has read %llu bytes with the sum %llx\n", read_by[0], read_by[1]);
	if (rank == 0)
		printf("stdin: the others have read %llu bytes\n", all);
	MPI_Finalize();
	return 0;
}
