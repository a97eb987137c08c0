/*
 * Programs that an mpirun of the job's script has started with fewer ranks than the job has. The
 * ranks that are left out would have to attach later than others, and no sidecar could know which
 * program they belong to. A program of one rank, as `mpirun -n 1 gmx_mpi grompp`, does without.
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
