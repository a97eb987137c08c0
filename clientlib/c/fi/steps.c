/*
 * Steps of the MPI's own while its program computes (OUTRIGGER_MPI_PROGRESS=all): a
 * non-blocking collective is a schedule of messages with work between them, which the
 * library does inside of MPI calls alone. So the attendant (background.c) makes one: it
 * asks for the status of a request that never ends, by which every MPI looks at all that
 * it has open (MPI 4.1, 3.7.6 and 3.5, "Progress").
 *
 * The request is a generalized one (13.2), which concerns nobody else. MPI_Finalize first
 * ends what is attached to MPI_COMM_SELF (11.2.2), by which the attendant learns in time
 * that it may not call MPI any more.
 *
 * The library is the one that the program has loaded, by its name: that tells how its
 * handles look. Numbers and pointers are passed alike where registers are of 64 bits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"
#include "provider.h"

typedef uintptr_t handle; /* of MPI: a number of 32 bits, or a pointer */

#define MPICH_COMM_SELF ((handle)0x44000001)
#define THREAD_MULTIPLE 3 /* of both */
#define STATUS_BYTES 256  /* more than either has */
#define SETTLED_NS 50000  /* a program that is away for so long is not about to end MPI */
#define PATIENCE_NS 2000000000u
/* Calls for what has come: MPICH looks at its schedules before it looks for what has
 * come, and takes their next step by the call after that. */
#define CALLS 3

static struct {
	handle self;
	int (*initialized)(int *flag);
	int (*query_thread)(int *level);
	int (*start)(int (*query)(void *, void *), int (*release)(void *), int (*cancel)(void *, int), void *extra, handle *request);
	int (*complete)(handle request);
	int (*get_status)(handle request, int *flag, void *status);
	int (*release)(handle *request);
	int (*create_keyval)(int (*copy)(handle, int, void *, void *, void *, int *), int (*end)(handle, int, void *, void *), int *key, void *extra);
	int (*set_attr)(handle comm, int key, void *value);
} mpi;

static enum { UNKNOWN, FOUND, NEVER } library;
static handle never_ends;
static _Atomic bool ready, inside, over;

/* as_function: C has no conversion between the two kinds of pointers. */
#define as_function(f, name) (*(void **)(void *)&(f) = dlsym(lib, name), (f) != NULL)

static bool bind(void *lib, bool mpich)
{
	mpi.self = mpich ? MPICH_COMM_SELF : (handle)dlsym(lib, "ompi_mpi_comm_self");
	return mpi.self != 0 && as_function(mpi.initialized, "PMPI_Initialized") && as_function(mpi.query_thread, "PMPI_Query_thread") &&
	       as_function(mpi.start, "PMPI_Grequest_start") && as_function(mpi.complete, "PMPI_Grequest_complete") &&
	       as_function(mpi.get_status, "PMPI_Request_get_status") && as_function(mpi.release, "PMPI_Request_free") &&
	       as_function(mpi.create_keyval, "PMPI_Comm_create_keyval") && as_function(mpi.set_attr, "PMPI_Comm_set_attr");
}

/* try_library binds an object of the process, if it is an MPI. */
static int try_library(struct dl_phdr_info *object, size_t bytes, void *arg)
{
	(void)bytes, (void)arg;
	const char *slash = strrchr(object->dlpi_name, '/'), *name = slash == NULL ? object->dlpi_name : slash + 1;
	bool mpich = strncmp(name, "libmpi.so.12", 12) == 0;
	if (!mpich && strncmp(name, "libmpi.so.40", 12) != 0)
		return 0;
	void *lib = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
	return lib != NULL && bind(lib, mpich);
}

static void tell(const char *why)
{
	library = NEVER;
	fprintf(stderr, "outrigger: rank %u: %s=all: %s; messages go on while it computes, and steps of the MPI's own do not\n",
		outrigger_world(client()).rank, OR_NAME_ENV_MPI_PROGRESS, why);
}

static int no_query(void *extra, void *status) { return (void)extra, (void)status, 0; }
static int no_release(void *extra) { return (void)extra, 0; }
static int no_cancel(void *extra, int complete) { return (void)extra, (void)complete, 0; }

static int no_copy(handle comm, int key, void *extra, void *in, void *out, int *flag)
{
	(void)comm, (void)key, (void)extra, (void)in, (void)out;
	*flag = 0;
	return 0;
}

/* on_finalize waits for the attendant to be outside of MPI: it comes in no more. */
static int on_finalize(handle comm, int key, void *value, void *extra)
{
	(void)comm, (void)key, (void)value, (void)extra;
	atomic_store(&over, true);
	uint64_t begun = nanoseconds();
	while (atomic_load(&inside) && nanoseconds() - begun < PATIENCE_NS)
		nap();
	(void)mpi.complete(never_ends);
	(void)mpi.release(&never_ends);
	return 0;
}

/* prepare reports that the MPI can be called. */
static bool prepare(void)
{
	int flag = 0, level = 0, key = 0;
	if (library == UNKNOWN)
		library = dl_iterate_phdr(try_library, NULL) != 0 ? FOUND : UNKNOWN;
	if (library == UNKNOWN)
		tell("the program has neither libmpi.so.12 nor libmpi.so.40");
	if (library == NEVER || mpi.initialized(&flag) != 0 || !flag)
		return false;
	if (mpi.query_thread(&level) != 0 || level < THREAD_MULTIPLE) {
		tell("the program has asked for less than MPI_THREAD_MULTIPLE, by which no other thread may call MPI");
		return false;
	}
	if (mpi.create_keyval(no_copy, on_finalize, &key, NULL) != 0 || mpi.start(no_query, no_release, no_cancel, NULL, &never_ends) != 0 ||
	    mpi.set_attr(mpi.self, key, NULL) != 0) {
		tell("its MPI refuses a generalized request");
		return false;
	}
	atomic_store(&ready, true);
	return true;
}

bool take_steps(uint64_t left)
{
	char status[STATUS_BYTES];
	int flag;
	if (!atomic_load(&ready) && nanoseconds() - left < SETTLED_NS) {
		nap();
		return false;
	}
	if (library == NEVER || atomic_load(&over) || (!atomic_load(&ready) && !prepare()))
		return true;
	atomic_store(&inside, true);
	for (int i = 0; i < CALLS && !atomic_load(&over); i++)
		(void)mpi.get_status(never_ends, &flag, status);
	atomic_store(&inside, false);
	return true;
}
