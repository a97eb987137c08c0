/* The session of this process, and what is said of it. */
#include <stdio.h>
#include <unistd.h>

#include "provider.h"

static outrigger *session;
static pid_t owner; /* of the session: a child of a fork has none */

outrigger *client(void) { return session; }

void set_client(outrigger *s)
{
	session = s;
	if (s != NULL)
		owner = getpid();
}

bool own_client(void) { return session != NULL && getpid() == owner; }

bool crowded(uint32_t left) { return outrigger_room(session) < left; }

bool yields_badly(void) { return session != NULL && outrigger_yield_sleeps(session); }

/* blame says once why the job has failed, if it has: of an error an MPI says only of which
 * kind it is, and nothing of whose fault it was. */
static void blame(void)
{
	static bool said;
	char why[512] = "";
	if (said || !own_client())
		return;
	outrigger_failure(session, why, sizeof why);
	if (*why == 0)
		return;
	said = true;
	fprintf(stderr, "outrigger: rank %u: the job has failed: %s\n", outrigger_world(session).rank, why);
}

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
	blame();
	return status == OUTRIGGER_PEER_FAILED ? -FI_ECONNRESET : -FI_ECONNABORTED;
}
