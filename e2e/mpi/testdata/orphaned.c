// orphaned.c: rank 1 kills its sidecar, the process at the other end of its socket, while both
// ranks have open messages, and continues.
#define _GNU_SOURCE // struct ucred
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static void kill_sidecar(void) {
	for (int fd = 3; fd < 256; fd++) {
		struct ucred peer;
		struct sockaddr_un name;
		socklen_t n = sizeof peer, m = sizeof name;
		int kind;
		socklen_t k = sizeof kind;
		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &k) == 0 && kind == SOCK_SEQPACKET &&
		    getpeername(fd, (struct sockaddr *)&name, &m) == 0 && name.sun_family == AF_UNIX &&
		    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid > 1 && peer.pid != getpid())
			kill(peer.pid, SIGKILL);
	}
}

int main(int argc, char **argv) {
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	char *in = calloc(1, BYTES), *out = calloc(1, BYTES);
	MPI_Request r[2];
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Irecv(in, BYTES, MPI_BYTE, rank ^ 1, 1, MPI_COMM_WORLD, &r[0]);
	MPI_Isend(out, BYTES, MPI_BYTE, rank ^ 1, 2, MPI_COMM_WORLD, &r[1]); // matches no receive
	if (rank == 1)
		kill_sidecar();
	MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
	return 1;
}
