/*
 * A rank that dies at a given step of its exchange with the honest ranks (honest.c):
 *
 *     dying STEP MANNER FILE   MANNER is kill, exit, exec, or fork, where a child goes on
 *                              until FILE exists
 *     dying                    lists the steps
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

static outrigger *s;

static void stop(const char *what) __attribute__((noreturn));

static void stop(const char *what)
{
	fprintf(stderr, "dying: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void must(bool ok, const char *what)
{
	if (!ok)
		stop(what);
}

static void nap(long ms)
{
	struct timespec t = {.tv_nsec = ms * 1000000};
	nanosleep(&t, NULL);
}

static void nothing(void) {}

static int socket_of(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	(void)snprintf(to.sun_path, sizeof to.sun_path, "%s", getenv(OR_NAME_ENV_SOCKET));
	must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
	return fd;
}

static void greeted(void)
{
	unsigned char b[OR_HELLO_BYTES];
	or_encode_hello(b, HOSTILE, 0);
	must(send(socket_of(), b, sizeof b, MSG_NOSIGNAL) == sizeof b, "greeting");
	nap(20);
}

static void attached(void)
{
	struct outrigger_config config = {0};
	char why[256];
	must(outrigger_open(&config, &s, why, sizeof why) == OUTRIGGER_OK, why);
	must(allocated(s, LARGE), "a piece of the arena");
}

/* seen waits until the sidecar has read all submitted entries. */
static void seen(void)
{
	struct outrigger_envelope e = {.peer = OUTRIGGER_ANY, .tag = 4321};
	outrigger_request q;
	must(outrigger_probe(s, &e, OUTRIGGER_NOW, NULL, NULL, &q) == OUTRIGGER_OK, "probe");
	(void)outrigger_wait(s, q, NULL);
}

static void eager(void)
{
	attached();
	for (int i = 0; i < 3000; i++) {
		struct outrigger_envelope e = {.peer = i % 4 == HOSTILE ? 0 : (uint32_t)i % 4, .tag = 77};
		must(outrigger_send(s, &e, i % 2 == 0 ? 8 : sizeof e, &e, OUTRIGGER_COPY, NULL) == OUTRIGGER_OK, "send");
	}
}

/* half_an_entry writes a whole entry except its sequence number. */
static void half_an_entry(void)
{
	attached();
	unsigned char *e = or_entry(&s->submit.view, s->submit.tail);
	memset(e + 4, 0x55, OR_DESCRIPTOR_BYTES - 4);
}

static struct or_descriptor to(uint32_t peer, uint8_t op, uint8_t class, const void *memory, uint64_t bytes)
{
	struct or_descriptor d = named(s, op, memory, bytes);
	d.class = class;
	d.addr = class == OR_CLASS_ARENA ? d.addr : 0;
	d.peer = peer;
	d.tag = op == OR_OP_SEND ? FROM_HOSTILE : TO_HOSTILE;
	return d;
}

/* staged sends the given number of chunks of the message that the honest ranks wait for. */
static void staged(int chunks)
{
	attached();
	unsigned char *b = outrigger_alloc(s, 65536);
	static const uint32_t peers[] = {0, 3};
	for (size_t i = 0; i < 2; i++) {
		outrigger_request q;
		must(raw(s, to(peers[i], OR_OP_SEND, OR_CLASS_STAGED, b, LARGE), &q) == OUTRIGGER_OK, "send");
		for (int k = 0; k < chunks; k++) {
			struct or_descriptor d = named(s, OR_OP_STAGE, b, 65536);
			d.req = (uint32_t)q;
			must(or_submit(s, &d) == OUTRIGGER_OK, "chunk");
		}
	}
	nap(10);
}

static void announced(void) { staged(0); }
static void one_chunk(void) { staged(1); }
static void three_chunks(void) { staged(3); }

/* in_place starts a send from the arena and a receive into it, and does not wait. */
static void in_place(void)
{
	attached();
	static const uint32_t peers[] = {0, 2, 3};
	for (size_t i = 0; i < 3; i++) {
		unsigned char *b = outrigger_alloc(s, 2 * LARGE);
		outrigger_request q;
		must(b != NULL, "room");
		must(raw(s, to(peers[i], OR_OP_RECV, OR_CLASS_ARENA, b + LARGE, LARGE), &q) == OUTRIGGER_OK, "receive");
		must(raw(s, to(peers[i], OR_OP_SEND, OR_CLASS_ARENA, b, LARGE), &q) == OUTRIGGER_OK, "send");
	}
}

/* receiving posts a staged receive, waits until it has matched, and lends it no chunk. */
static void receiving(void)
{
	attached();
	outrigger_request q;
	must(raw(s, to(0, OR_OP_RECV, OR_CLASS_STAGED, s->arena.memory, LARGE), &q) == OUTRIGGER_OK, "receive");
	must(raw(s, to(3, OR_OP_RECV, OR_CLASS_STAGED, s->arena.memory, LARGE), &q) == OUTRIGGER_OK, "receive");
	nap(20);
}

static void claimed(void)
{
	attached();
	struct outrigger_envelope e = {.peer = 3, .tag = TO_HOSTILE};
	outrigger_request q;
	must(outrigger_probe(s, &e, OUTRIGGER_CLAIM, NULL, NULL, &q) == OUTRIGGER_OK && outrigger_wait(s, q, NULL) == OUTRIGGER_OK, "claim");
}

static unsigned char *window(void)
{
	attached();
	unsigned char *w = outrigger_alloc(s, LARGE);
	struct or_descriptor d = named(s, OR_OP_WIN, w, WINDOW_BYTES);
	outrigger_request q;
	d.context = WINDOW;
	must(w != NULL && raw(s, d, &q) == OUTRIGGER_OK && outrigger_wait(s, q, NULL) == OUTRIGGER_OK, "window");
	return w;
}

static void exposed(void) { (void)window(); }

/* accesses starts accesses to the windows of the honest ranks, and does not wait for them. */
static void accesses(uint8_t op, uint64_t bytes)
{
	unsigned char *w = window();
	for (int i = 0; i < 300; i++) {
		struct or_descriptor d = to(i % 2 == 0 ? 0 : 3, op, OR_CLASS_ARENA, w, bytes);
		outrigger_request q;
		d.context = WINDOW;
		d.tag = op == OR_OP_ACC ? OR_TYPE_UINT64 << 8 | OR_REDUCE_SUM : 0;
		if (op == OR_OP_FETCH) {
			d.class = OR_CLASS_INLINE;
			d.inline_length = 8;
			d.status = OR_TYPE_UINT64 << 8 | OR_REDUCE_SUM;
			d.addr = 1;
		}
		must(raw(s, d, &q) == OUTRIGGER_OK, "access");
	}
}

static void putting(void) { accesses(OR_OP_PUT, WINDOW_BYTES); }
static void getting(void) { accesses(OR_OP_GET, WINDOW_BYTES); }
static void accumulating(void) { accesses(OR_OP_ACC, WINDOW_BYTES); }
static void fetching(void) { accesses(OR_OP_FETCH, 8); }

static void locked(void)
{
	(void)window();
	static const uint32_t peers[] = {0, 3};
	for (size_t i = 0; i < 2; i++) {
		struct or_descriptor d = {.op = OR_OP_LOCK, .flags = OR_FLAG_EXCLUSIVE, .peer = peers[i], .context = WINDOW};
		outrigger_request q;
		must(raw(s, d, &q) == OUTRIGGER_OK && outrigger_wait(s, q, NULL) == OUTRIGGER_OK, "lock");
	}
}

static void started(void)
{
	(void)window();
	struct or_descriptor d = {.op = OR_OP_POST, .peer = 3, .context = WINDOW}, w = {.op = OR_OP_WAIT, .peer = 3, .context = WINDOW};
	outrigger_request q;
	must(raw(s, d, &q) == OUTRIGGER_OK && raw(s, w, &q) == OUTRIGGER_OK, "epoch");
	seen();
}

static void summing(void)
{
	attached();
	struct sum *a = sum_new(s);
	outrigger_request q;
	must(a != NULL && raw(s, named(s, OR_OP_COLL, &a->block, sizeof a->block), &q) == OUTRIGGER_OK, "sum");
}

static void *sleeper(void *arg)
{
	for (;;)
		(void)outrigger_sleep(s, 100000);
	return arg;
}

/* asleep returns, so that the rank dies, while another of its threads sleeps in the library. */
static void asleep(void)
{
	pthread_t t;
	attached();
	must(pthread_create(&t, NULL, sleeper, NULL) == 0, "thread");
	while (atomic_load(or_word(s, OR_SEG_OFF_WAITING)) == 0)
		nap(1);
}

static void goodbye_unread(void)
{
	eager();
	struct outrigger_envelope e = {.peer = 0, .tag = FROM_HOSTILE};
	outrigger_request q;
	must(outrigger_send(s, s->arena.memory, LARGE, &e, 0, &q) == OUTRIGGER_OK, "send");
}

static const struct {
	const char *name;
	void (*go)(void);
} steps[] = {
	{"at-once", nothing}, {"greeted", greeted}, {"attached", attached}, {"eager", eager}, {"half-an-entry", half_an_entry},
	{"announced", announced}, {"one-chunk", one_chunk}, {"three-chunks", three_chunks}, {"in-place", in_place}, {"receiving", receiving},
	{"claimed", claimed}, {"exposed", exposed}, {"putting", putting}, {"getting", getting}, {"accumulating", accumulating}, {"fetching", fetching},
	{"locked", locked}, {"started", started}, {"summing", summing}, {"asleep", asleep}, {"unfinished", goodbye_unread},
};

/* child runs in a process that a rank forks before it dies. It has copies of the rank's
 * descriptors and mappings, uses them as the rank would, and goes on until the file exists. */
static void child(const char *file)
{
	for (int i = 0; access(file, F_OK) != 0 && i < 6000; i++) {
		struct outrigger_envelope e = {.peer = 0, .tag = 77};
		unsigned taken;
		if (s != NULL) {
			(void)outrigger_send(s, &e, 8, &e, OUTRIGGER_COPY, NULL);
			(void)outrigger_progress(s, &taken);
			outrigger_yield(s);
		}
		nap(10);
	}
	if (s != NULL)
		(void)outrigger_close(s);
	exit(0);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		if (argc < 4) {
			puts(steps[i].name);
			continue;
		}
		if (strcmp(steps[i].name, argv[1]) != 0)
			continue;
		steps[i].go();
		if (strcmp(argv[2], "exit") == 0)
			_exit(9);
		if (strcmp(argv[2], "exec") == 0) {
			execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
			stop("exec");
		}
		if (strcmp(argv[2], "fork") == 0) {
			pid_t pid = fork();
			must(pid >= 0, "fork");
			if (pid == 0)
				child(argv[3]);
		}
		kill(getpid(), SIGKILL);
	}
	return argc < 4 ? 0 : 1;
}
