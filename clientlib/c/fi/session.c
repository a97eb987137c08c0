/* The session of this process, and the translation of its statuses to libfabric's errors. */
#include <stdio.h>
#include <unistd.h>

#include "provider.h"

static outrigger *session;
static pid_t owner; /* the process that opened the session; a child of fork has none */

outrigger *client(void) { return session; }

void set_client(outrigger *s)
{
	session = s;
	if (s != NULL)
		owner = getpid();
}

bool own_client(void) { return session != NULL && getpid() == owner; }

bool requests_below(uint32_t left) { return outrigger_room(session) < left; }

bool ring_full(void) { return outrigger_full(session); }

bool cpu_contended(void) { return session != NULL && outrigger_yield_sleeps(session); }

/* print_failure prints once why the job has failed, if it has: an MPI prints only the kind of an error,
 * and not its cause. */
static void print_failure(void)
{
	static bool printed;
	char why[512] = "";
	if (printed || !own_client())
		return;
	outrigger_failure(session, why, sizeof why);
	if (*why == 0)
		return;
	printed = true;
	fprintf(stderr, "outrigger: rank %u: the job has failed: %s\n", outrigger_world(session).rank, why);
}

/* to_errno returns libfabric's error for a status. */
int to_errno(int status)
{
	switch (status) {
	case OUTRIGGER_OK: return 0;
	case OUTRIGGER_TRUNCATED: return -FI_ETRUNC;
	case OUTRIGGER_CANCELLED: return -FI_ECANCELED;
	case OUTRIGGER_NO_MESSAGE: return -FI_ENOMSG;
	case OUTRIGGER_TOO_MANY: return -FI_EAGAIN;
	case OUTRIGGER_NO_MEMORY: return -FI_ENOMEM;
	case OUTRIGGER_INVALID: return -FI_EINVAL;
	case OUTRIGGER_REFUSED: return -FI_ECONNREFUSED;
	case OUTRIGGER_PEER_LEFT: return -FI_ESHUTDOWN;
	}
	print_failure();
	return status == OUTRIGGER_PEER_FAILED ? -FI_ECONNRESET : -FI_ECONNABORTED;
}
