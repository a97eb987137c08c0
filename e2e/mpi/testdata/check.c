/*
 * An MPI program without any knowledge of Outrigger: every size both ways around a
 * ring, wildcards, probes, many messages at once, collectives, and groups. It
 * checks every byte. An argument is the size in MiB of an additional message.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void must(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

static unsigned char byte(int from, size_t n, size_t at) { return (unsigned char)(at * 7 + at / 253 + n + (size_t)from * 31); }

static void ring(size_t n)
{
	unsigned char *out = malloc(n + 1), *in = malloc(n + 1);
	int to = (rank + 1) % size, from = (rank + size - 1) % size, got;
	MPI_Request r[2];
	MPI_Status s[2];
	must(out != NULL && in != NULL, "no memory");
	for (size_t i = 0; i < n; i++)
		out[i] = byte(rank, n, i);
	MPI_Irecv(in, (int)n, MPI_BYTE, n % 2 ? MPI_ANY_SOURCE : from, 7, MPI_COMM_WORLD, &r[0]);
	MPI_Isend(out, (int)n, MPI_BYTE, to, 7, MPI_COMM_WORLD, &r[1]);
	MPI_Waitall(2, r, s);
	MPI_Get_count(&s[0], MPI_BYTE, &got);
	must((size_t)got == n && s[0].MPI_SOURCE == from && s[0].MPI_TAG == 7, "a message's length, source or tag");
	for (size_t i = 0; i < n; i++)
		must(in[i] == byte(from, n, i), "a byte of a message");
	MPI_Barrier(MPI_COMM_WORLD); /* otherwise the next receive from any source could match it */
	free(out);
	free(in);
}

/* many sends many messages from each rank to rank 0, which receives from any source. */
static void many(void)
{
	enum { N = 300 };
	if (rank != 0) {
		static int v[N][4];
		MPI_Request r[N];
		for (int i = 0; i < N; i++) {
			v[i][0] = i;
			v[i][1] = rank;
			MPI_Isend(v[i], 4, MPI_INT, 0, i % 5, MPI_COMM_WORLD, &r[i]);
		}
		MPI_Waitall(N, r, MPI_STATUSES_IGNORE);
		return;
	}
	int *next = calloc((size_t)size * 5, sizeof *next);
	for (int i = 0; i < N * (size - 1); i++) {
		int v[4];
		MPI_Status p, s;
		MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &p);
		MPI_Recv(v, 4, MPI_INT, p.MPI_SOURCE, p.MPI_TAG, MPI_COMM_WORLD, &s);
		must(v[1] == s.MPI_SOURCE && v[0] % 5 == s.MPI_TAG, "what came is not what the probe saw");
		int *at = &next[s.MPI_SOURCE * 5 + s.MPI_TAG];
		must(v[0] == *at * 5 + s.MPI_TAG, "messages of one rank and tag out of order");
		++*at;
	}
	free(next);
}

/* matched sends a synchronous message, and one that a matched probe receives. They are
 * not the same message: Open MPI 4.1 would hang with every libfabric provider
 * (docs/mpi.md). */
static void matched(void)
{
	if (size < 2)
		return;
	if (rank == 1) {
		double v[3] = {1, 2, 3};
		MPI_Send(v, 3, MPI_DOUBLE, 0, 70, MPI_COMM_WORLD);
		MPI_Ssend(v, 3, MPI_DOUBLE, 0, 71, MPI_COMM_WORLD);
	} else if (rank == 0) {
		MPI_Message m;
		MPI_Status s;
		double v[3];
		MPI_Mprobe(1, 70, MPI_COMM_WORLD, &m, &s);
		MPI_Mrecv(v, 3, MPI_DOUBLE, &m, &s);
		must(v[2] == 3, "a matched message");
		MPI_Recv(v, 3, MPI_DOUBLE, 1, 71, MPI_COMM_WORLD, &s);
		must(v[1] == 2, "a synchronous message");
	}
}

static void cancelled(void)
{
	MPI_Request r;
	MPI_Status s;
	int v, yes;
	MPI_Irecv(&v, 1, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &r);
	MPI_Cancel(&r);
	MPI_Wait(&r, &s);
	MPI_Test_cancelled(&s, &yes);
	must(yes, "a receive that matches no message is not cancelled");
}

static void groups(void)
{
	MPI_Comm half;
	int sum, mine, n;
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	MPI_Comm_size(half, &n);
	MPI_Comm_rank(half, &mine);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
	int want = 0;
	for (int r = rank % 2; r < size; r += 2)
		want += r;
	must(sum == want && n == (size + 1 - rank % 2) / 2 && mine == n - 1 - rank / 2, "a sum or a place in half of the ranks");
	MPI_Comm_free(&half);
}

static void collectives(void)
{
	enum { N = 100000 };
	static double in[N], out[N];
	int *all = malloc((size_t)size * sizeof *all), *back = malloc((size_t)size * sizeof *back);
	for (int i = 0; i < N; i++)
		in[i] = rank + i;
	MPI_Allreduce(in, out, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < N; i++)
		must(out[i] == (double)size * i + size * (size - 1) / 2.0, "an element of a sum");
	for (int i = 0; i < size; i++)
		all[i] = rank * 1000 + i;
	MPI_Alltoall(all, 1, MPI_INT, back, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		must(back[i] == i * 1000 + rank, "an element of all to all");
	MPI_Bcast(out, N, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
	free(all);
	free(back);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {0, 1, 8, 31, 32, 33, 1000, 4096, 8191, 8192, 8193, 16384, 65536, 65537, 1 << 20, (3 << 20) + 1};
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		ring(sizes[i]);
	many();
	MPI_Barrier(MPI_COMM_WORLD);
	matched();
	cancelled();
	groups();
	collectives();
	if (argc > 1)
		ring((size_t)atoi(argv[1]) << 20);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("checked over %d ranks\n", size);
	MPI_Finalize();
	return 0;
}
