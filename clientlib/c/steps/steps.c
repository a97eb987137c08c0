/*
 * liboutrigger-steps.so: progress of the MPI's own operations while the program computes
 * (OUTRIGGER_MPI_PROGRESS=all). A non-blocking collective is a schedule of messages with
 * work between them, which the MPI does only inside of MPI calls. The provider's thread
 * (clientlib/c/fi/background.c) makes such a call: it reads the status of a request that
 * never completes, and in this call every MPI makes progress on all its open requests
 * (MPI 4.1, 3.5 Progress, 3.7.6). The request is a generalized one (13.2), so that it has no
 * effect on other ranks.
 *
 * Two threads may not be in the MPI at once unless the program has MPI_THREAD_MULTIPLE, and
 * MPIs have defects at that level (Open MPI 4.1 and 5 miscount the users of a communicator,
 * until it is freed too early, if one thread frees a request that another has just
 * completed). So the two threads take turns, which MPI_THREAD_SERIALIZED allows: this
 * library precedes the MPI in the order of symbols, as tools of the profiling interface do
 * (15.2), and calls the next function of the same name (calls.c, gate.c). The launcher
 * preloads it. It defines the PMPI names as well, because some MPIs' Fortran functions call
 * those.
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

typedef uintptr_t handle; /* an MPI handle: a 32-bit number or a pointer, which are passed alike */

#define SERIALIZED 2        /* MPI_THREAD_SERIALIZED of MPICH, Intel MPI and Open MPI */
#define SERIALIZED_ABI 2048 /* MPI_THREAD_SERIALIZED of the standard ABI (MPI 5.0, 20) */
#define STATUS_BYTES 256    /* more than the MPI_Status of any of them */
/* Calls per step. MPICH advances its schedules before it polls for messages, so that a message
 * that has arrived advances a schedule only in the next call. */
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

/* serialized returns the value of MPI_THREAD_SERIALIZED in the library that defines function. */
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
		return "its MPI does not provide MPI_THREAD_SERIALIZED";
	if (mpi.start(no_query, no_release, no_cancel, NULL, &never_ends) != 0)
		return "its MPI refuses a generalized request";
	return NULL;
}

/* opened starts the steps after MPI_Init has returned rc, and returns rc. It is called twice if
 * a profiling tool between this library and the MPI calls PMPI_Init. */
static int opened(int rc)
{
	if (rc != 0 || atomic_load(&ready))
		return rc;
	const char *why = start();
	if (why == NULL)
		atomic_store(&ready, true);
	else
		fprintf(stderr, "outrigger: OUTRIGGER_MPI_PROGRESS=all: %s: messages progress while the program computes, steps of the MPI's own do not\n", why);
	return rc;
}

/* closing ends the steps: when it returns, none is in progress and none can begin. */
static void closing(void)
{
	if (!atomic_exchange(&ready, false))
		return;
	gate_enter();
	(void)mpi.complete(never_ends);
	(void)mpi.release(&never_ends);
	gate_leave();
}

/* outrigger_mpi_steps makes one step. The provider calls it from its own thread, at any time. */
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

/* The provider calls these, too: outrigger_mpi_within reports whether the calling thread is in a
 * function of MPI, and outrigger_mpi_left_by sets the function that a thread of the program
 * calls after it has returned from one. */
EXPORT bool outrigger_mpi_within(void) { return gate_within(); }
EXPORT void outrigger_mpi_left_by(void (*left)(void)) { gate_on_leave(left); }

static int no_mpi(void)
{
	fprintf(stderr, "outrigger: OUTRIGGER_MPI_PROGRESS=all: the program's MPI is not found\n");
	return 1;
}

/* Variables that make MPI_Init provide MPI_THREAD_SERIALIZED. Open MPI 5 obeys its variable in
 * MPI_Init_thread, too, although the program may ask for more there. The variables are therefore
 * set only during MPI_Init, and programs that this one starts do not inherit them. */
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
	for (size_t i = 0; i < LEVELS; i++) /* a value that the user has set stays */
		set[i] = getenv(levels[i].name) == NULL && setenv(levels[i].name, levels[i].value, 0) == 0;
	int rc = next(argc, argv);
	for (size_t i = 0; i < LEVELS; i++)
		if (set[i])
			(void)unsetenv(levels[i].name);
	return opened(rc);
}

/* init_thread requires at least MPI_THREAD_SERIALIZED, which may provide more than the program
 * asked for, as MPI allows. */
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
