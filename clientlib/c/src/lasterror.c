/* The last error of this rank (LAYOUT §3.1). If the process ends without outrigger_close, the
 * job's verdict quotes it. The Go client has it in clientlib/session.go. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "session.h"

/* consequence reports whether a status cannot be the cause of the process's end: the job has
 * failed before, or the caller has asked for that status. */
static bool consequence(int status)
{
	switch (status) {
	case OUTRIGGER_OK:
	case OUTRIGGER_CANCELLED:
	case OUTRIGGER_ABORTED:
	case OUTRIGGER_NO_MESSAGE:
	case OUTRIGGER_NO_SIDECAR:
	case OUTRIGGER_TIMEOUT:
	case OUTRIGGER_BUSY:
		return true;
	}
	return false;
}

/* or_record_error records status as the last error, unless it is a consequence, and returns it. The
 * length is written after the text. */
int or_record_error(outrigger *s, const char *call, uint32_t peer, uint64_t tag, uint64_t bytes, int status)
{
	if (consequence(status) || s->control == NULL || s->forked)
		return status;
	char text[OR_SEG_ERROR_MAX + 1], with[32] = "";
	if (peer != OUTRIGGER_ANY)
		snprintf(with, sizeof with, " with rank %" PRIu32, peer);
	int n = snprintf(text, sizeof text, "%s%s tag %" PRIu64 " (%" PRIu64 " bytes): %s", call, with, tag, bytes, outrigger_status_text(status));
	uint32_t length = n < 0 ? 0 : n > OR_SEG_ERROR_MAX ? OR_SEG_ERROR_MAX : (uint32_t)n, absent = 0;
	unsigned char *at = s->control + OR_SEG_OFF_ERROR;
	memcpy(at + 8, text, length);
	memcpy(at + 4, &absent, sizeof absent);
	memcpy(at, &length, sizeof length);
	return status;
}
