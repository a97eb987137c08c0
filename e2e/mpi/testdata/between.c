// between.c is a tool of the profiling interface (MPI 4.1, 15.2) that observes which threads are in
// the MPI: the program, in some functions, and the thread that makes steps
// (OUTRIGGER_MPI_PROGRESS=all), in the function that it calls. At the end it prints the number of
// steps, and how often both were in the MPI.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static atomic_int program, step, steps, both;

// stay sleeps long enough for the other thread to enter.
static void stay(void) { nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }

static void enter(void) {
	atomic_fetch_add(&program, 1);
	stay();
	both += atomic_load(&step);
}

static int leave(int rc) {
	both += atomic_load(&step);
	atomic_fetch_sub(&program, 1);
	return rc;
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
	enter();
	return leave(PMPI_Isend(buf, count, type, to, tag, comm, request));
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
	enter();
	return leave(PMPI_Irecv(buf, count, type, from, tag, comm, request));
}

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request) {
	enter();
	return leave(PMPI_Iallreduce(in, out, count, type, op, comm, request));
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
	enter();
	return leave(PMPI_Waitall(count, requests, statuses));
}

// The function with the most arguments, some of which are passed on the stack.
int MPI_Rget_accumulate(const void *origin, int origins, MPI_Datatype origin_type, void *result, int results, MPI_Datatype result_type, int target,
			MPI_Aint at, int targets, MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request) {
	enter();
	return leave(PMPI_Rget_accumulate(origin, origins, origin_type, result, results, result_type, target, at, targets, target_type, op, win, request));
}

int PMPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
	static int (*next)(MPI_Request, int *, MPI_Status *);
	void *symbol = dlsym(RTLD_NEXT, "PMPI_Request_get_status");
	memcpy(&next, &symbol, sizeof next);
	atomic_store(&step, 1);
	steps++;
	stay();
	both += atomic_load(&program) > 0;
	int rc = next(request, flag, status);
	both += atomic_load(&program) > 0;
	atomic_store(&step, 0);
	return rc;
}

int MPI_Finalize(void) {
	int rc = PMPI_Finalize();
	printf("between: %s steps, both inside %d times\n", atomic_load(&steps) > 0 ? "some" : "no", atomic_load(&both));
	return rc;
}
