/* A wrapper that executes its arguments. Linked statically it behaves as tini, gosu and dumb-init in
 * images: no library is preloaded into it, and it is not linked to an MPI. */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc > 1)
		execvp(argv[1], argv + 1);
	perror(argc > 1 ? argv[1] : "usage: wrap PROGRAM [ARGS]");
	return 127;
}
