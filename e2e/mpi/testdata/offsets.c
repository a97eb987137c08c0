/*
 * Tests types whose data does not begin at the address of the buffer, in every function that
 * sends, and synchronous messages that a probe finds. The receiver checks all values.
 * Open MPI before 4.1.6 sends the beginning of the buffer by persistent requests over pml cm,
 * and no Open MPI 4 acknowledges a probed synchronous message over mtl ofi.
 */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 8
#define COLUMNS 100
#define CELLS (ROWS * COLUMNS)

static int rank, size, wrong;
static double from[CELLS], into[CELLS];

static void check(int good, const char *call, const char *type)
{
	if (good)
		return;
	wrong++;
	printf("wrong: rank %d: %s of %s: the first element is %.0f\n", rank, call, type, into[0]);
}

/* layout is a type, and the elements of the buffer that it selects, in order. */
struct layout {
	const char *name;
	MPI_Datatype type;
	int elements, at[CELLS];
	ptrdiff_t shift; /* offset of the address that is passed, in elements */
	int count;
};

static void commit(struct layout *l, MPI_Datatype type)
{
	l->type = type;
	MPI_Type_commit(&l->type);
}

static int layouts(struct layout *l)
{
	int n = 0, full[] = {ROWS, COLUMNS}, part[] = {2, COLUMNS}, narrow[] = {3, 7}, first[] = {4, 0}, inner[] = {2, 9};
	int lengths[] = {5, 11}, ahead[] = {40, 200}, back[] = {300, 10}, whole = 200, far = 400;
	MPI_Aint low = -80, high = 160, zero = 0;
	MPI_Datatype t, u;

	l[n] = (struct layout){.name = "rows", .count = 1};
	MPI_Type_create_subarray(2, full, part, first, MPI_ORDER_C, MPI_DOUBLE, &t);
	commit(&l[n], t);
	for (int i = 0; i < 2 * COLUMNS; i++)
		l[n].at[l[n].elements++] = 4 * COLUMNS + i;

	l[++n] = (struct layout){.name = "a block", .count = 1};
	MPI_Type_create_subarray(2, full, narrow, inner, MPI_ORDER_C, MPI_DOUBLE, &t);
	commit(&l[n], t);
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 7; j++)
			l[n].at[l[n].elements++] = (2 + i) * COLUMNS + 9 + j;

	l[++n] = (struct layout){.name = "one index", .count = 1};
	MPI_Type_indexed(1, &whole, &far, MPI_DOUBLE, &t);
	commit(&l[n], t);
	for (int i = 0; i < whole; i++)
		l[n].at[l[n].elements++] = far + i;

	l[++n] = (struct layout){.name = "indices", .count = 1};
	MPI_Type_indexed(2, lengths, ahead, MPI_DOUBLE, &t);
	commit(&l[n], t);
	for (int b = 0; b < 2; b++)
		for (int i = 0; i < lengths[b]; i++)
			l[n].at[l[n].elements++] = ahead[b] + i;

	l[++n] = (struct layout){.name = "indices backwards", .count = 1};
	MPI_Type_indexed(2, lengths, back, MPI_DOUBLE, &t);
	commit(&l[n], t);
	for (int b = 0; b < 2; b++)
		for (int i = 0; i < lengths[b]; i++)
			l[n].at[l[n].elements++] = back[b] + i;

	l[++n] = (struct layout){.name = "a negative lower bound", .count = 1, .shift = 60};
	MPI_Type_create_hindexed(1, &lengths[1], &low, MPI_DOUBLE, &t);
	commit(&l[n], t);
	for (int i = 0; i < lengths[1]; i++)
		l[n].at[l[n].elements++] = 50 + i;

	l[++n] = (struct layout){.name = "a structure", .count = 1};
	t = MPI_DOUBLE;
	MPI_Type_create_struct(1, &lengths[0], &high, &t, &u);
	commit(&l[n], u);
	for (int i = 0; i < lengths[0]; i++)
		l[n].at[l[n].elements++] = 20 + i;

	l[++n] = (struct layout){.name = "several with gaps before each", .count = 3};
	MPI_Type_create_hindexed(1, &lengths[0], &high, MPI_DOUBLE, &t);
	MPI_Type_create_resized(t, zero, 200 * (MPI_Aint)sizeof(double), &u);
	commit(&l[n], u);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < lengths[0]; i++)
			l[n].at[l[n].elements++] = 200 * k + 20 + i;

	l[++n] = (struct layout){.name = "several without gaps", .count = 4};
	MPI_Type_create_hindexed(1, &lengths[0], &high, MPI_DOUBLE, &t);
	commit(&l[n], t);
	for (int i = 0; i < 4 * lengths[0]; i++)
		l[n].at[l[n].elements++] = 20 + i;

	l[++n] = (struct layout){.name = "doubles", .count = 77};
	commit(&l[n], MPI_DOUBLE);
	for (int i = 0; i < 77; i++)
		l[n].at[l[n].elements++] = i;
	return n + 1;
}

enum call { SEND, ISEND, SSEND, BSEND, ISSEND, IBSEND, SEND_INIT, SSEND_INIT, BSEND_INIT, RSEND_INIT, SENDRECV, CALLS };
static const char *const names[] = {"MPI_Send", "MPI_Isend", "MPI_Ssend", "MPI_Bsend", "MPI_Issend", "MPI_Ibsend", "MPI_Send_init", "MPI_Ssend_init", "MPI_Bsend_init", "MPI_Rsend_init", "MPI_Sendrecv"};

static void start(enum call c, const struct layout *l, int to)
{
	const double *buf = from + l->shift;
	MPI_Request r = MPI_REQUEST_NULL;
	double got;
	int n = l->count;
	MPI_Comm w = MPI_COMM_WORLD;
	if (c == RSEND_INIT) /* its receive is posted first */
		MPI_Recv(NULL, 0, MPI_BYTE, to, 2, w, MPI_STATUS_IGNORE);
	switch (c) {
	case SEND: MPI_Send(buf, n, l->type, to, 1, w); break;
	case SSEND: MPI_Ssend(buf, n, l->type, to, 1, w); break;
	case BSEND: MPI_Bsend(buf, n, l->type, to, 1, w); break;
	case ISEND: MPI_Isend(buf, n, l->type, to, 1, w, &r); break;
	case ISSEND: MPI_Issend(buf, n, l->type, to, 1, w, &r); break;
	case IBSEND: MPI_Ibsend(buf, n, l->type, to, 1, w, &r); break;
	case SEND_INIT: MPI_Send_init(buf, n, l->type, to, 1, w, &r); break;
	case SSEND_INIT: MPI_Ssend_init(buf, n, l->type, to, 1, w, &r); break;
	case BSEND_INIT: MPI_Bsend_init(buf, n, l->type, to, 1, w, &r); break;
	case RSEND_INIT: MPI_Rsend_init(buf, n, l->type, to, 1, w, &r); break;
	default: MPI_Sendrecv(buf, n, l->type, to, 1, &got, 1, MPI_DOUBLE, to, 3, w, MPI_STATUS_IGNORE); break;
	}
	if (c >= SEND_INIT && c <= RSEND_INIT) {
		MPI_Start(&r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		MPI_Request_free(&r);
	} else if (r != MPI_REQUEST_NULL) {
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	}
}

/* taking is how a message is received: as plain elements, with the same type, or after a probe. */
enum taking { PLAIN, TYPED, PROBED, TAKINGS };

static void take(enum call c, enum taking how, const struct layout *l)
{
	MPI_Comm w = MPI_COMM_WORLD;
	double one = 1;
	int good = 1, found = 0;
	MPI_Message m;
	MPI_Request r;
	for (int i = 0; i < CELLS; i++)
		into[i] = -1;
	if (c == RSEND_INIT) {
		MPI_Irecv(into, l->elements, MPI_DOUBLE, 0, 1, w, &r);
		MPI_Send(NULL, 0, MPI_BYTE, 0, 2, w);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		how = PLAIN;
	} else if (how == PLAIN) {
		MPI_Recv(into, l->elements, MPI_DOUBLE, 0, 1, w, MPI_STATUS_IGNORE);
	} else if (how == TYPED) {
		MPI_Recv(into + l->shift, l->count, l->type, 0, 1, w, MPI_STATUS_IGNORE);
	} else {
		if (c % 2 == 0)
			MPI_Mprobe(MPI_ANY_SOURCE, 1, w, &m, MPI_STATUS_IGNORE);
		else
			while (!found)
				MPI_Improbe(0, MPI_ANY_TAG, w, &found, &m, MPI_STATUS_IGNORE);
		if (c % 2 == 0) {
			MPI_Mrecv(into, l->elements, MPI_DOUBLE, &m, MPI_STATUS_IGNORE);
		} else {
			MPI_Imrecv(into, l->elements, MPI_DOUBLE, &m, &r);
			MPI_Wait(&r, MPI_STATUS_IGNORE);
		}
	}
	if (c == SENDRECV)
		MPI_Send(&one, 1, MPI_DOUBLE, 0, 3, w);
	for (int i = 0; i < l->elements; i++)
		good &= into[how == TYPED ? l->at[i] : i] == l->at[i];
	check(good, names[c], l->name);
}

/* all_to_all sends each rank's row of blocks, in reverse order. */
static void all_to_all(int neighbours)
{
	int n = 6, *ones = malloc((size_t)size * sizeof *ones), *zeros = calloc((size_t)size, sizeof *zeros);
	MPI_Aint *far = calloc((size_t)size, sizeof *far);
	MPI_Datatype *out = malloc((size_t)size * sizeof *out), *in = malloc((size_t)size * sizeof *in);
	double *a = malloc((size_t)(size * n) * sizeof *a), *b = malloc((size_t)(size * n) * sizeof *b);
	MPI_Comm graph = MPI_COMM_NULL;
	MPI_Request r = MPI_REQUEST_NULL;
	for (int i = 0; i < size * n; i++)
		a[i] = rank * 1000 + i;
	for (int p = 0; p < size; p++) {
		int total = size * n, here = p * n, there = (size - 1 - p) * n;
		ones[p] = 1;
		MPI_Type_create_subarray(1, &total, &n, &here, MPI_ORDER_C, MPI_DOUBLE, &out[p]);
		MPI_Type_create_subarray(1, &total, &n, &there, MPI_ORDER_C, MPI_DOUBLE, &in[p]);
		MPI_Type_commit(&out[p]);
		MPI_Type_commit(&in[p]);
	}
	if (neighbours) {
		int *peers = malloc((size_t)size * sizeof *peers);
		for (int p = 0; p < size; p++)
			peers[p] = p;
		MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, size, peers, ones, size, peers, ones, MPI_INFO_NULL, 0, &graph);
		free(peers);
	}
	for (int blocking = 0; blocking < 2; blocking++) {
		memset(b, 0, (size_t)(size * n) * sizeof *b);
		if (neighbours && blocking)
			MPI_Neighbor_alltoallw(a, ones, far, out, b, ones, far, in, graph);
		else if (neighbours)
			MPI_Ineighbor_alltoallw(a, ones, far, out, b, ones, far, in, graph, &r);
		else if (blocking)
			MPI_Alltoallw(a, ones, zeros, out, b, ones, zeros, in, MPI_COMM_WORLD);
		else
			MPI_Ialltoallw(a, ones, zeros, out, b, ones, zeros, in, MPI_COMM_WORLD, &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		int good = 1;
		for (int p = 0; p < size; p++)
			for (int i = 0; i < n; i++)
				good &= b[(size - 1 - p) * n + i] == p * 1000 + rank * n + i;
		check(good, neighbours ? "MPI_Neighbor_alltoallw" : "MPI_Alltoallw", blocking ? "blocks, blocking" : "blocks");
	}
	if (neighbours)
		MPI_Comm_free(&graph);
	free(ones), free(zeros), free(far), free(out), free(in), free(a), free(b);
}

int main(int argc, char **argv)
{
	static struct layout l[16];
	static char space[1 << 20];
	int all = 0, tries = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Buffer_attach(space, sizeof space);
	for (int i = 0; i < CELLS; i++)
		from[i] = i;
	int kinds = layouts(l);
	for (int c = 0; c < CALLS; c++)
		for (int how = 0; how < TAKINGS; how++)
			for (int k = 0; k < kinds; k++, tries++) {
				if (rank == 0)
					start((enum call)c, &l[k], size - 1);
				if (rank == size - 1)
					take((enum call)c, (enum taking)how, &l[k]);
			}
	all_to_all(0);
	all_to_all(1);
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("offsets: %d of %d wrong\n", all, tries);
	MPI_Finalize();
	return all != 0;
}
