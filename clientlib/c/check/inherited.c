/*
 * All programs of a rank's script inherit the rank's connection to the sidecar's process management
 * (PMI_FD). Intel MPI shuts it down in MPI_Finalize, while others only close their descriptor, so
 * that the next MPI program of the script would have no connection.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static struct statx management; /* stx_ino 0: the process has no such connection */

/* stat_socket describes a socket; false: fd is not one. It uses statx(2), which glibc 2.28 has:
 * fstat is a symbol of 2.33. */
static bool stat_socket(int fd, struct statx *is)
{
	return statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, is) == 0 && S_ISSOCK(is->stx_mode);
}

static void __attribute__((constructor)) find_management(void)
{
	const char *text = getenv("PMI_FD");
	if (text == NULL || !stat_socket(atoi(text), &management))
		management.stx_ino = 0;
}

bool check_managed(void)
{
	struct statx is;
	return management.stx_ino != 0 && stat_socket(atoi(getenv("PMI_FD")), &is) && is.stx_ino == management.stx_ino;
}

EXPORT int shutdown(int fd, int how)
{
	struct statx is;
	if (management.stx_ino != 0 && stat_socket(fd, &is) && is.stx_ino == management.stx_ino && is.stx_dev_major == management.stx_dev_major &&
	    is.stx_dev_minor == management.stx_dev_minor)
		return 0;
	return (int)syscall(SYS_shutdown, fd, how);
}
