/*
 * Refuses calls that add ranks to a job or join two jobs: a job has a fixed set of ranks. Open MPI
 * 4.1 refuses them only at the root, while the other ranks wait for ever, so each rank gets the
 * error here. The other MPIs refuse the calls themselves.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "mpilib.h"

/* MPI_ERR_SPAWN and MPI_ERR_UNSUPPORTED_OPERATION of Open MPI's mpi.h. */
#define ERR_SPAWN 50
#define ERR_UNSUPPORTED 52

/* refused calls the error handler of a communicator, which may end the job. */
static int refused(const char *name, void *comm, int code)
{
	int (*call)(void *comm, int code);
	fprintf(stderr, "outrigger: rank %s: %s is refused: a job has the ranks that it was started with, and joins no other one (docs/mpi.md)\n", check_rank(), name);
	if (mpilib_next(&call, "PMPI_Comm_call_errhandler"))
		(void)call(comm, code); /* the caller gets the code, too */
	return code;
}

#define REFUSED(name, parameters, arguments, comm, code)                                         \
	EXPORT int name parameters;                                                              \
	int name parameters                                                                      \
	{                                                                                        \
		int(*next) parameters;                                                           \
		if (check_wanted() && mpilib_open("libmpi.so.40") != NULL)                       \
			return refused(#name, comm, code);                                       \
		return mpilib_next(&next, #name) ? next arguments : check_missing(#name);        \
	}

REFUSED(MPI_Comm_spawn, (const char *command, char **argv, int most, void *info, int root, void *comm, void *others, int *codes),
	(command, argv, most, info, root, comm, others, codes), comm, ERR_SPAWN)
REFUSED(MPI_Comm_spawn_multiple,
	(int count, char **commands, char ***argvs, const int *most, void *const *infos, int root, void *comm, void *others, int *codes),
	(count, commands, argvs, most, infos, root, comm, others, codes), comm, ERR_SPAWN)
REFUSED(MPI_Comm_accept, (const char *port, void *info, int root, void *comm, void *other), (port, info, root, comm, other), comm, ERR_UNSUPPORTED)
REFUSED(MPI_Comm_connect, (const char *port, void *info, int root, void *comm, void *other), (port, info, root, comm, other), comm, ERR_UNSUPPORTED)
