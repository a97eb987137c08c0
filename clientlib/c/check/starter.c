/*
 * An mpirun or mpiexec of another MPI than the program's. The ranks would not find each other, and
 * each would be a job of its own, or they would wait for messages that never come. Each mpirun
 * shows itself by variables of the ranks that it starts. Those of MPICH and Intel MPI start the
 * programs of both.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "check.h"
#include "layout.h"
#include "mpilib.h"

#define VERSION_MAX 8192 /* MPI_MAX_LIBRARY_VERSION_STRING of MPICH, the largest */

/* started_by names the MPI of the mpirun that has started this process; NULL: it is not known.
 * Open MPI's are asked for first: a daemon of theirs may itself have been started by a rank of
 * another job, and inherits that one's variables. */
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

/* version is what the program's MPI calls itself, up to the first comma or line; "": it does not say. */
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

void check_said(void)
{
	char text[VERSION_MAX], reason[512];
	if (!check_wanted() || !check_how(CHECK_SELECT) || getenv(OR_NAME_ENV_MPI_RANKS) != NULL)
		return; /* nothing was said, or the program's mpirun tells its rank */
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
		return; /* one rank has no other to find */
	void *library = mpilib_open("libmpi.so.40");
	open_program = library != NULL;
	if (library == NULL && (library = mpilib_open("libmpi.so.12")) == NULL)
		return;
	version(library, text);
	if (open_program)
		(void)sscanf(text, "Open MPI v%d", &own);
	/* Under the mpirun of Open MPI 5 each rank of an older one is a job of its own; under that of
	 * Open MPI 4 the ranks of Open MPI 5 wait in MPI_Init. */
	bool older = release == 5 && own > 0 && own < 5, newer = release == 4 && own >= 5;
	if (open_starter == open_program && !older && !newer)
		return;
	if (text[0] == 0)
		(void)snprintf(text, sizeof text, "%s", open_program ? "Open MPI" : "MPICH or Intel MPI");
	char reason[512];
	snprintf(reason, sizeof reason, "the mpirun or mpiexec that has started it is of %s, and its program's MPI is %.200s: call the mpirun of the program's MPI by its path, or leave it out (docs/mpi.md)", starter, text);
	check_refuse(reason);
}
