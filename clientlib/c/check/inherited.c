/*
 * A rank's connection to the sidecar's process management is that of all programs which its script
 * runs: each inherits it (PMI_FD). Intel's library shuts it down in MPI_Finalize, where others
 * close their descriptor of it, and the next MPI program of the script would have none.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static struct stat management; /* st_ino 0: the process has no such connection */

static void __attribute__((constructor)) find_management(void)
{
	const char *text = getenv("PMI_FD");
	if (text == NULL || fstat(atoi(text), &management) != 0 || !S_ISSOCK(management.st_mode))
		management.st_ino = 0;
}

EXPORT int shutdown(int fd, int how)
{
	struct stat st;
	if (management.st_ino != 0 && fstat(fd, &st) == 0 && st.st_ino == management.st_ino && st.st_dev == management.st_dev)
		return 0;
	return (int)syscall(SYS_shutdown, fd, how);
}
