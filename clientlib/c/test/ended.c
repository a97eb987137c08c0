/* Tests, without a sidecar, a send whose sidecar ends while the message is being staged: the
 * call either fails or its callback is called, and never both, because callers free the
 * callback's argument if the call has failed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session.h"

#define ENTRIES 16u
#define BYTES (1u << 20)

static _Alignas(4096) unsigned char control[4096], submit[4096], complete[4096], slab[1u << 20];
static unsigned ends;

static void on_end(void *arg, const struct outrigger_result *r)
{
	(void)arg, (void)r;
	ends++;
}

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "ended: %s\n", what);
	exit(1);
}

int main(void)
{
	int pair[2];
	unsigned char *message = calloc(1, BYTES);
	outrigger *s = calloc(1, sizeof *s);
	want(s != NULL && message != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "preparing");
	close(pair[1]); /* the sidecar has ended */
	s->socket = pair[0];
	s->doorbell = -1;
	s->control = control;
	s->world.ranks = 2;
	pthread_mutex_init(&s->lock, NULL);
	or_view_init(&s->submit.view, submit, ENTRIES);
	or_view_init(&s->complete.view, complete, ENTRIES);
	want(or_slab_init(&s->slab, slab, sizeof slab, 4096) == 0 && or_arena_init(&s->arena, NULL, 0) == 0, "preparing");
	s->submit.tail = ENTRIES - 2; /* room for the message and one of its chunks */

	struct outrigger_envelope to = {.peer = 1};
	struct iovec v = {message, BYTES};
	int rc = outrigger_sendv(s, &v, 1, &to, 0, on_end, NULL, NULL);
	struct or_producer sidecar = {0};
	or_view_init(&sidecar.view, complete, ENTRIES);
	struct or_descriptor d = {.op = OR_OP_DONE, .status = OR_STATUS_ABORTED}; /* published before it ended */
	want(or_push(&sidecar, &d) == 1, "publishing");
	(void)outrigger_progress(s, NULL);
	want(s->gone, "the ring was not full");
	want((rc == OUTRIGGER_OK) == (ends == 1), rc == OUTRIGGER_OK ? "the send does not end" : "a send that has failed ends as well");
	puts("ended: once");
	return 0;
}
