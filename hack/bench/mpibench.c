// mpibench.c: the figures that Outrigger is compared with, from any MPI.
//
// `outrigger bench` follows the same method, so that a ratio of the two is a
// ratio of systems and not of programs. Two ranks; rank 0 measures and prints.
//
// THE METHOD
//
// Buffers. One send and one receive buffer a rank, page-aligned, written once
// before the first use and then used again for every message of every test.
//
// latency: ping-pong with blocking send and receive of 8 B .. 4 MiB in powers
//   of two. 100 round trips of warm-up, then N round trips, N = 10,000 up to
//   1 KiB, 1,000 up to 64 KiB, 100 above. Latency = time / (2 N): half a round
//   trip. Reported: "us", the median of 5 repetitions, and "us_min", their
//   minimum, in microseconds.
//
// bandwidth: one direction, 64 KiB .. 4 MiB in powers of two. A window is W
//   isends completed by one waitall, received by W irecvs posted before the
//   window's first byte is awaited; the receiver answers the window with a
//   4-byte message and the sender waits for it. W = 64, but 16 at 4 MiB. One
//   window of warm-up, then K windows, K = 20 up to 1 MiB, 10 above. Bandwidth
//   = bytes * W * K / time, acknowledgements included. Reported: "mb_s" in 10^6
//   bytes a second, the median of 5 repetitions.
//
// rate: the same with 8-byte messages, W = 64, K = 1,000, 10 windows of
//   warm-up. Reported: "msg_s", messages a second, the median of 5 repetitions.
//
// overlap: how much of a transfer hides behind computing, at 64 KiB and 1 MiB,
//   for side "isend" (rank 0 computes) and side "irecv" (rank 1 computes), and
//   mode "one" (the other rank only waits) and "both" (both compute, and then
//   the two sides are one measurement, printed under both names).
//   A sample is one message from rank 0 to rank 1. Both ranks start at the same
//   instant of CLOCK_MONOTONIC, agreed beforehand (they are on one machine):
//   a rank posts (isend or irecv), computes if the mode has it compute, and waits.
//   The sample lasts until the LATER of the two ranks has returned from wait:
//   a sender that parks the message in a socket and returns has hidden nothing.
//     t_transfer  a sample in which no rank computes
//     t_compute   the computing alone, without a message, on the same ranks at
//                 the same time, until the later one is done
//     t_total     a sample with the computing
//     overlap   = 1 - (t_total - t_compute) / t_transfer
//   Computing is a fixed amount of arithmetic in registers that makes no call,
//   sized beforehand to last 1.5 t_transfer; never "until the clock says", which
//   would hide a core taken by a progress thread of the other system.
//   A repetition takes 50 triples of samples (transfer, compute, total in
//   turn, so that a drift of the machine meets all three) and computes overlap
//   from the three medians. Reported: "overlap", the median of 5 repetitions,
//   and the medians of the three times in microseconds. 1 is all hidden, 0
//   nothing; a value outside 0..1 is noise and is printed as it is. "hidden" is the
//   fraction of samples of which more than half of the transfer was hidden: if samples
//   are of two kinds, the median is one of them by chance, and this shows how many there
//   are of each. "starting" is the time of the call that starts the transfer, on the rank
//   that then computes, as a fraction of t_transfer, the median of all samples: work that
//   an MPI does there, such as copying its argument, cannot be hidden.
//
// iallreduce: the same for a sum of doubles of so many bytes in all, of two ranks:
//   mode "one" is rank 0 computing, "both" is what IMB-NBC measures.
//
// The third argument `short` is for hack/bench/mpi.sh, which has many MPIs to go
//   through in a short time: latency at 8 B, 8 KiB, 64 KiB and 1 MiB, bandwidth at the
//   last three, overlap of mode "one" at 64 KiB, 256 KiB, 1 MiB and 4 MiB and iallreduce
//   there, 3 repetitions instead of 5. `speed` is latency and bandwidth of these alone, and
//   `puts` one-sided operations alone: rank 1 waits in a barrier.
//   Their figures are of a steady state; the scheduler may take 0.1 s to distribute the
//   processes:
//   - latency: round trips for 0.3 s before the first repetition;
//   - bandwidth: windows for 0.3 s before the first repetition, and 512 MiB in each
//     repetition, at most 1,024 windows, which is 0.1 s at 5 GB/s;
//   - overlap: as many triples as without `short`, after samples with the computing for
//     0.3 s, since processes move if another rank computes than in the line before. Then,
//     before each repetition, the computing is sized once more, by 50 triples of samples:
//     a computation that was 1.5 t_transfer before processes were distributed may be half
//     of one, which hides at most half of the transfer.
//
// `alone bandwidth BYTES` is one line of bandwidth, as steady, of 5 repetitions.
//
// `alone CALL BYTES [TRANSFERS]` is one line of overlap, the same, of mode "one", of isend,
//   irecv, iallreduce or inplace, which is an iallreduce with MPI_IN_PLACE. Its computing
//   lasts so many transfers instead of 1.5: `alone iallreduce 4194304 2.5`. A transfer that
//   is not hidden behind 1.5 for lack of a processor is hidden behind more.
//
// Output: one JSON object a line,
//   {"peer":"openmpi-tcp","test":"latency","bytes":8,"us":5.123,"us_min":5.001}
//   {"peer":"openmpi-tcp","test":"bandwidth","bytes":1048576,"mb_s":4321.0}
//   {"peer":"openmpi-tcp","test":"rate","bytes":8,"msg_s":1234567}
//   {"peer":"openmpi-tcp","test":"puts","bytes":8,"msg_s":234567}    10,000 puts and a flush
//   {"peer":"openmpi-tcp","test":"put","bytes":8,"us":12.345,"us_min":12.001}    a put and a flush
//   {"peer":"openmpi-tcp","test":"overlap","bytes":1048576,"side":"isend","mode":"one",
//    "overlap":0.123,"transfer_us":..,"compute_us":..,"total_us":..,"starting":0.02,"hidden":0.40}
//
// Usage: mpirun -n 2 mpibench PEER [short|speed|puts|alone ...]      PEER is the name printed as "peer"
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum {
	REPS = 5,
	WARMUP = 100,
	WINDOW_MAX = 64,
	KIB = 1024,
	MIB = 1024 * 1024,
	BYTES_MAX = 4 * MIB,
	TRIPLES = 50,
	WARM_UP_US = 300000,
	REPETITION_BYTES = 512 * MIB,
	WINDOWS_MAX = 1024,
	TAG = 7,
	TAG_ACK = 8
};

// What short reduces.
static int reps = REPS, overlap_reps = REPS;

// Warm-up and least bytes of a repetition with short, speed and alone; 0: none.
static double warm_up_us, repetition_bytes;

static double computing_transfers = 1.5;

static int rank;
static const char *peer;
static char *out, *in;

static double median(double *v, int n) {
	qsort(v, n, sizeof *v, ascending);
	return v[n / 2];
}

static void send_to(int to, const void *buf, int bytes, int tag) {
	MPI_Send(buf, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

static void receive_from(int from, void *buf, int bytes, int tag) {
	MPI_Recv(buf, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Whether rank 0 has time for more: the same on both ranks.
static int more_until(double end) {
	int more = now_us() < end;
	MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return more;
}

// ---- latency

static void round_trips(int bytes, int n) {
	for (int i = 0; i < n; i++) {
		if (rank == 0) {
			send_to(1, out, bytes, TAG);
			receive_from(1, in, bytes, TAG);
		} else {
			receive_from(0, in, bytes, TAG);
			send_to(0, out, bytes, TAG);
		}
	}
}

static void latency(int bytes) {
	int n = bytes <= KIB ? 10000 : bytes <= 64 * KIB ? 1000 : 100;
	double us[REPS], end = now_us() + warm_up_us;
	do
		round_trips(bytes, WARMUP);
	while (warm_up_us > 0 && more_until(end));
	for (int r = 0; r < reps; r++) {
		double start = now_us();
		round_trips(bytes, n);
		us[r] = (now_us() - start) / (2.0 * n);
	}
	double mid = median(us, reps);
	if (rank == 0)
		printf("{\"peer\":\"%s\",\"test\":\"latency\",\"bytes\":%d,\"us\":%.3f,\"us_min\":%.3f}\n",
		       peer, bytes, mid, us[0]);
}

// ---- bandwidth and message rate

static void windows(int bytes, int window, int n) {
	MPI_Request requests[WINDOW_MAX];
	int ack = 0;
	for (int i = 0; i < n; i++) {
		for (int m = 0; m < window; m++) {
			if (rank == 0)
				MPI_Isend(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[m]);
			else
				MPI_Irecv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[m]);
		}
		MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
		if (rank == 0)
			receive_from(1, &ack, sizeof ack, TAG_ACK);
		else
			send_to(0, &ack, sizeof ack, TAG_ACK);
	}
}

// Messages a second, the median of the repetitions.
static double message_rate(int bytes, int window, int n, int warmup) {
	double rate[REPS], end = now_us() + warm_up_us;
	do
		windows(bytes, window, warmup);
	while (warm_up_us > 0 && more_until(end));
	if (repetition_bytes > 0) {
		double enough = repetition_bytes / ((double)bytes * window);
		n = enough < WINDOWS_MAX ? (int)enough : WINDOWS_MAX;
	}
	for (int r = 0; r < reps; r++) {
		double start = now_us();
		windows(bytes, window, n);
		rate[r] = (double)window * n / (now_us() - start) * 1e6;
	}
	return median(rate, reps);
}

static void bandwidth(int bytes) {
	double rate = message_rate(bytes, bytes >= 4 * MIB ? 16 : 64, bytes <= MIB ? 20 : 10, 1);
	if (rank == 0)
		printf("{\"peer\":\"%s\",\"test\":\"bandwidth\",\"bytes\":%d,\"mb_s\":%.1f}\n",
		       peer, bytes, rate * bytes / 1e6);
}

static void rate(int bytes) {
	double msgs = message_rate(bytes, 64, 1000, 10);
	if (rank == 0)
		printf("{\"peer\":\"%s\",\"test\":\"rate\",\"bytes\":%d,\"msg_s\":%.0f}\n", peer, bytes, msgs);
}

// ---- one-sided operations

enum { PUTS = 10000, FLUSHES = 1000 };

// Microseconds of n puts, after each of which, or after the last of them, the origin waits until they
// are in the target's memory.
static double put_time(MPI_Win w, int bytes, int n, int each) {
	MPI_Barrier(MPI_COMM_WORLD);
	double start = now_us();
	if (rank == 0) {
		MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOCHECK, w);
		for (int i = 0; i < n; i++) {
			MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, w);
			if (each)
				MPI_Win_flush(1, w);
		}
		MPI_Win_unlock(1, w);
	}
	double took = now_us() - start;
	MPI_Barrier(MPI_COMM_WORLD);
	return took;
}

static void puts_of(int bytes) {
	double rate[REPS], us[REPS];
	MPI_Win w;
	MPI_Win_create(in, BYTES_MAX, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w);
	for (double end = now_us() + warm_up_us; more_until(end);)
		put_time(w, bytes, FLUSHES, 0);
	for (int r = 0; r < reps; r++) {
		rate[r] = PUTS / put_time(w, bytes, PUTS, 0) * 1e6;
		us[r] = put_time(w, bytes, FLUSHES, 1) / FLUSHES;
	}
	MPI_Win_free(&w);
	if (rank != 0)
		return;
	double fastest = us[0];
	for (int r = 1; r < reps; r++)
		fastest = us[r] < fastest ? us[r] : fastest;
	printf("{\"peer\":\"%s\",\"test\":\"puts\",\"bytes\":%d,\"msg_s\":%.0f}\n", peer, bytes, median(rate, reps));
	printf("{\"peer\":\"%s\",\"test\":\"put\",\"bytes\":%d,\"us\":%.3f,\"us_min\":%.3f}\n", peer, bytes, median(us, reps), fastest);
}

// ---- overlap

static volatile uint64_t sink;

static void compute(long units) {
	uint64_t x = 88172645463325252ull;
	for (long i = 0; i < units; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink = x;
}

// Units of compute in a microsecond: the best of several tries, because a try
// that was interrupted would make the work too short.
static double units_per_us(void) {
	const long units = 200000;
	double best = 0;
	for (int i = 0; i < 20; i++) {
		double start = now_us();
		compute(units);
		double speed = units / (now_us() - start);
		if (speed > best)
			best = speed;
	}
	return best;
}

enum exchange { NOTHING, MESSAGE, ALLREDUCE, IN_PLACE };

static void begin(enum exchange what, int bytes, MPI_Request *request) {
	if (what == ALLREDUCE)
		MPI_Iallreduce(out, in, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
	else if (what == IN_PLACE)
		MPI_Iallreduce(MPI_IN_PLACE, in, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
	else if (what == MESSAGE && rank == 0)
		MPI_Isend(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, request);
	else if (what == MESSAGE)
		MPI_Irecv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, request);
}

// How long the call that began the last sample took on the rank that computed then; of
// two such ranks the longer time, of none 0.
static double starting;

// One try of a sample; -1 if a rank heard of the start only when it was past.
static double try_sample(int bytes, enum exchange what, long units, double leadUs) {
	MPI_Request request = MPI_REQUEST_NULL;
	double at = now_us() + leadUs, mine[2] = {0, 0}, theirs[2];
	MPI_Bcast(&at, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	int late = now_us() > at;
	while (now_us() < at)
		;
	begin(what, bytes, &request);
	if (units > 0)
		mine[1] = now_us() - at;
	compute(units);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	mine[0] = late ? -1 : now_us() - at;
	MPI_Sendrecv(mine, 2, MPI_DOUBLE, 1 - rank, TAG_ACK, theirs, 2, MPI_DOUBLE, 1 - rank, TAG_ACK,
	             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (mine[0] < 0 || theirs[0] < 0)
		return -1;
	starting = mine[1] > theirs[1] ? mine[1] : theirs[1];
	return mine[0] > theirs[0] ? mine[0] : theirs[0];
}

// One sample: its time in microseconds until the later rank is done, the same
// on both ranks. what says whether something is exchanged; units is the work
// of this rank. A late start is announced again with twice the lead.
static double sample(int bytes, enum exchange what, long units) {
	double leadUs = 200;
	for (int attempt = 0; attempt < 12; attempt++, leadUs *= 2) {
		double us = try_sample(bytes, what, units, leadUs);
		if (us >= 0)
			return us;
	}
	fprintf(stderr, "mpibench: two ranks could not start within %.0f us; the machine is too busy to measure\n", leadUs);
	MPI_Abort(MPI_COMM_WORLD, 1);
	return -1;
}

struct overlap {
	double overlap, transfer, compute, total, starting, hidden;
};

// The work that lasts computing_transfers, the same number on both ranks.
static long units_for(int bytes, enum exchange what) {
	double transfer[TRIPLES];
	for (int i = 0; i < TRIPLES; i++)
		transfer[i] = sample(bytes, what, 0);
	long units = (long)(computing_transfers * median(transfer, TRIPLES) * units_per_us());
	MPI_Bcast(&units, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	return units;
}

// Repeats for warm_up_us what is measured next.
static void warm_up(int bytes, enum exchange what, long units) {
	double end = now_us() + warm_up_us;
	do
		(void)sample(bytes, what, units);
	while (more_until(end));
}

// The work that lasts computing_transfers, measured as both are measured next: their times
// change when processes have been distributed, and when the other rank computes.
static long resized(int bytes, enum exchange what, long units, int computes) {
	double transfer[TRIPLES], computing[TRIPLES];
	for (int i = 0; i < TRIPLES; i++) {
		transfer[i] = sample(bytes, what, 0);
		computing[i] = sample(bytes, NOTHING, computes ? units : 0);
		(void)sample(bytes, what, computes ? units : 0);
	}
	units = (long)((double)units * computing_transfers * median(transfer, TRIPLES) / median(computing, TRIPLES));
	MPI_Bcast(&units, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	return units;
}

static struct overlap overlap(int bytes, enum exchange what, int computes) {
	double ratio[REPS], transfers[REPS], computings[REPS], totals[REPS], startings[REPS];
	long units = units_for(bytes, what);
	int hidden = 0;
	if (warm_up_us > 0)
		warm_up(bytes, what, computes ? units : 0);
	for (int r = 0; r < overlap_reps; r++) {
		if (warm_up_us > 0)
			units = resized(bytes, what, units, computes);
		long mine = computes ? units : 0;
		double transfer[TRIPLES], computing[TRIPLES], total[TRIPLES], start[TRIPLES];
		for (int i = 0; i < TRIPLES; i++) {
			transfer[i] = sample(bytes, what, 0);
			computing[i] = sample(bytes, NOTHING, mine);
			total[i] = sample(bytes, what, mine);
			start[i] = starting;
		}
		transfers[r] = median(transfer, TRIPLES);
		computings[r] = median(computing, TRIPLES);
		totals[r] = median(total, TRIPLES);
		startings[r] = median(start, TRIPLES) / transfers[r];
		ratio[r] = 1 - (totals[r] - computings[r]) / transfers[r];
		for (int i = 0; i < TRIPLES; i++)
			hidden += total[i] < computings[r] + transfers[r] / 2;
	}
	return (struct overlap){median(ratio, overlap_reps), median(transfers, overlap_reps),
	                        median(computings, overlap_reps), median(totals, overlap_reps),
	                        median(startings, overlap_reps), (double)hidden / (TRIPLES * overlap_reps)};
}

static void print_overlap(int bytes, const char *side, const char *mode, struct overlap o) {
	if (rank == 0)
		printf("{\"peer\":\"%s\",\"test\":\"overlap\",\"bytes\":%d,\"side\":\"%s\",\"mode\":\"%s\","
		       "\"overlap\":%.3f,\"transfer_us\":%.2f,\"compute_us\":%.2f,\"total_us\":%.2f,\"starting\":%.2f,\"hidden\":%.2f}\n",
		       peer, bytes, side, mode, o.overlap, o.transfer, o.compute, o.total, o.starting, o.hidden);
}

static void overlaps(int bytes) {
	print_overlap(bytes, "isend", "one", overlap(bytes, MESSAGE, rank == 0));
	print_overlap(bytes, "irecv", "one", overlap(bytes, MESSAGE, rank == 1));
	struct overlap both = overlap(bytes, MESSAGE, 1);
	print_overlap(bytes, "isend", "both", both);
	print_overlap(bytes, "irecv", "both", both);
}

static void steadily(void) {
	warm_up_us = WARM_UP_US;
	repetition_bytes = REPETITION_BYTES;
}

static void in_speed(void) {
	static const int sizes[] = {8, 8 * KIB, 64 * KIB, MIB};
	reps = 3;
	steadily();
	for (int i = 0; i < 4; i++)
		latency(sizes[i]);
	for (int i = 1; i < 4; i++)
		bandwidth(sizes[i]);
}

static void in_short(void) {
	static const int sizes[] = {64 * KIB, 256 * KIB, MIB, 4 * MIB};
	overlap_reps = 3;
	in_speed();
	for (int i = 0; i < 4; i++) {
		int bytes = sizes[i];
		print_overlap(bytes, "isend", "one", overlap(bytes, MESSAGE, rank == 0));
		print_overlap(bytes, "irecv", "one", overlap(bytes, MESSAGE, rank == 1));
		print_overlap(bytes, "iallreduce", "one", overlap(bytes, ALLREDUCE, rank == 0));
		print_overlap(bytes, "iallreduce", "both", overlap(bytes, ALLREDUCE, 1));
	}
}

static void in_puts(void) {
	steadily();
	puts_of(8);
	puts_of(8 * KIB);
}

static void in_full(void) {
	for (int bytes = 8; bytes <= BYTES_MAX; bytes *= 2)
		latency(bytes);
	for (int bytes = 64 * KIB; bytes <= BYTES_MAX; bytes *= 2)
		bandwidth(bytes);
	rate(8);
	overlaps(64 * KIB);
	overlaps(MIB);
}

// The call of a name; NOTHING: there is no such call.
static enum exchange called(const char *call) {
	if (strcmp(call, "isend") == 0 || strcmp(call, "irecv") == 0)
		return MESSAGE;
	if (strcmp(call, "iallreduce") == 0)
		return ALLREDUCE;
	return strcmp(call, "inplace") == 0 ? IN_PLACE : NOTHING;
}

static void one(const char *call, int bytes) {
	print_overlap(bytes, call, "one", overlap(bytes, called(call), rank == (strcmp(call, "irecv") == 0)));
}

// One line, by the arguments after `alone`.
static int in_line(int argc, char **argv) {
	int bytes = atoi(argv[1]);
	if (bytes < 1 || bytes > BYTES_MAX)
		return 0;
	steadily();
	if (argc == 2 && strcmp(argv[0], "bandwidth") == 0) {
		bandwidth(bytes);
		return 1;
	}
	computing_transfers = argc == 3 ? atof(argv[2]) : computing_transfers;
	if (!(computing_transfers > 0 && computing_transfers < 100) || called(argv[0]) == NOTHING)
		return 0;
	one(argv[0], bytes);
	return 1;
}

// Runs what the arguments select, and returns whether they select anything.
static int measure(int argc, char **argv) {
	if (argc == 2)
		in_full();
	else if (argc == 3 && strcmp(argv[2], "short") == 0)
		in_short();
	else if (argc == 3 && strcmp(argv[2], "speed") == 0)
		in_speed();
	else if (argc == 3 && strcmp(argv[2], "puts") == 0)
		in_puts();
	else
		return (argc == 5 || argc == 6) && strcmp(argv[2], "alone") == 0 && in_line(argc - 3, argv + 3);
	return 1;
}

static char *buffer(int fill) {
	void *b = NULL;
	if (posix_memalign(&b, 4096, BYTES_MAX) != 0) {
		fprintf(stderr, "mpibench: no memory for a buffer of %d bytes\n", BYTES_MAX);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	memset(b, fill, BYTES_MAX);
	return b;
}

int main(int argc, char **argv) {
	int ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc > 1) {
		peer = argv[1];
		out = buffer(1);
		in = buffer(2);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);

	if (argc == 1 || ranks != 2 || !measure(argc, argv)) {
		if (rank == 0)
			fprintf(stderr,
			        "usage: mpirun -n 2 mpibench PEER [short | speed | puts | alone bandwidth BYTES | alone isend|irecv|iallreduce|inplace BYTES [TRANSFERS]]\n"
			        "(BYTES up to %d; there are %d ranks)\n",
			        BYTES_MAX, ranks);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	MPI_Finalize();
	return 0;
}
