/* Whether the program polls by a call of the MPI that returns at once, such as MPI_Test. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <string.h>

#include "provider.h"

/* More frames than an MPI has between its call and libfabric. */
#define FRAMES 24

/* returns_at_once reports whether a function of the MPI's interface, by its name in C, tests requests.
 * Bindings of other languages call it. MPI_Iprobe waits for the sidecar's answer. */
static bool returns_at_once(const char *name)
{
	static const char *const names[] = {"Test", "Testany", "Testall", "Testsome", "Request_get_status"};
	name += *name == 'P';
	if (strncmp(name, "MPI_", 4) != 0)
		return false;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(name + 4, names[i]) == 0)
			return true;
	return false;
}

/* called_by_test reports whether such a function is among the callers of this thread. It takes
 * microseconds, and its first call in a process allocates memory. */
bool called_by_test(void)
{
	void *frames[FRAMES];
	Dl_info at;
	for (int i = 0, n = backtrace(frames, FRAMES); i < n; i++)
		if (dladdr(frames[i], &at) != 0 && at.dli_sname != NULL && returns_at_once(at.dli_sname))
			return true;
	return false;
}
