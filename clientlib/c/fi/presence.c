/* Where the program is, as its calls show: in a call of libfabric, or computing, when the attendant
 * takes what comes (background.c). */
#include "provider.h"

struct presence program;

/* The library that makes calls of the MPI, if the program has it. */
__attribute__((weak)) bool outrigger_mpi_within(void);

bool behind(void) { return program.attended && pthread_equal(program.attendant, pthread_self()); }

bool passing(void)
{
	if (!program.attended || behind() || (program.all && outrigger_mpi_within()))
		return false;
	if (nanoseconds() - program.looked > TIGHT_NS)
		program.tight = 0;
	return program.tight++ < TIGHT_MAX;
}

void looked(bool found)
{
	if (!program.attended || behind())
		return;
	program.looked = nanoseconds();
	if (found)
		program.tight = 0;
}

void came_back(void)
{
	if (!behind())
		program.away = false;
}
