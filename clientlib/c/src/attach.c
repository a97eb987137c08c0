/* Attaching to the sidecar (LAYOUT §2): connects to its socket, exchanges Hello and Welcome,
 * maps the memory of the Welcome and checks its layout. The Go client has it in
 * clientlib/open.go and api/shm/handshake.go. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

#define FDS 3 /* descriptors of the Welcome: control segment, arena, doorbell */
/* How long the library waits for a sidecar that does not listen yet: a container of the same
 * pod may start later. A sidecar that listens and runs is waited for without a limit. */
#define OPEN_TIMEOUT_NS 30000000000ull
#define OPEN_PAUSE_NS 10000000L /* between two attempts to connect */

/* Linux 3.17 and glibc 2.27 define these; older headers lack them. */
#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif
#define SEALS (0x0002 | 0x0004) /* F_SEAL_SHRINK, F_SEAL_GROW */

/* Where outrigger_open puts the text of its error. */
struct reason {
	char *text;
	size_t bytes;
};

/* fail formats the error text and returns code. */
static int fail(const struct reason *why, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(const struct reason *why, int code, const char *format, ...)
{
	va_list a;
	va_start(a, format);
	if (why->bytes > 0)
		vsnprintf(why->text, why->bytes, format, a);
	va_end(a);
	return code;
}

static void put32(unsigned char *b, uint32_t v) { memcpy(b, &v, sizeof v); }
static void put64(unsigned char *b, uint64_t v) { memcpy(b, &v, sizeof v); }

static uint32_t get32(const unsigned char *b)
{
	uint32_t v;
	memcpy(&v, b, sizeof v);
	return v;
}

static uint64_t get64(const unsigned char *b)
{
	uint64_t v;
	memcpy(&v, b, sizeof v);
	return v;
}

/* or_encode_hello encodes the Hello of a client with every feature that this library has. */
void or_encode_hello(unsigned char b[OR_HELLO_BYTES], uint32_t rank, uint64_t arena_bytes)
{
	memset(b, 0, OR_HELLO_BYTES);
	put32(b, OR_HELLO_MAGIC);
	put32(b + 4, OR_ABI_VERSION);
	put64(b + 8, OR_FEATURE_INLINE | OR_FEATURE_STAGED | OR_FEATURE_PLACE | OR_FEATURE_DATA | OR_FEATURE_SHUT | OR_FEATURE_REPLY | OR_FEATURE_PIECES);
	put32(b + 16, rank);
	put64(b + 24, arena_bytes);
}

/* or_decode_welcome decodes a Welcome. false: the bytes are not one. */
bool or_decode_welcome(const unsigned char *b, size_t n, struct or_welcome *w)
{
	if (n != OR_WELCOME_BYTES || get32(b) != OR_WELCOME_MAGIC)
		return false;
	w->abi = get32(b + 4);
	w->features = get64(b + 8);
	w->accepted = get32(b + 16);
	w->rank = get32(b + 20);
	w->ranks = get32(b + 24);
	w->pod = get32(b + 28);
	w->pods = get32(b + 32);
	w->segment_bytes = get64(b + 40);
	w->arena_bytes = get64(b + 48);
	w->eager_bytes = get64(b + 56);
	w->sharers = get32(b + 68);
	uint32_t length = get32(b + 64);
	if (length > OR_TEXT_MAX)
		length = OR_TEXT_MAX;
	memcpy(w->text, b + 72, length);
	w->text[length] = 0;
	return true;
}

/* size parses a number of bytes with an optional suffix KiB, MiB or GiB. */
static bool size(const char *text, uint64_t *bytes)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (errno != 0 || end == text || text[0] == '-')
		return false;
	while (*end == ' ')
		end++;
	int shift = strcmp(end, "KiB") == 0 ? 10 : strcmp(end, "MiB") == 0 ? 20 : strcmp(end, "GiB") == 0 ? 30 : 0;
	if ((shift == 0 && *end != 0) || n > (1ull << 62) >> shift)
		return false;
	*bytes = (uint64_t)n << shift;
	return true;
}

/* complete fills the zero fields of a configuration from the environment. */
static int complete(struct outrigger_config *c, const struct reason *why)
{
	if (c->socket == NULL) {
		c->socket = getenv(OR_NAME_ENV_SOCKET);
		if (c->socket == NULL || *c->socket == 0)
			return fail(why, OUTRIGGER_INVALID, "no sidecar: %s is not set. Start the program with `outrigger run`, or in a pod with a sidecar", OR_NAME_ENV_SOCKET);
		const char *text = getenv(OR_NAME_ENV_RANK);
		char *end = NULL;
		errno = 0;
		unsigned long rank = text == NULL ? 0 : strtoul(text, &end, 10);
		if (text == NULL || errno != 0 || end == text || *end != 0 || *text == '-' || rank >= UINT32_MAX)
			return fail(why, OUTRIGGER_INVALID, "%s is \"%s\", want a rank", OR_NAME_ENV_RANK, text == NULL ? "" : text);
		c->rank = (uint32_t)rank;
	}
	const char *arena = getenv(OR_NAME_ENV_ARENA);
	if (c->arena_bytes == 0 && arena != NULL && *arena != 0 && !size(arena, &c->arena_bytes))
		return fail(why, OUTRIGGER_INVALID, "%s: invalid size \"%s\", want one such as 512MiB", OR_NAME_ENV_ARENA, arena);
	if (c->wait == NULL)
		c->wait = getenv(OR_NAME_ENV_WAIT);
	return OUTRIGGER_OK;
}

/* close_file closes a descriptor of the session. A fork waits meanwhile, so that a child never
 * closes a number that the parent has closed and used again (fork.c). */
static void close_file(int *fd)
{
	or_lock_forks();
	close(*fd);
	*fd = -1;
	or_unlock_forks();
}

/* new_socket creates the socket and returns 0 or an errno. */
static int new_socket(int *fd)
{
	or_lock_forks();
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int cause = errno;
	or_unlock_forks();
	return *fd < 0 ? cause : 0;
}

/* dial connects to the sidecar and retries for OPEN_TIMEOUT_NS while none listens. */
static int dial(const char *path, int *fd, const struct reason *why)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof to.sun_path)
		return fail(why, OUTRIGGER_INVALID, "socket path of %zu characters, the system allows %zu: %s", strlen(path), sizeof to.sun_path - 1, path);
	strcpy(to.sun_path, path);
	uint64_t end = or_now() + OPEN_TIMEOUT_NS;
	for (;;) {
		int cause = new_socket(fd);
		if (cause != 0)
			return fail(why, OUTRIGGER_NO_SIDECAR, "a socket to the sidecar: %s", strerror(cause));
		if (connect(*fd, (struct sockaddr *)&to, sizeof to) == 0)
			return OUTRIGGER_OK;
		cause = errno;
		close_file(fd);
		bool later = cause == ENOENT || cause == ECONNREFUSED || cause == EINTR || cause == EAGAIN;
		if (!later || or_now() >= end)
			return fail(why, OUTRIGGER_NO_SIDECAR, "no sidecar at %s: %s", path, strerror(cause));
		struct timespec pause = {.tv_nsec = OPEN_PAUSE_NS};
		nanosleep(&pause, NULL);
	}
}

/* The sidecar's beat while a client waits for its Welcome (LAYOUT §2). The Go client has it in
 * clientlib/beat.go. */
struct beat {
	const char *path; /* of the socket */
	uint64_t last;
	bool known; /* last was read */
	int polls;  /* readings in a row that were the same */
};

/* number reads the number of the beat. false: there is none, as of a sidecar of an earlier release. */
static bool number(const struct beat *b, uint64_t *now)
{
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + sizeof OR_NAME_BEAT_SUFFIX];
	snprintf(path, sizeof path, "%s%s", b->path, OR_NAME_BEAT_SUFFIX);
	or_lock_forks();
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	bool is = fd >= 0 && read(fd, now, OR_BEAT_BYTES) == OR_BEAT_BYTES;
	if (fd >= 0)
		close(fd);
	or_unlock_forks();
	return is;
}

/* stopped reads the beat once and reports whether the sidecar is stopped. It counts readings and
 * not the time: a pod that was frozen as a whole has lost none. */
static bool stopped(struct beat *b)
{
	uint64_t now = 0;
	bool known = number(b, &now);
	if (!known || !b->known || now != b->last) {
		b->known = known;
		b->last = now;
		b->polls = 0;
		return false;
	}
	return ++b->polls >= OR_BEAT_POLLS;
}

#define BEAT_NS 1000000000u /* between two readings */

/* await waits until the socket is readable or closed, or the sidecar is stopped: ETIMEDOUT. Signals
 * that the program handles do not delay the next reading. */
static int await(int fd, struct beat *b)
{
	for (uint64_t next = or_now() + BEAT_NS;;) {
		uint64_t now = or_now();
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int n = poll(&p, 1, now < next ? (int)((next - now) / 1000000u) + 1 : 0);
		if (n > 0 || (n < 0 && errno != EINTR))
			return n;
		if (or_now() < next)
			continue;
		next = or_now() + BEAT_NS;
		if (stopped(b)) {
			errno = ETIMEDOUT;
			return -1;
		}
	}
}

/* receive reads the Welcome and its descriptors. cut is set if the kernel dropped some of
 * them. msg_controllen excludes the trailing padding of the buffer; otherwise the kernel could
 * pass FDS+1 descriptors. */
static ssize_t receive(outrigger *s, unsigned char b[OR_WELCOME_BYTES + 1], int *count, bool *cut, struct beat *life)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FDS * sizeof(int))];
	} control;
	struct iovec v = {b, OR_WELCOME_BYTES + 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control};
	int fds[FDS] = {-1, -1, -1};
	ssize_t n;
	*count = 0;
	do {
		if (await(s->socket, life) < 0)
			return -1;
		m.msg_controllen = CMSG_LEN(sizeof fds);
		or_lock_forks();
		n = recvmsg(s->socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		int cause = errno;
		struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
		if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			*count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(c), (size_t)*count * sizeof(int));
			s->files[0] = fds[0];
			s->files[1] = fds[1];
			s->doorbell = fds[2];
		}
		or_unlock_forks();
		errno = cause;
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	*cut = n >= 0 && (m.msg_flags & MSG_CTRUNC) != 0;
	return n;
}

/* map maps a file of the sidecar. It requires that the size is sealed: if the file could be
 * truncated, an access to the mapping could raise SIGBUS. */
static int map(int fd, uint64_t bytes, unsigned char **memory, const struct reason *why)
{
	int seals = fcntl(fd, F_GET_SEALS);
	off_t size;
	if (seals < 0 || (seals & SEALS) != SEALS)
		return fail(why, OUTRIGGER_NO_SIDECAR, "the shared memory's size is not sealed");
	size = lseek(fd, 0, SEEK_END); /* fstat is a symbol of glibc 2.33 */
	if (size < 0 || (uint64_t)size != bytes)
		return fail(why, OUTRIGGER_NO_SIDECAR, "shared memory of %lld bytes, the sidecar announced %llu", (long long)size, (unsigned long long)bytes);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return fail(why, OUTRIGGER_NO_MEMORY, "mapping %llu bytes of shared memory: %s", (unsigned long long)bytes, strerror(errno));
	*memory = p;
	return OUTRIGGER_OK;
}

static uint64_t page(uint64_t n) { return (n + OR_SEG_PAGE_BYTES - 1) & ~(uint64_t)(OR_SEG_PAGE_BYTES - 1); }
static uint64_t ring_bytes(uint32_t entries) { return OR_RING_HEADER + (uint64_t)entries * OR_DESCRIPTOR_BYTES; }
static bool ring_size(uint32_t n) { return n >= 16 && n <= 1u << 16 && (n & (n - 1)) == 0; }

/* set_layout checks the header of the control segment and sets up the views of its rings and
 * slab (LAYOUT §3.1). */
static int set_layout(outrigger *s, const struct or_welcome *w, const struct reason *why)
{
	const unsigned char *h = s->control;
	if (w->segment_bytes < OR_SEG_OFF_RINGS || get64(h + OR_SEG_OFF_MAGIC) != OR_SEG_HEADER_MAGIC)
		return fail(why, OUTRIGGER_NO_SIDECAR, "the control segment is not an Outrigger segment");
	uint32_t submit = get32(h + OR_SEG_OFF_SUBMIT), done = get32(h + OR_SEG_OFF_COMPLETE);
	uint64_t slab = get64(h + OR_SEG_OFF_SLAB_OFF), bytes = get64(h + OR_SEG_OFF_SLAB_LEN);
	if (get32(h + OR_SEG_OFF_ABI) != OR_ABI_VERSION || !ring_size(submit) || !ring_size(done))
		return fail(why, OUTRIGGER_NO_SIDECAR, "layout version %u with rings of %u and %u entries, this library speaks version %d", get32(h + OR_SEG_OFF_ABI), submit, done, OR_ABI_VERSION);
	uint64_t second = page(OR_SEG_OFF_RINGS + ring_bytes(submit));
	if (slab != page(second + ring_bytes(done)) || slab > w->segment_bytes || bytes > w->segment_bytes - slab)
		return fail(why, OUTRIGGER_NO_SIDECAR, "header and size of the control segment do not fit together");
	or_view_init(&s->submit.view, s->control + OR_SEG_OFF_RINGS, submit);
	or_view_init(&s->complete.view, s->control + second, done);
	if (or_slab_init(&s->slab, s->control + slab, bytes, w->eager_bytes) != 0)
		return fail(why, OUTRIGGER_NO_MEMORY, "a slab of %llu bytes; raise memory.slabBytes in the job document", (unsigned long long)bytes);
	return OUTRIGGER_OK;
}

/* map_session maps the control segment and the arena of a Welcome and closes their files. */
static int map_session(outrigger *s, const struct or_welcome *w, const struct reason *why)
{
	unsigned char *control = NULL, *arena = NULL;
	int rc = map(s->files[0], w->segment_bytes, &control, why);
	or_lock_forks();
	s->control = control;
	s->control_bytes = w->segment_bytes;
	or_unlock_forks();
	if (rc == OUTRIGGER_OK)
		rc = map(s->files[1], w->arena_bytes, &arena, why);
	close_file(&s->files[0]);
	close_file(&s->files[1]);
	if (arena != NULL && or_arena_init(&s->arena, arena, w->arena_bytes) != 0)
		rc = fail(why, OUTRIGGER_NO_MEMORY, "no memory for the arena's list");
	if ((w->features & OR_FEATURE_PIECES) != 0) {
		s->arena.owner = s;
		s->arena.ready = 0;
	}
	return rc == OUTRIGGER_OK ? set_layout(s, w, why) : rc;
}

/* or_attach attaches s by a configuration. If it fails, text has the reason, and the caller
 * calls or_detach. */
int or_attach(const struct outrigger_config *given, outrigger *s, char *text, size_t bytes)
{
	const struct reason why = {text, bytes};
	struct outrigger_config c = *given;
	int rc = complete(&c, &why);
	if (rc == OUTRIGGER_OK)
		rc = or_wait_policy_init(s, c.wait);
	if (rc == OUTRIGGER_INVALID && c.wait != NULL && s->wait_policy.yield_ns == UINT64_MAX)
		return fail(&why, rc, "wait policy \"%s\", want poll, yield or block", c.wait);
	if (rc == OUTRIGGER_OK)
		rc = dial(c.socket, &s->socket, &why);
	if (rc != OUTRIGGER_OK)
		return rc;
	unsigned char b[OR_WELCOME_BYTES + 1];
	or_encode_hello(b, c.rank, c.arena_bytes);
	if (send(s->socket, b, OR_HELLO_BYTES, MSG_NOSIGNAL) != OR_HELLO_BYTES && errno != EPIPE)
		return fail(&why, OUTRIGGER_NO_SIDECAR, "greeting the sidecar: %s", strerror(errno));
	int count;
	bool cut = false;
	struct beat life = {.path = c.socket};
	ssize_t n = receive(s, b, &count, &cut, &life);
	struct or_welcome w;
	if (n < 0 && life.polls >= OR_BEAT_POLLS)
		rc = fail(&why, OUTRIGGER_NO_SIDECAR, "the sidecar did not answer: the sidecar at %s listens, and has shown no sign of life for %d s: it is stopped, by a signal, a debugger or a freezer", c.socket, OR_BEAT_POLLS);
	else if (n < 0)
		rc = fail(&why, OUTRIGGER_NO_SIDECAR, "the sidecar did not answer: %s", strerror(errno));
	else if (!or_decode_welcome(b, (size_t)n, &w))
		rc = fail(&why, OUTRIGGER_NO_SIDECAR, "the sidecar answered with %zd bytes that are no welcome message", n);
	else if (w.accepted != 1)
		rc = fail(&why, OUTRIGGER_REFUSED, "refused by the sidecar: %s", w.text);
	else if (cut && count < FDS)
		rc = fail(&why, OUTRIGGER_NO_SIDECAR, "%d of the sidecar's %d descriptors could be taken: this process may open no more files; raise its limit (ulimit -n)", count, FDS);
	else if (cut || count != FDS)
		rc = fail(&why, OUTRIGGER_NO_SIDECAR, "the sidecar passed %s%d descriptors, want %d", cut ? "more than " : "", count, FDS);
	if (rc != OUTRIGGER_OK)
		return rc;
	s->features = w.features;
	s->world = (struct outrigger_world){w.rank, w.ranks, w.pod, w.pods, w.sharers};
	rc = map_session(s, &w, &why);
	if (rc == OUTRIGGER_OK)
		or_activity_begin(s, (w.features & OR_FEATURE_PLACE) != 0);
	return rc;
}

/* or_unmap unmaps the shared memory. An arena of which a part is lent stays mapped: the
 * application's allocator uses it until the process ends. */
void or_unmap(outrigger *s)
{
	if (s->control != NULL)
		munmap(s->control, s->control_bytes);
	if (s->arena.memory != NULL && !s->lent)
		munmap(s->arena.memory, s->arena.size);
	s->control = NULL;
	s->arena.memory = NULL;
}

void or_detach(outrigger *s)
{
	or_unregister_session(s); /* first: the child of a later fork replaces a control segment by zeros */
	or_unmap(s);
	or_arena_free(&s->arena);
	or_ops_free(&s->ops);
	free(s->slab.slots.list);
	free(s->slab.chunks.list);
	free(s->stage.list);
	free(s->starved[0].list);
	free(s->starved[1].list);
	free(s->cancels.list);
}
