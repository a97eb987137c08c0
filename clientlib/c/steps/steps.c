/*
 * liboutrigger-steps.so: steps of the MPI's own while its program computes
 * (OUTRIGGER_MPI_PROGRESS=all). A non-blocking collective is a schedule of messages with
 * work between them, which the library does inside of MPI calls alone. The provider's
 * thread (clientlib/c/fi/background.c) makes such a call: it asks for the status of a
 * request that never ends, by which every MPI looks at all that it has open (MPI 4.1, 3.5
 * Progress, 3.7.6). The request is a generalized one (13.2), which concerns nobody else.
 *
 * Two threads may not be in the MPI at once unless the program has MPI_THREAD_MULTIPLE, and
 * no MPI is at its best there (Open MPI 4.1 and 5 count a communicator's users wrongly where
 * one thread frees a request that another has just completed, until it is gone). So the two
 * take turns, which MPI_THREAD_SERIALIZED allows: this library is before every call in the
 * order of symbols, as tools of the profiling interface are (15.2), and calls what comes next
 * (calls.c, gate.c). The launcher preloads it; names begin with PMPI where Fortran's begin so.
 */
#define _GNU_SOURCE
#include "steps.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "mpilib.h"

typedef uintptr_t handle; /* of MPI: a number of 32 bits, or a pointer; passed alike */

#define SERIALIZED 2        /* MPI_THREAD_SERIALIZED of MPICH, Intel MPI and Open MPI */
#define SERIALIZED_ABI 2048 /* of MPI's own binary interface (MPI 5.0, 20) */
#define STATUS_BYTES 256    /* more than any of them has */
/* Calls for what has come: MPICH looks at its schedules before it looks for what has come,
 * and takes their next step by the call after that. */
#define CALLS 3

static struct {
	int (*query_thread)(int *level);
	int (*start)(int (*query)(void *, void *), int (*release)(void *), int (*cancel)(void *, int), void *extra, handle *request);
	int (*complete)(handle request);
	int (*get_status)(handle request, int *flag, void *status);
	int (*release)(handle *request);
} mpi;

static handle never_ends;
static _Atomic bool ready;

bool steps_find(void *function, const char *name) { return mpilib_next(function, name); }

/* serialized is MPI_THREAD_SERIALIZED of the library that a function is of. */
static int serialized(int (*function)(int *))
{
	Dl_info where;
	void *symbol;
	memcpy(&symbol, &function, sizeof symbol);
	return dladdr(symbol, &where) != 0 && strstr(where.dli_fname, "libmpi_abi.so") != NULL ? SERIALIZED_ABI : SERIALIZED;
}

static int no_query(void *extra, void *status) { return (void)extra, (void)status, 0; }
static int no_release(void *extra) { return (void)extra, 0; }
static int no_cancel(void *extra, int complete) { return (void)extra, (void)complete, 0; }

static const char *start(void)
{
	int level = 0;
	if (!steps_find(&mpi.query_thread, "PMPI_Query_thread") || !steps_find(&mpi.start, "PMPI_Grequest_start") ||
	    !steps_find(&mpi.complete, "PMPI_Grequest_complete") || !steps_find(&mpi.get_status, "PMPI_Request_get_status") ||
	    !steps_find(&mpi.release, "PMPI_Request_free"))
		return "its MPI is not found";
	if (mpi.query_thread(&level) != 0 || level < serialized(mpi.query_thread))
		return "its MPI does not give MPI_THREAD_SERIALIZED";
	if (mpi.start(no_query, no_release, no_cancel, NULL, &never_ends) != 0)
		return "its MPI refuses a generalized request";
	return NULL;
}

/* opened is told that the MPI was started; tools between this library and the MPI have it
 * told twice. */
static int opened(int rc)
{
	if (rc != 0 || atomic_load(&ready))
		return rc;
	const char *why = start();
	if (why == NULL)
		atomic_store(&ready, true);
	else
		fprintf(stderr, "outrigger: OUTRIGGER_MPI_PROGRESS=all: %s: messages go on while the program computes, steps of the MPI's own do not\n", why);
	return rc;
}

/* closing ends the steps: there is none under way any more, and none begins. */
static void closing(void)
{
	if (!atomic_exchange(&ready, false))
		return;
	gate_enter();
	(void)mpi.complete(never_ends);
	(void)mpi.release(&never_ends);
	gate_leave();
}

/* outrigger_mpi_steps is for the provider: by a thread that is not the program's, at any time. */
EXPORT void outrigger_mpi_steps(void)
{
	char status[STATUS_BYTES];
	int flag;
	if (!atomic_load(&ready) || !gate_shut())
		return;
	for (int i = 0; i < CALLS && atomic_load(&ready) && !gate_asked(); i++)
		(void)mpi.get_status(never_ends, &flag, status);
	gate_open();
}

/* These are the provider's, too: whether the calling thread is in a call of MPI, and what is
 * to be done when a thread of the program has returned from its call. */
EXPORT bool outrigger_mpi_within(void) { return gate_within(); }
EXPORT void outrigger_mpi_left_by(void (*left)(void)) { gate_left_by(left); }

static int no_mpi(void)
{
	fprintf(stderr, "outrigger: OUTRIGGER_MPI_PROGRESS=all: the program's MPI is not found\n");
	return 1;
}

/* What has MPI_Init give what the other thread needs. Open MPI 5 goes by its variable in
 * MPI_Init_thread, too, where a program asks for more: so it is there only while MPI_Init is
 * under way, and not for programs that this one starts. */
static const struct {
	const char *name, *value;
} levels[] = {{"MPIR_CVAR_DEFAULT_THREAD_LEVEL", "MPI_THREAD_SERIALIZED"}, {"OMPI_MPI_THREAD_LEVEL", "2"}};
#define LEVELS (sizeof levels / sizeof *levels)

static int init(const char *name, int *argc, char ***argv)
{
	int (*next)(int *, char ***);
	bool set[LEVELS];
	if (!steps_find(&next, name))
		return no_mpi();
	for (size_t i = 0; i < LEVELS; i++) /* the user's own is the user's */
		set[i] = getenv(levels[i].name) == NULL && setenv(levels[i].name, levels[i].value, 0) == 0;
	int rc = next(argc, argv);
	for (size_t i = 0; i < LEVELS; i++)
		if (set[i])
			(void)unsetenv(levels[i].name);
	return opened(rc);
}

/* init_thread asks for what the other thread needs, or more: that is what an MPI may give. */
static int init_thread(const char *name, int *argc, char ***argv, int required, int *provided)
{
	int (*next)(int *, char ***, int, int *);
	int (*query)(int *);
	if (!steps_find(&next, name) || !steps_find(&query, "PMPI_Query_thread"))
		return no_mpi();
	int least = serialized(query);
	return opened(next(argc, argv, required > least ? required : least, provided));
}

static int finalize(const char *name)
{
	int (*next)(void);
	closing();
	return steps_find(&next, name) ? next() : no_mpi();
}

EXPORT int MPI_Init(int *argc, char ***argv);
EXPORT int PMPI_Init(int *argc, char ***argv);
EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
EXPORT int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided);
EXPORT int MPI_Finalize(void);
EXPORT int PMPI_Finalize(void);

int MPI_Init(int *argc, char ***argv) { return init("MPI_Init", argc, argv); }
int PMPI_Init(int *argc, char ***argv) { return init("PMPI_Init", argc, argv); }

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	return init_thread("MPI_Init_thread", argc, argv, required, provided);
}

int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	return init_thread("PMPI_Init_thread", argc, argv, required, provided);
}

int MPI_Finalize(void) { return finalize("MPI_Finalize"); }
int PMPI_Finalize(void) { return finalize("PMPI_Finalize"); }
