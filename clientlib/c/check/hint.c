/*
 * Hints for mistakes in a job's script after which programs fail with errors that do not name the
 * remedy:
 *
 * - A script that runs once for each rank calls mpirun, so that all ranks are started once for each
 *   rank.
 * - The parent of a rank's program has closed the rank's connection to process management, as
 *   Python's subprocess closes all descriptors above 2.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "layout.h"
#include "mpilib.h"

static bool is_starter(const char *name)
{
	static const char *const names[] = {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* starts_one reports whether the arguments of an mpirun ask for one rank. */
static bool starts_one(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "-np") == 0)
			return atoi(argv[i + 1]) == 1;
	return false;
}

/* many_starters prints a hint if this process is an mpirun in the script of each rank. glibc passes
 * the arguments to constructors. If the job runs one mpirun, its launcher sets OUTRIGGER_AGENT. */
static void __attribute__((constructor)) many_starters(int argc, char **argv)
{
	if (!check_wanted() || !is_starter(program_invocation_short_name) || getenv(OR_NAME_ENV_AGENT) != NULL || check_ranks() < 2 || starts_one(argc, argv))
		return;
	if (strcmp(check_rank(), "0") == 0)
		fprintf(stderr, "outrigger: rank 0: its script calls %s, and so does that of each other rank: if this is to start the job's ranks, run the script once, by OUTRIGGER_MPIRUN=1 in the job's environment (docs/mpi.md)\n",
			program_invocation_short_name);
}

void check_management(void)
{
	if (!check_wanted() || getenv("PMI_FD") == NULL || getenv("PMI_PORT") != NULL || check_managed() || mpilib_open("libmpi.so.12") == NULL)
		return;
	check_refuse("what has started its program has closed the connection to process management (PMI_FD), as Python's subprocess does without close_fds=False: set OUTRIGGER_PMI=port in the job's environment (docs/mpi.md)");
}
