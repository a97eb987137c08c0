/* Tests accesses to a window of a rank that computes: rank 1 calls no function of MPI until rank 0
 * has put, added and read, which it sees in memory that both have mapped. The locks are
 * MPI_MODE_NOCHECK, because some MPIs ask the target's process for others.
 *
 * Usage: computes FILE THREADS ADDS
 * THREADS: whether a window may add a thread to the process: 0 or 1
 * ADDS: whether the network adds: 0 or 1; otherwise the MPI asks the target's process to */
#include <dirent.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT = 20, NUMBERS = 5000, ROUNDS = 3, PHASES = 21, PUTS = 2000 };

static int rank;

static void want(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int threads(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	while (d != NULL && readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

/* compute_until computes until the word has the value. */
static void compute_until(_Atomic int *word, int value)
{
	static volatile double x = 1;
	for (double begun = seconds(); atomic_load(word) != value;) {
		for (int i = 0; i < 100000; i++)
			x = x * 1.0000001 + 1e-9;
		want(seconds() - begun < TIMEOUT, "no access has ended while this rank computed");
	}
}

static void access_all(MPI_Win w, const int *out, int *in, int n, int adds)
{
	MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOCHECK, w);
	MPI_Put(out, n, MPI_INT, 1, 0, n, MPI_INT, w);
	MPI_Win_flush(1, w);
	if (adds)
		MPI_Accumulate(out, n, MPI_INT, 1, 0, n, MPI_INT, MPI_SUM, w);
	MPI_Win_flush(1, w);
	MPI_Get(in, n, MPI_INT, 1, 0, n, MPI_INT, w);
	MPI_Win_unlock(1, w);
}

static int longer(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

/* put_in_phases puts a number in each of PHASES phases between two barriers in which rank 1 computes,
 * and prints the median of the milliseconds. */
static void put_in_phases(MPI_Win w, _Atomic int *over)
{
	double took[PHASES];
	for (int phase = 0; phase < PHASES; phase++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1) {
			compute_until(over, ROUNDS + 1 + phase);
			continue;
		}
		double begun = seconds();
		MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOCHECK, w);
		MPI_Put(&phase, 1, MPI_INT, 1, 0, 1, MPI_INT, w);
		MPI_Win_unlock(1, w);
		took[phase] = (seconds() - begun) * 1e3;
		atomic_store(over, ROUNDS + 1 + phase);
	}
	if (rank != 0)
		return;
	qsort(took, PHASES, sizeof *took, longer);
	printf("a put to a rank that computes: median of %d phases %.1f ms, most %.1f\n", PHASES, took[PHASES / 2], took[PHASES - 1]);
}

/* switches returns how often this process has slept. */
static long switches(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_nvcsw;
}

/* put_at_waiting puts and flushes PUTS times in each of some rounds, in which rank 1 waits in a barrier, and
 * prints how often rank 1 slept for each: the least of the rounds. */
static void put_at_waiting(MPI_Win w)
{
	double least = PUTS;
	for (int round = 0; round < 5; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		long before = switches();
		if (rank == 0) {
			MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOCHECK, w);
			for (int i = 0; i < PUTS; i++) {
				MPI_Put(&i, 1, MPI_INT, 1, 0, 1, MPI_INT, w);
				MPI_Win_flush(1, w);
			}
			MPI_Win_unlock(1, w);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		double each = (double)(switches() - before) / PUTS;
		least = each < least ? each : least;
	}
	if (rank == 1)
		printf("a rank that waits slept %.2f times for each put\n", least);
}

int main(int argc, char **argv)
{
	static int out[NUMBERS], in[NUMBERS], own[NUMBERS];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	int may = atoi(argv[2]), adds = atoi(argv[3]), fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	want(fd >= 0 && ftruncate(fd, 4096) == 0, argv[1]);
	_Atomic int *over = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	want(over != MAP_FAILED, "mmap");
	MPI_Barrier(MPI_COMM_WORLD);
	int before = threads();
	MPI_Win w;
	MPI_Win_create(own, sizeof own, sizeof *own, MPI_INFO_NULL, MPI_COMM_WORLD, &w);
	want(threads() <= before + may, "the window has added a thread");
	static const int lengths[] = {1, 100, NUMBERS};
	for (int round = 0; may && round < ROUNDS; round++) {
		int n = lengths[round];
		for (int i = 0; i < n; i++)
			out[i] = 1000 * (round + 1) + i;
		MPI_Barrier(MPI_COMM_WORLD);
		double begun = seconds();
		if (rank == 1) {
			compute_until(over, round + 1);
		} else {
			access_all(w, out, in, n, adds);
			printf("%d numbers: put, %sread in %.1f ms\n", n, adds ? "added, " : "", (seconds() - begun) * 1e3);
			atomic_store(over, round + 1);
		}
		for (int i = 0; rank == 0 && i < n; i++)
			want(in[i] == (1 + adds) * out[i], "what was put, added and read is wrong");
		MPI_Barrier(MPI_COMM_WORLD);
	}
	if (may)
		put_in_phases(w, over);
	put_at_waiting(w);
	MPI_Win_free(&w);
	if (rank == 0)
		puts("the accesses ended while the target computed");
	MPI_Finalize();
	return 0;
}
