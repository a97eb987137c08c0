/* A rank that exits without outrigger_close after an error: the job's verdict quotes the
 * error. Rank 0 sends 200 bytes, and rank 1 receives at most 100. */
#include <stdio.h>
#include <string.h>

#include "outrigger.h"

int main(int argc, char **argv)
{
	struct outrigger_config config = {0};
	char why[256], buffer[200] = {0};
	outrigger *s;
	outrigger_request request;
	if (outrigger_open(&config, &s, why, sizeof why) != OUTRIGGER_OK) {
		fprintf(stderr, "mistaken: %s\n", why);
		return 1;
	}
	if (outrigger_world(s).rank == 0) {
		struct outrigger_envelope to = {.peer = 1, .tag = 7}, from = {.peer = 1, .tag = 8};
		if (outrigger_send(s, buffer, sizeof buffer, &to, 0, &request) != OUTRIGGER_OK || outrigger_recv(s, buffer, sizeof buffer, &from, &request) != OUTRIGGER_OK)
			return 1;
		return outrigger_wait(s, request, NULL) == OUTRIGGER_ABORTED ? 0 : 1;
	}
	struct outrigger_envelope from = {.peer = 0, .tag = 7};
	int rc;
	if (argc > 1 && strcmp(argv[1], "argument") == 0) {
		from.peer = 9;
		rc = outrigger_recv(s, buffer, 100, &from, &request);
	} else {
		rc = outrigger_recv(s, buffer, 100, &from, &request);
		if (rc == OUTRIGGER_OK)
			rc = outrigger_wait(s, request, NULL);
	}
	fprintf(stderr, "mistaken: %s\n", outrigger_status_text(rc));
	return 3;
}
