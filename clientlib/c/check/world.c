/*
 * Detects programs that an mpirun has started with ranks in other pods than the job's, or with fewer
 * ranks than the job has. The missing ranks could only attach later than the others, and no sidecar
 * could tell which program they belong to. A program of one rank, such as `mpirun -n 1 gmx_mpi
 * grompp`, needs no sidecar.
 */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "layout.h"

static int number(const char *name)
{
	const char *text = getenv(name);
	return text == NULL ? 0 : atoi(text);
}

int check_world(void)
{
	int n = number("OMPI_COMM_WORLD_SIZE");
	return n > 0 ? n : number("PMI_SIZE");
}

int check_ranks(void)
{
	int n = check_world();
	return n > 0 ? n : number(OR_NAME_ENV_MPI_RANKS);
}

bool check_world_of_one(void)
{
	int ranks = number(OR_NAME_ENV_MPI_RANKS), world = check_world();
	if (ranks == 0 || world == 0 || world == ranks || getenv(OR_NAME_ENV_SOCKET) == NULL)
		return false;
	if (world == 1)
		return true;
	char text[256];
	snprintf(text, sizeof text, "mpirun has started %d ranks of the job's %d: it has to start %d ranks (-n %d), or one (-n 1)", world, ranks, ranks, ranks);
	check_refuse(text);
}

void check_pod(void)
{
	const char *here = getenv(OR_NAME_ENV_MPI_HERE);
	int first, last, rank = atoi(check_rank());
	if (here == NULL || sscanf(here, "%d-%d", &first, &last) != 2 || check_world() < 2 || (rank >= first && rank <= last))
		return;
	char text[512];
	snprintf(text, sizeof text, "mpirun has started it in a pod that has ranks %d to %d: it has to place ranks in the order of the pods; "
		"remove --map-by, --rank-by, --oversubscribe, -ppn, -perhost or -rr from the line (docs/mpi.md)", first, last);
	check_refuse(text);
}
