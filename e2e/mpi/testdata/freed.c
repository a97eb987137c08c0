/* Tests whether Open MPI frees the request of every completed send if another thread than the one
 * that waits for it completes it. Open MPI counts the users of a communicator, of which each
 * request is one: the program prints the excess afterwards, and exits with 0 in any case. */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 20000, TAG = 5 };

/* The first members of a communicator (opal/class/opal_object.h). */
struct object {
	void *class;
	volatile int users;
};

static int users(void)
{
	return ((const struct object *)MPI_COMM_WORLD)->users;
}

static atomic_bool done;

static int no_query(void *state, MPI_Status *status)
{
	(void)state, (void)status;
	return MPI_SUCCESS;
}

static int no_free(void *state)
{
	(void)state;
	return MPI_SUCCESS;
}

static int no_cancel(void *state, int complete)
{
	(void)state, (void)complete;
	return MPI_SUCCESS;
}

/* complete_others runs in the other thread. It waits for a request that only this thread completes, and
 * meanwhile completes the requests of the first thread. */
static void *complete_others(void *arg)
{
	MPI_Request never;
	MPI_Grequest_start(no_query, no_free, no_cancel, NULL, &never);
	for (int ended; !atomic_load(&done);)
		MPI_Request_get_status(never, &ended, MPI_STATUS_IGNORE);
	MPI_Grequest_complete(never);
	MPI_Wait(&never, MPI_STATUS_IGNORE);
	return arg;
}

/* send_all sends synchronous messages, which complete by the receiver's answer while their
 * sender waits. */
static void send_all(void)
{
	char letter = 0;
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Request sent;
		MPI_Issend(&letter, 1, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &sent);
		MPI_Waitall(1, &sent, MPI_STATUSES_IGNORE);
	}
}

/* receive_all receives, and leaves the CPUs to the two threads of the sender. */
static void receive_all(void)
{
	char letter;
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Request got;
		MPI_Irecv(&letter, 1, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &got);
		for (int ended = 0; !ended; MPI_Test(&got, &ended, MPI_STATUS_IGNORE))
			usleep(20);
	}
}

int main(int argc, char **argv)
{
	int level, rank;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	int before = users();
	MPI_Request open;
	MPI_Irecv(NULL, 0, MPI_CHAR, rank, TAG + 1, MPI_COMM_WORLD, &open);
	if (level != MPI_THREAD_MULTIPLE || users() != before + 1) {
		fprintf(stderr, "thread level %d, %d users and with a request %d\n", level, before, users());
		MPI_Abort(MPI_COMM_WORLD, 9);
	}
	MPI_Cancel(&open);
	MPI_Wait(&open, MPI_STATUS_IGNORE);
	if (rank == 0) {
		pthread_t other;
		pthread_create(&other, NULL, complete_others, NULL);
		send_all();
		atomic_store(&done, true);
		pthread_join(other, NULL);
		printf("%d users too many after %d sends\n", users() - before, ROUNDS);
	} else if (rank == 1) {
		receive_all();
	}
	MPI_Finalize();
	return 0;
}
