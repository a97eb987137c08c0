/* Whether the program is in a call of libfabric or computes, as its calls show. While it computes,
 * the attendant makes progress (background.c). */
#include "provider.h"

struct presence program;

/* clientlib/c/steps, if the program has it: reports whether the program is in a call of the MPI. */
__attribute__((weak)) bool outrigger_mpi_within(void);

bool is_attendant(void) { return program.attended && pthread_equal(program.attendant, pthread_self()); }

bool polls_occasionally(void)
{
	if (!program.requested || is_attendant() || (program.all && outrigger_mpi_within()))
		return false;
	if (nanoseconds() - program.polled > RAPID_NS)
		program.rapid = 0;
	return program.rapid++ < RAPID_MAX;
}

void note_poll(bool found)
{
	if (!program.attended || is_attendant())
		return;
	program.polled = nanoseconds();
	if (found)
		program.rapid = 0;
}

void program_returned(void)
{
	if (!is_attendant())
		program.away = false;
}
