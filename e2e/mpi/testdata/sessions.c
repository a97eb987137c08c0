/* Starts and finalizes a session (MPI 4.1, 11.3), and then a second one. */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
	for (int i = 0; i < 2; i++) {
		MPI_Session s;
		MPI_Group g;
		MPI_Comm c;
		int rank, size;
		MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &s);
		MPI_Group_from_session_pset(s, "mpi://WORLD", &g);
		MPI_Comm_create_from_group(g, "one", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &c);
		MPI_Comm_rank(c, &rank);
		MPI_Comm_size(c, &size);
		MPI_Barrier(c);
		printf("session %d: rank %d of %d\n", i, rank, size);
		fflush(stdout);
		MPI_Group_free(&g);
		MPI_Comm_free(&c);
		MPI_Session_finalize(&s);
	}
	return 0;
}
