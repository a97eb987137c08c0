/* Creates communicators from groups: every second rank, the first and the last ranks, each rank
 * alone, and all, repeatedly with the same tags, while other groups are created. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MAX = 64 };

static int rank, size;

/* group_of returns the group of this rank for one of the four ways, and the sum of its ranks. */
static MPI_Group group_of(MPI_Group all, int how, int *sum)
{
	int members[RANKS_MAX], n = 0;
	MPI_Group group;
	*sum = 0;
	for (int r = 0; r < size; r++) {
		int in = how == 0 ? r % 2 == rank % 2 : how == 1 ? (r < size / 2) == (rank < size / 2) : how == 2 ? r == rank : 1;
		if (in) {
			members[n++] = r;
			*sum += r;
		}
	}
	MPI_Group_incl(all, n, members, &group);
	return group;
}

int main(int argc, char **argv)
{
	MPI_Group all;
	MPI_Comm kept[4];
	int rounds = argc > 1 ? atoi(argv[1]) : 3;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	for (int i = 0; i < rounds; i++) {
		int want[4], got;
		for (int how = 0; how < 4; how++) {
			char tag[32];
			snprintf(tag, sizeof tag, "outrigger %d", how / 2); /* two ways share a tag */
			MPI_Group group = group_of(all, how, &want[how]);
			if (MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &kept[how]) != MPI_SUCCESS)
				MPI_Abort(MPI_COMM_WORLD, 3);
			MPI_Group_free(&group);
		}
		for (int how = 0; how < 4; how++) { /* all communicators exist */
			MPI_Allreduce(&rank, &got, 1, MPI_INT, MPI_SUM, kept[how]);
			if (got != want[how]) {
				fprintf(stderr, "rank %d, round %d, group %d: %d, want %d\n", rank, i, how, got, want[how]);
				MPI_Abort(MPI_COMM_WORLD, 4);
			}
			MPI_Comm_free(&kept[how]);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("groups of %d ranks are right\n", size);
	MPI_Group_free(&all);
	MPI_Finalize();
	return 0;
}
