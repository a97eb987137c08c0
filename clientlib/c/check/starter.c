/*
 * Detects an mpirun or mpiexec of another MPI than the program's. The ranks would not find each
 * other: each would be a job of its own, or all would wait for messages that never arrive. An
 * mpirun is recognized by the variables that it sets for its ranks. Those of MPICH and Intel MPI
 * can each start programs of the other.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "check.h"
#include "layout.h"
#include "mpilib.h"

#define VERSION_MAX 8192 /* MPI_MAX_LIBRARY_VERSION_STRING of MPICH, the largest */

/* started_by returns the name of the MPI whose mpirun has started this process; NULL: unknown. Open
 * MPI's variables are read first: a rank of another job may have started Open MPI's daemon, whose
 * ranks then inherit the variables of that job, too. */
static const char *started_by(bool *open_mpi, int *release)
{
	*open_mpi = getenv("PMIX_NAMESPACE") != NULL;
	*release = 0;
	if (*open_mpi && getenv("PRTE_LAUNCHED") != NULL) {
		*release = 5;
		return "Open MPI 5";
	}
	if (*open_mpi && getenv("OMPI_MCA_orte_launch") != NULL) {
		*release = 4;
		return "Open MPI 4";
	}
	if (*open_mpi || (getenv("PMI_FD") == NULL && getenv("PMI_PORT") == NULL))
		return NULL;
	return getenv("I_MPI_HYDRA_UUID") != NULL ? "Intel MPI" : "MPICH";
}

/* version returns the version text of the program's MPI up to the first comma or end of line; "":
 * it has none. */
static void version(void *library, char *text)
{
	int length = 0;
	int (*own)(char *text, int *length);
	text[0] = 0;
	if (!mpilib_function(library, &own, "PMPI_Get_library_version") || own(text, &length) != 0)
		text[0] = 0;
	text[strcspn(text, ",\n")] = 0;
	for (char *at = text; *at != 0; at++)
		if (*at == '\t')
			*at = ' ';
}

bool check_intel(void)
{
	char text[VERSION_MAX];
	void *library = mpilib_open("libmpi.so.12");
	if (library == NULL)
		return false;
	version(library, text);
	return strncmp(text, "Intel", 5) == 0;
}

void check_option(void)
{
	char text[VERSION_MAX], reason[512];
	if (!check_wanted() || !check_how(CHECK_SELECT) || getenv(OR_NAME_ENV_MPI_RANKS) != NULL)
		return; /* --mpi was not given, or the program's mpirun sets its rank */
	if (getenv("OMPI_COMM_WORLD_RANK") == NULL || getenv("MPI_LOCALRANKID") != NULL || mpilib_open("libmpi.so.40") != NULL)
		return;
	void *library = mpilib_open("libmpi.so.12");
	if (library == NULL)
		return;
	version(library, text);
	snprintf(reason, sizeof reason, "--mpi says openmpi, and the program's MPI is %.200s: name the program's MPI with --mpi (docs/mpi.md)", text[0] != 0 ? text : "MPICH or Intel MPI");
	check_refuse(reason);
}

void check_starter(void)
{
	bool open_starter, open_program;
	int release, own = 0;
	char text[VERSION_MAX];
	const char *starter = started_by(&open_starter, &release);
	if (starter == NULL || getenv(OR_NAME_ENV_MPI_RANKS) == NULL || check_world() == 1)
		return; /* a single rank needs no other */
	void *library = mpilib_open("libmpi.so.40");
	open_program = library != NULL;
	if (library == NULL && (library = mpilib_open("libmpi.so.12")) == NULL)
		return;
	version(library, text);
	if (open_program)
		(void)sscanf(text, "Open MPI v%d", &own);
	/* Started by Open MPI 5's mpirun, each rank of an older Open MPI is a job of its own. Started
	 * by Open MPI 4's, ranks of Open MPI 5 hang in MPI_Init. */
	bool older = release == 5 && own > 0 && own < 5, newer = release == 4 && own >= 5;
	if (open_starter == open_program && !older && !newer)
		return;
	if (text[0] == 0)
		(void)snprintf(text, sizeof text, "%s", open_program ? "Open MPI" : "MPICH or Intel MPI");
	char reason[512];
	snprintf(reason, sizeof reason, "the mpirun or mpiexec that has started it is of %s, and its program's MPI is %.200s: call the mpirun of the program's MPI by its path, or leave it out (docs/mpi.md)", starter, text);
	check_refuse(reason);
}
