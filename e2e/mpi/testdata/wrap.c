/* A wrapper that runs its arguments. Linked statically it is what tini, gosu and dumb-init are in
 * images: no library is preloaded into it, and it shows no MPI. */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc > 1)
		execvp(argv[1], argv + 1);
	perror(argc > 1 ? argv[1] : "usage: wrap PROGRAM [ARGS]");
	return 127;
}
