/*
 * A rank whose sidecar is of an earlier release, without the features PLACE (activity
 * reports) and DATA (data with a tag). Its features work; functions that need others are
 * off or return OUTRIGGER_UNSUPPORTED.
 */
#include <string.h>
#include <time.h>

#include "raw.h"

#define BYTES 700001

static outrigger *s;

static void want(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "older: %s\n", what);
	exit(1);
}

static void compute(void)
{
	for (uint64_t end = or_now() + 2000000; or_now() < end;)
		;
}

static uint32_t place(void) { return atomic_load(or_word(s, OR_SEG_OFF_PLACE)); }

int main(void)
{
	struct outrigger_config config = {0};
	char why[256];
	static unsigned char out[BYTES], in[BYTES];
	want(outrigger_open(&config, &s, why, sizeof why) == OUTRIGGER_OK, why);
	struct outrigger_envelope e = {.peer = s->world.rank ^ 1u, .tag = 3};
	struct iovec v = {out, 8};
	want((s->features & (OR_FEATURE_PLACE | OR_FEATURE_DATA)) == 0 && s->world.sharers == 0, "the sidecar has all features");
	want(!outrigger_has_data(s) && outrigger_sendv(s, &v, 1, &e, OUTRIGGER_DATA, NULL, NULL, NULL) == OUTRIGGER_UNSUPPORTED, "a send with data was accepted, want OUTRIGGER_UNSUPPORTED");
	want(outrigger_shut(s, 5) == OUTRIGGER_UNSUPPORTED, "outrigger_shut did not return OUTRIGGER_UNSUPPORTED");
	for (int i = 0; i < 30; i++) {
		outrigger_request r, w;
		int over = 0;
		memset(out, i, sizeof out);
		want(outrigger_recv(s, in, sizeof in, &e, &r) == OUTRIGGER_OK, "starting a round");
		e.reply = r; /* the sidecar ends the session if it gets an unknown flag */
		want(outrigger_send(s, out, sizeof out, &e, OUTRIGGER_REPLY, &w) == OUTRIGGER_OK, "starting a round");
		compute();
		while (!over) {
			want(outrigger_test(s, r, &over, NULL) == OUTRIGGER_OK, "test");
			outrigger_yield(s);
		}
		want(outrigger_wait(s, w, NULL) == OUTRIGGER_OK && in[0] == i && in[BYTES - 1] == i, "ending a round");
		want(outrigger_sleep(s, 1000) == OUTRIGGER_OK, "sleep");
		want(place() == 0, "an activity was reported that the sidecar does not read");
	}
	want(outrigger_close(s) == OUTRIGGER_OK, "close");
	puts("older: all is well");
	return 0;
}
