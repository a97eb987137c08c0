/* The one attachment of this process, which all endpoints share. It stays while
 * anything is open here, and until the process ends if nothing was ever sent. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"
#include "provider.h"

#define PATIENCE_NS 1000000000u /* of a program that ends */
static bool used; /* it has been attached */
static unsigned holders; /* fabrics, domains, endpoints */

/* alone reports whether each process of the job here has a processor: then it
 * costs nobody anything to look again at once. */
static bool alone(void)
{
	cpu_set_t set;
	uint32_t sharers = outrigger_world(client()).sharers;
	return sharers > 0 && sched_getaffinity(0, sizeof set, &set) == 0 && (uint32_t)CPU_COUNT(&set) >= sharers;
}

/* starters are where an MPI that brings its own mpirun says which rank a process is:
 * Open MPI 5 and 4.1, MPICH and Intel MPI. */
static const char *const starters[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

/* place_by_starter is for a process that the launcher has not started itself, and so
 * has told its socket, but not its rank. */
static void place_by_starter(struct outrigger_config *c)
{
	if (getenv(OR_NAME_ENV_RANK) != NULL)
		return;
	for (size_t i = 0; i < sizeof starters / sizeof *starters; i++) {
		const char *text = getenv(starters[i]);
		char *end = NULL;
		errno = 0;
		unsigned long rank = text == NULL ? 0 : strtoul(text, &end, 10);
		if (text == NULL || errno != 0 || end == text || *end != 0 || rank >= UINT32_MAX)
			continue;
		c->socket = getenv(OR_NAME_ENV_SOCKET);
		c->rank = (uint32_t)rank;
		return;
	}
}

/* missing_ranks is the refusal of a process whose mpirun has started other ranks than those of
 * the job; 0: it has started them. clientlib/c/check sees it first in most programs. */
static int missing_ranks(char *why, size_t bytes)
{
	const char *ranks = getenv(OR_NAME_ENV_MPI_RANKS), *world = getenv("OMPI_COMM_WORLD_SIZE");
	if (world == NULL)
		world = getenv("PMI_SIZE");
	if (ranks == NULL || world == NULL || getenv(OR_NAME_ENV_RANK) != NULL || atoi(ranks) == atoi(world))
		return 0;
	snprintf(why, bytes, "mpirun has started %s ranks of the job's %s: it has to start %s ranks (-n %s)", world, ranks, ranks, ranks);
	return OUTRIGGER_REFUSED;
}

/* The library that places the program's large allocations (clientlib/c/alloc), if
 * the program has it. */
__attribute__((weak)) bool outrigger_alloc_adopt_pieces(void *memory, size_t bytes, size_t (*extend)(void *arg, size_t bytes), void *arg);

static size_t extend(void *arg, size_t bytes) { return outrigger_extend(arg, bytes); }

/* lend gives it the larger part of the arena. The environment is asked first, since
 * what is lent is not given back. */
static void lend(void)
{
	const char *wanted = getenv(OR_NAME_ENV_MPI_ARENA);
	if (outrigger_alloc_adopt_pieces == NULL || wanted == NULL || *wanted == 0 || strcmp(wanted, "off") == 0)
		return;
	size_t bytes;
	void *memory = outrigger_lend_pieces(client(), &bytes);
	if (memory == NULL || !outrigger_alloc_adopt_pieces(memory, bytes, extend, client()))
		fprintf(stderr, "outrigger: rank %u: %s is set, and its arena has no room for the program's allocations, which stay where they are; raise the arena\n",
			outrigger_world(client()).rank, OR_NAME_ENV_MPI_ARENA);
}

int attach(void)
{
	if (client() != NULL)
		return 0;
	struct outrigger_config config = {0};
	outrigger *session = NULL;
	place_by_starter(&config);
	char why[512];
	int rc = missing_ranks(why, sizeof why);
	if (rc == 0)
		rc = outrigger_open(&config, &session, why, sizeof why);
	if (rc == OUTRIGGER_OK && !outrigger_has_data(session)) {
		(void)outrigger_close(session);
		snprintf(why, sizeof why, "the sidecar does not carry data beside a tag, which an MPI needs: it is of an earlier release; use images of one release");
		rc = OUTRIGGER_UNSUPPORTED;
	}
	if (rc == OUTRIGGER_OK) {
		set_client(session);
		set_patience(alone());
		used = true;
		lend();
		attend();
		return 0;
	}
	/* An MPI says only that the endpoint could not be made. */
	fprintf(stderr, "outrigger: %s\n", why);
	return to_errno(rc);
}

/* outrigger_fi_attached reports whether this process is attached to its sidecar: for
 * clientlib/c/check. */
bool outrigger_fi_attached(void);
__attribute__((visibility("default"))) bool outrigger_fi_attached(void)
{
	lock();
	bool attached = client() != NULL;
	unlock();
	return attached;
}

/* outrigger_fi_used reports whether this process, or the one that it is a copy of, has ever been
 * attached: the same. */
bool outrigger_fi_used(void);
__attribute__((visibility("default"))) bool outrigger_fi_used(void)
{
	lock();
	bool was = used;
	unlock();
	return was;
}

static bool lock_within(uint64_t ns)
{
	uint64_t since = nanoseconds();
	while (pthread_mutex_trylock(&provider_lock) != 0) {
		if (nanoseconds() - since > ns)
			return false;
		nap();
	}
	return true;
}

/* tell says where this rank's messages were, for who asked. */
static void tell(void)
{
	const char *asked = getenv(OR_NAME_ENV_MPI_REPORT);
	if (asked == NULL || strcmp(asked, "1") != 0)
		return;
	struct outrigger_traffic t = outrigger_traffic(client());
	fprintf(stderr, "outrigger: rank %u: bytes sent in place %llu, copied %llu; received in place %llu, copied %llu\n", outrigger_world(client()).rank,
		(unsigned long long)t.sent_in_place, (unsigned long long)t.sent_copied, (unsigned long long)t.received_in_place, (unsigned long long)t.received_copied);
}

static void leave(void)
{
	if (!own_client())
		return; /* the rings of a child are its parent's */
	if (!dismiss())
		return; /* the session ends with the process */
	tell();
	if (outrigger_alloc_adopt_pieces != NULL)
		(void)outrigger_alloc_adopt_pieces(NULL, 0, NULL, NULL);
	outrigger *s = client();
	set_client(NULL);
	(void)outrigger_close(s); /* what could not be delivered has failed elsewhere */
}

void hold(void) { holders++; }

void release(void)
{
	if (--holders == 0 && client() != NULL)
		leave();
}

/* at_exit is for a program that has not closed what it has. Only one whose endpoints are
 * closed says goodbye: with one open it has not called MPI_Finalize, others may wait for it,
 * and its session ends with its process, which names it. One that ends by a signal's
 * handler may have been interrupted with the lock, or the client's, which is taken behind
 * it: then nobody lets go of them any more, and the session ends with the process. */
__attribute__((destructor)) static void at_exit(void)
{
	if (!own_client() || !lock_within(PATIENCE_NS))
		return;
	if (list_empty(&endpoints))
		leave();
	else
		(void)dismiss(); /* what it calls is about to go */
	unlock();
}
