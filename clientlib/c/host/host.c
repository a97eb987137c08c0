/*
 * liboutrigger-host.so: the host name of a pod that runs on the same machine as other pods of its
 * job (outrigger run). An mpirun tells nodes apart by the names that its daemons have from
 * gethostname(2): daemons with one name use each other's files, and PRRTE gives the ranks of one
 * the list of local ranks of the other. The launcher preloads this library into the daemons and
 * their ranks, and names the pod in OUTRIGGER_HOST. Pods of a cluster have names of their own.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int gethostname(char *name, size_t room);
EXPORT int __gethostname_chk(char *name, size_t room, size_t bytes);

int gethostname(char *name, size_t room)
{
	struct utsname machine;
	const char *own = getenv("OUTRIGGER_HOST");
	if (own == NULL) {
		if (uname(&machine) != 0)
			return -1;
		own = machine.nodename;
	}
	size_t length = strlen(own) + 1;
	memcpy(name, own, length < room ? length : room);
	if (length <= room)
		return 0;
	errno = ENAMETOOLONG; /* as glibc does */
	return -1;
}

/* What gethostname becomes in a program that was compiled with _FORTIFY_SOURCE. */
int __gethostname_chk(char *name, size_t room, size_t bytes)
{
	if (room > bytes)
		abort();
	return gethostname(name, room);
}
