// background.c tests progress while both ranks compute and do not call MPI. Each part starts an
// operation, computes until the memory shows that it has completed, and only then calls MPI_Wait.
// An operation that has not completed after TIMEOUT seconds makes no progress.
//
// Usage: background messages|all FILE     all: steps of the MPI's own, too
//
// There are two ranks on one machine. A sender cannot see completion in its own memory: it
// computes until the file that both have mapped says that its message has arrived.
#include <dirent.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT = 20, ROUNDS = 5, TAG = 7, BYTES_MAX = 4 << 20 };

// The provider takes a program that has not polled for this time, in seconds, as one that computes.
static const double GONE = 0.01;

static int rank, round_number, steps;
static double soonest; // shortest time until a message that was sent after empty polls arrived
static _Atomic int *seen; // rounds of which the other side has seen the end
static _Atomic int *gone; // rounds in which the other side has begun to compute
static unsigned char *out, *in;

static void fail(const char *what, int bytes) {
	fprintf(stderr, "rank %d: %s of %d bytes, round %d: it made no progress while the ranks computed\n", rank, what, bytes, round_number);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static volatile unsigned long sink;

// compute computes in registers, for a time much shorter than TIMEOUT.
static void compute(void) {
	unsigned long x = 88172645463325252ul;
	for (int i = 0; i < 20000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink = x;
}

// compute_until computes until a byte of memory that another rank or thread writes has a value.
static void compute_until(const unsigned char *byte, unsigned char value, const char *what, int bytes) {
	double begun = seconds();
	while (*(volatile const unsigned char *)byte != value) {
		compute();
		if (seconds() - begun > TIMEOUT)
			fail(what, bytes);
	}
}

static void compute_until_seen(const char *what, int bytes) {
	double begun = seconds();
	while (atomic_load(seen) < round_number) {
		compute();
		if (seconds() - begun > TIMEOUT)
			fail(what, bytes);
	}
}

static unsigned char pattern(int i) { return (unsigned char)(i * 7 + round_number); }

static void check(const char *what, int bytes) {
	for (int i = 0; i < bytes; i++)
		if (in[i] != pattern(i)) {
			fprintf(stderr, "rank %d: %s of %d bytes, round %d: byte %d is wrong\n", rank, what, bytes, round_number, i);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

// message sends from rank 0 to rank 1. early: the receive is posted first.
static void message(int bytes, int early) {
	MPI_Request r;
	const char *what = early ? "a message to a receive that waits" : "a message before its receive";
	round_number++;
	for (int i = 0; i < bytes; i++)
		out[i] = pattern(i);
	memset(in, pattern(bytes - 1) + 1, (size_t)bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		if (early)
			compute();
		MPI_Isend(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &r);
		compute_until_seen(what, bytes);
	} else {
		for (int i = 0; !early && i < 20; i++)
			compute();
		MPI_Irecv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &r);
		compute_until(&in[bytes - 1], pattern(bytes - 1), what, bytes);
		atomic_store(seen, round_number);
	}
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	if (rank == 1)
		check(what, bytes);
}

// poll_and_compute has rank 1 test for its message tests times, many of which look like waiting, and
// then compute. Rank 0 computes before it sends, for a while or until rank 1 computes.
static void poll_and_compute(int bytes, int tests, int until_gone) {
	MPI_Request r;
	round_number++;
	for (int i = 0; i < bytes; i++)
		out[i] = pattern(i);
	memset(in, pattern(bytes - 1) + 1, (size_t)bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		for (int i = 0; until_gone ? atomic_load(gone) < round_number : i < 100; i++)
			compute();
		MPI_Isend(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &r);
		compute_until_seen("a message after empty polls", bytes);
	} else {
		int over;
		MPI_Irecv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &r);
		for (int i = 0; i < tests; i++)
			MPI_Test(&r, &over, MPI_STATUS_IGNORE);
		double begun = seconds();
		atomic_store(gone, round_number);
		compute_until(&in[bytes - 1], pattern(bytes - 1), "a message after empty polls", bytes);
		if (seconds() - begun < soonest)
			soonest = seconds() - begun;
		atomic_store(seen, round_number);
	}
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	if (rank == 1)
		check("a message after empty polls", bytes);
}

// at_once checks that a message arrives at once if the provider knows that the program has
// returned from its MPI call. On a loaded machine some messages may be late, but not all.
static void at_once(void) {
	soonest = TIMEOUT;
	for (int i = 0; i < 40; i++)
		poll_and_compute(16384, 2, 1);
	if (rank == 1 && soonest >= GONE / 2) {
		fprintf(stderr, "rank 1: after two empty polls the soonest of 40 messages arrived after %.1f ms\n", soonest * 1e3);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static long switches_of(const char *thread) {
	char path[64], line[256];
	long n = 0;
	snprintf(path, sizeof path, "/proc/self/task/%.20s/status", thread);
	FILE *f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL && sscanf(line, "voluntary_ctxt_switches: %ld", &n) != 1)
		;
	if (f != NULL)
		fclose(f);
	return n;
}

// others_slept returns how often threads of this process other than the program's have slept.
static long others_slept(void) {
	long n = 0;
	DIR *tasks = opendir("/proc/self/task");
	for (struct dirent *e; tasks != NULL && (e = readdir(tasks)) != NULL;)
		if (atoi(e->d_name) > 0 && atoi(e->d_name) != getpid())
			n += switches_of(e->d_name);
	if (tasks != NULL)
		closedir(tasks);
	return n;
}

// receive receives by MPI_Recv, or by repeated MPI_Test.
static void receive(char *c, int tests) {
	MPI_Request r;
	if (!tests) {
		MPI_Recv(c, 1, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		return;
	}
	MPI_Irecv(c, 1, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &r);
	for (int over = 0; !over;)
		MPI_Test(&r, &over, MPI_STATUS_IGNORE);
}

// undisturbed checks that a thread that waits for its messages handles them itself, and that no
// other thread is woken for them. It fails only if other threads are woken in all of three runs.
static void undisturbed(int tests) {
	enum { MESSAGES = 5000 };
	char c = 0;
	long woken = MESSAGES, most = MESSAGES; // wake-ups of this rank, and the most of both ranks
	for (int again = 0; again < 3 && most > MESSAGES / 4; again++) {
		long before = others_slept();
		for (int i = 0; i < MESSAGES; i++)
			if (rank == 0) {
				MPI_Send(&c, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
				receive(&c, tests);
			} else {
				receive(&c, tests);
				MPI_Send(&c, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
			}
		long now = others_slept() - before;
		woken = now < woken ? now : woken;
		MPI_Allreduce(&woken, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
	}
	if (woken > MESSAGES / 4) {
		fprintf(stderr, "rank %d: another thread was woken %ld times for %d messages that the program waited for%s\n", rank, woken, MESSAGES, tests ? " by MPI_Test" : "");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

// access_window has rank 0 put into the window of rank 1, which computes until it sees the data,
// and get it back. With MPI_MODE_NOCHECK an MPI that implements locks by messages needs no message
// for the lock.
static void access_window(MPI_Win w, unsigned char *memory, int bytes) {
	round_number++;
	for (int i = 0; i < bytes; i++)
		out[i] = pattern(i);
	memory[bytes - 1] = pattern(bytes - 1) + 1;
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		MPI_Win_lock(MPI_LOCK_SHARED, 1, steps ? 0 : MPI_MODE_NOCHECK, w);
		MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, w);
		MPI_Win_flush(1, w);
		MPI_Get(in, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, w);
		MPI_Win_unlock(1, w);
		check("put and get", bytes);
		atomic_store(seen, round_number);
	} else {
		compute_until(&memory[bytes - 1], pattern(bytes - 1), "a put", bytes);
		compute_until_seen("a get", bytes);
	}
}

// add_deep is the operator of a sum with large arrays on its stack, as Fortran functions have them:
// larger than the default stack of a library's thread.
static void add_deep(void *in_, void *sum_, int *n, MPI_Datatype *type) {
	volatile char deep[3 << 20];
	const double *a = in_;
	double *sum = sum_;
	(void)type;
	for (size_t i = 0; i < sizeof deep; i += 512)
		deep[i] = 1;
	for (int i = 0; i < *n; i++)
		sum[i] += a[i] * deep[0];
}

// allreduce has both ranks compute until the last element of the sum has arrived. Other elements
// may arrive later: MPI_Wait returns when all have.
static void allreduce(int bytes, MPI_Op add) {
	int n = bytes / (int)sizeof(double);
	volatile double *sum = (volatile double *)in;
	MPI_Request r;
	round_number++;
	for (int i = 0; i < n; i++)
		((double *)out)[i] = rank + i + round_number;
	memset(in, 0, (size_t)bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Iallreduce(out, in, n, MPI_DOUBLE, add, MPI_COMM_WORLD, &r);
	double begun = seconds(), want = 1 + 2.0 * (n - 1 + round_number), first = 1 + 2.0 * round_number;
	while (sum[n - 1] != want || sum[0] != first) {
		compute();
		if (seconds() - begun > TIMEOUT)
			fail("a sum", bytes);
	}
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	for (int i = 0; i < n; i++)
		if (((double *)in)[i] != 1 + 2.0 * (i + round_number)) {
			fprintf(stderr, "rank %d: a sum of %d bytes, round %d: element %d is wrong\n", rank, bytes, round_number, i);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

// map_file maps two words that both ranks share.
static void map_file(const char *name) {
	int fd = open(name, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 4096) != 0) {
		perror(name);
		exit(1);
	}
	seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	gone = seen + 1;
	close(fd);
}

int main(int argc, char **argv) {
	static const int sizes[] = {16384, 65536, 262144, 1 << 20, BYTES_MAX};
	if (argc != 3)
		return 2;
	steps = strcmp(argv[1], "all") == 0;
	map_file(argv[2]);
	out = calloc(1, BYTES_MAX);
	in = calloc(1, BYTES_MAX);
	if (steps) { // asks for a lower level than the steps need
		int provided;
		MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
	} else {
		MPI_Init(&argc, &argv);
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < ROUNDS; i++)
		for (int s = 0; s < 5; s++) {
			message(sizes[s], 1);
			message(sizes[s], 0);
		}
	for (int s = 0; s < 5; s++)
		poll_and_compute(sizes[s], 20, 0);
	if (steps) {
		at_once();
		undisturbed(0);
		undisturbed(1);
	}
	MPI_Win w;
	unsigned char *memory;
	MPI_Win_allocate(BYTES_MAX, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &w);
	for (int i = 0; i < ROUNDS; i++)
		for (int s = 0; s < 5; s++)
			access_window(w, memory, sizes[s]);
	MPI_Win_free(&w);
	MPI_Op deep;
	MPI_Op_create(add_deep, 1, &deep);
	for (int i = 0; steps && i < ROUNDS; i++)
		for (int s = 0; s < 5; s++)
			allreduce(sizes[s], i % 2 == 0 ? MPI_SUM : deep);
	MPI_Op_free(&deep);
	MPI_Finalize();
	if (rank == 0)
		printf("all went on while the ranks computed\n");
	return 0;
}
