/* Tests blocking sends of several threads. While they poll by turns, a send that no receive has matched
 * returns, the message is the one at the time of the send, it arrives although its sender makes no
 * further call, and the copies that wait for their receivers are bounded. Prints how many sends of the first part have returned before their receive was posted. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, WARM = 50, ROUNDS = 10, BYTES = 70000, POLLS = 1000, LARGE = 1 << 19, CHUNKS = 300000, PATIENCE_S = 20, FLOOD = 5, COPIES = 16, WAIT_NS = 100000000 };

static int rank;
static MPI_Comm comm[THREADS];
static atomic_int early, returned, wrong;
static pthread_barrier_t all;

/* sent reports whether the other rank says within so many polls that its send has returned. */
static bool sent(MPI_Comm c, int round)
{
	int there = 0;
	for (int i = 0; i < POLLS && !there; i++) {
		MPI_Iprobe(0, ROUNDS + round, c, &there, MPI_STATUS_IGNORE);
		sched_yield();
	}
	return there;
}

static bool is(const char *message, int bytes, char of)
{
	for (int i = 0; i < bytes; i++)
		if (message[i] != of)
			return false;
	return true;
}

static void *talk(void *arg)
{
	int me = (int)(size_t)arg;
	MPI_Comm c = comm[me];
	char *b = malloc(LARGE);
	for (int i = 0; i < WARM; i++) /* so that all threads poll */
		MPI_Sendrecv(NULL, 0, MPI_CHAR, 1 - rank, 0, NULL, 0, MPI_CHAR, 1 - rank, 0, c, MPI_STATUS_IGNORE);
	for (int i = 0; i < ROUNDS; i++) {
		if (rank == 0) {
			memset(b, i + 1, BYTES);
			MPI_Send(b, BYTES, MPI_CHAR, 1, i, c);
			memset(b, 0, BYTES);
			MPI_Send(NULL, 0, MPI_CHAR, 1, ROUNDS + i, c);
			continue;
		}
		early += sent(c, i);
		MPI_Recv(b, BYTES, MPI_CHAR, 0, i, c, MPI_STATUS_IGNORE);
		wrong += !is(b, BYTES, (char)(i + 1));
		MPI_Recv(NULL, 0, MPI_CHAR, 0, ROUNDS + i, c, MPI_STATUS_IGNORE);
	}
	if (rank == 0) {
		memset(b, 1, CHUNKS);
		MPI_Send(b, CHUNKS, MPI_CHAR, 1, 0, c);
	} else {
		MPI_Recv(b, CHUNKS, MPI_CHAR, 0, 0, c, MPI_STATUS_IGNORE);
		wrong += !is(b, CHUNKS, 1);
	}
	pthread_barrier_wait(&all);
	pthread_barrier_wait(&all);
	for (int i = 0; rank == 0 && i < FLOOD; i++) {
		memset(b, i + 1, LARGE);
		MPI_Send(b, LARGE, MPI_CHAR, 1, 2 * ROUNDS + i, c);
		returned++;
	}
	if (rank == 1) {
		nanosleep(&(struct timespec){.tv_nsec = 2 * WAIT_NS}, NULL);
		for (int i = 0; i < FLOOD; i++) {
			MPI_Recv(b, LARGE, MPI_CHAR, 0, 2 * ROUNDS + i, c, MPI_STATUS_IGNORE);
			wrong += !is(b, LARGE, (char)(i + 1));
		}
	}
	free(b);
	return NULL;
}

int main(int argc, char **argv)
{
	int level, in, out = 0;
	pthread_t t[THREADS];
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	out = (int)getpid();
	for (int i = 0; i < THREADS; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
		MPI_Sendrecv(&out, 1, MPI_INT, 1 - rank, 0, &in, 1, MPI_INT, 1 - rank, 0, comm[i], MPI_STATUS_IGNORE);
	}
	pthread_barrier_init(&all, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, talk, (void *)(size_t)i);
	pthread_barrier_wait(&all); /* all have sent or received, and the sender is in no call */
	if (rank == 1) {
		kill(in, SIGUSR1);
	} else if (sigtimedwait(&signals, NULL, &(struct timespec){.tv_sec = PATIENCE_S}) != SIGUSR1) {
		fprintf(stderr, "messages of sends that have returned do not arrive\n");
		MPI_Abort(MPI_COMM_WORLD, 9);
	}
	pthread_barrier_wait(&all);
	nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
	if (returned > COPIES) {
		fprintf(stderr, "%d sends of %d bytes have returned before their receives\n", (int)returned, LARGE);
		MPI_Abort(MPI_COMM_WORLD, 9);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	if (wrong > 0) {
		fprintf(stderr, "%d messages are wrong\n", (int)wrong);
		MPI_Abort(MPI_COMM_WORLD, 9);
	}
	if (rank == 1)
		printf("%s sends have returned before their receives\n", early > 0 ? "some" : "no");
	MPI_Finalize();
	return 0;
}
