/* Questions about a session that need no lock, and the texts of statuses. The Go client has it
 * in clientlib/session.go and errors.go. */
#include <string.h>

#include "session.h"

struct outrigger_world outrigger_world(const outrigger *s) { return s->world; }

int outrigger_has_data(const outrigger *s) { return (s->features & OR_FEATURE_DATA) != 0; }

void outrigger_failure(outrigger *s, char *text, size_t bytes)
{
	if (bytes == 0)
		return;
	uint32_t n = 0;
	text[0] = 0;
	if (s->control == NULL) /* a child has called outrigger_close */
		return;
	memcpy(&n, s->control + OR_SEG_OFF_FAILURE, sizeof n);
	if (n > OR_SEG_FAILURE_MAX)
		n = OR_SEG_FAILURE_MAX;
	if (n >= bytes)
		n = (uint32_t)bytes - 1;
	memcpy(text, s->control + OR_SEG_OFF_FAILURE + 4, n);
	text[n] = 0;
}

const char *outrigger_status_text(int status)
{
	switch (status) {
	case OUTRIGGER_OK: return "ok";
	case OUTRIGGER_TRUNCATED: return "the message is longer than the buffer";
	case OUTRIGGER_CANCELLED: return "cancelled";
	case OUTRIGGER_PEER_FAILED: return "the peer has failed";
	case OUTRIGGER_ABORTED: return "the job has failed";
	case OUTRIGGER_NO_MESSAGE: return "no message";
	case OUTRIGGER_INVALID: return "invalid argument";
	case OUTRIGGER_NO_MEMORY: return "not enough memory";
	case OUTRIGGER_UNSUPPORTED: return "not supported";
	case OUTRIGGER_PEER_LEFT: return "the peer has closed its session";
	case OUTRIGGER_REFUSED: return "refused by the sidecar";
	case OUTRIGGER_NO_SIDECAR: return "there is no sidecar, or it has ended";
	case OUTRIGGER_TOO_MANY: return "too many requests are open";
	case OUTRIGGER_TIMEOUT: return "timed out";
	case OUTRIGGER_BUSY: return "a request that has not ended uses the memory: wait for it first";
	}
	return "unknown status";
}
