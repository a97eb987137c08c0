#include "provider.h"

#include <time.h>

/* Tests as many open operations as possible. */

enum { MANY = 20000, STRIDE = 7919, ALL = 65536 }; /* STRIDE is a prime, so that multiples of it reach every index */

static unsigned char out[8], in[8];
static int contexts[ALL], here;
static bool ended[MANY];

static double used(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static ssize_t receive(struct side *s, bool tagged, void *context)
{
	return tagged ? fi_trecv(s->ep, in, sizeof in, NULL, s->partner, 27, 0, context) : fi_recv(s->ep, in, sizeof in, NULL, s->partner, context);
}

/* cancelled_once checks that each cancelled receive has exactly one error. */
static void cancelled_once(struct side *s)
{
	memset(ended, 0, sizeof ended);
	for (int i = 0; i < MANY; i++) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry bad = {0};
		ssize_t rc;
		while ((rc = fi_cq_read(s->rx, &e, 1)) == -FI_EAGAIN)
			;
		want(rc == -FI_EAVAIL && fi_cq_readerr(s->rx, &bad, 0) == 1 && bad.err == FI_ECANCELED, "a receive ended with %s", fi_strerror(bad.err));
		int at = (int)((int *)bad.op_context - contexts);
		want(at >= 0 && at < MANY && !ended[at], "receive %d ended twice", at);
		ended[at] = true;
	}
	want(fi_cancel(&s->ep->fid, &contexts[0]) == -FI_ENOENT, "one that has ended is cancelled");
}

/* cancelled_in_any_order checks that cancelling many receives takes not much longer than posting
 * them, in any order: a linear search for each takes 50 times as long or more. */
static void cancelled_in_any_order(struct side *s)
{
	scenario = "cancelling many receives";
	for (int way = 0; way < 6; way++) {
		bool tagged = way < 3;
		double begin = used();
		for (int i = 0; i < MANY; i++)
			must(receive(s, tagged, &contexts[i]));
		double posted = used();
		for (int i = 0; i < MANY; i++) {
			int of[] = {MANY - 1 - i, i, (int)((long)i * STRIDE % MANY)};
			must(fi_cancel(&s->ep->fid, &contexts[of[way % 3]]));
		}
		double posting = posted - begin, cancelling = used() - posted;
		want(cancelling < 20 * posting, "%s, order %d: it takes %.3f s, and posting %.3f s", tagged ? "tagged" : "untagged", way % 3, cancelling, posting);
		cancelled_once(s);
	}
	meet(s);
}

/* full_of_receives checks that two ranks that post as many receives as possible can still send. */
static void full_of_receives(struct side *s)
{
	unsigned posted = 0, sent = 0, gone = 0, received = 0;
	ssize_t rc;
	scenario = "all receives, and then sends";
	while (posted < ALL && (rc = receive(s, true, &contexts[posted])) != -FI_EAGAIN) {
		must(rc);
		posted++;
	}
	unsigned theirs = posted;
	swap("posted", &theirs, sizeof theirs);
	while (gone < theirs || received < posted) {
		struct fi_cq_tagged_entry e;
		if (sent < theirs && (rc = fi_tsend(s->ep, out, sizeof out, NULL, s->partner, 27, &here)) != -FI_EAGAIN) {
			must(rc);
			sent++;
		}
		while ((rc = fi_cq_read(s->tx, &e, 1)) == 1)
			gone++;
		want(rc == -FI_EAGAIN, "a send fails: %zd", rc);
		if ((rc = fi_cq_read(s->rx, &e, 1)) == 1)
			received++;
		else
			want(rc == -FI_EAGAIN, "a receive fails: %zd", rc);
	}
	meet(s);
}

void crowds(struct side *s)
{
	cancelled_in_any_order(s);
	full_of_receives(s);
}
