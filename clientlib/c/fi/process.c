/* The session of this process, which all endpoints share: it is opened when the first endpoint is
 * enabled, and closed when the last fabric, domain, event queue and endpoint is closed, or when
 * the process ends. */
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

#define EXIT_WAIT_NS 1000000000u /* how long the end of a program waits for the lock */
static bool used; /* the process was attached at least once */
static unsigned holders; /* open fabrics, domains, event queues and endpoints */

/* alone reports whether each process of the job here has a CPU: then polling takes no CPU time
 * from another process. */
static bool alone(void)
{
	cpu_set_t set;
	uint32_t sharers = outrigger_world(client()).sharers;
	return sharers > 0 && sched_getaffinity(0, sizeof set, &set) == 0 && (uint32_t)CPU_COUNT(&set) >= sharers;
}

/* The variables in which the mpirun of an MPI passes the rank: Open MPI 5 and 4.1, MPICH and Intel
 * MPI. */
static const char *const starters[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

/* rank_from_starter sets socket and rank of a process that mpirun has started. Outrigger's launcher
 * has set the socket in the environment of mpirun, but no rank. */
static void rank_from_starter(struct outrigger_config *c)
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

/* missing_ranks returns OUTRIGGER_REFUSED, with a text, if mpirun has started another number of
 * ranks than the job has, else 0. In most programs clientlib/c/check reports that before. */
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

/* clientlib/c/alloc, if the program has it: allocates the program's large allocations in lent
 * memory. */
__attribute__((weak)) bool outrigger_alloc_adopt_pieces(void *memory, size_t bytes, size_t (*extend)(void *arg, size_t bytes), void *arg);

static size_t extend(void *arg, size_t bytes) { return outrigger_extend(arg, bytes); }

/* lend_arena lends the larger part of the arena to clientlib/c/alloc if the environment requests it. Lent
 * memory cannot be given back. */
static void lend_arena(void)
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

/* attach opens the session, unless it is open. It prints the reason of a failure. */
int attach(void)
{
	if (client() != NULL)
		return 0;
	struct outrigger_config config = {0};
	outrigger *session = NULL;
	rank_from_starter(&config);
	char why[512];
	int rc = missing_ranks(why, sizeof why);
	if (rc == 0)
		rc = outrigger_open(&config, &session, why, sizeof why);
	if (rc == OUTRIGGER_OK && !outrigger_has_data(session)) {
		(void)outrigger_close(session);
		snprintf(why, sizeof why, "the sidecar does not carry data with a tag, which an MPI needs: it is of an earlier release; use images of one release");
		rc = OUTRIGGER_UNSUPPORTED;
	}
	if (rc == OUTRIGGER_OK) {
		set_client(session);
		set_alone(alone());
		(void)called_by_test(); /* its first call allocates memory, which a call with the lock must not */
		used = true;
		lend_arena();
		start_requested_attendant();
		if (served())
			start_attendant_for_accesses();
		return 0;
	}
	/* An MPI prints only that it could not create the endpoint. */
	fprintf(stderr, "outrigger: %s\n", why);
	return to_errno(rc);
}

/* outrigger_fi_attached reports whether this process is attached to its sidecar. clientlib/c/check
 * calls it. */
bool outrigger_fi_attached(void);
__attribute__((visibility("default"))) bool outrigger_fi_attached(void)
{
	lock();
	bool attached = client() != NULL;
	unlock();
	return attached;
}

/* outrigger_fi_used reports whether this process, or the one that it was forked from, was ever
 * attached. clientlib/c/check calls it. */
bool outrigger_fi_used(void);
__attribute__((visibility("default"))) bool outrigger_fi_used(void)
{
	lock();
	bool was = used;
	unlock();
	return was;
}

/* lock_within acquires the lock, or reports false if that takes longer than so many ns. */
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

/* print_traffic prints how many bytes were copied, if the environment requests it. */
static void print_traffic(void)
{
	const char *asked = getenv(OR_NAME_ENV_MPI_REPORT);
	if (asked == NULL || strcmp(asked, "1") != 0)
		return;
	struct outrigger_traffic t = outrigger_traffic(client());
	fprintf(stderr, "outrigger: rank %u: bytes sent in place %llu, copied %llu; received in place %llu, copied %llu\n", outrigger_world(client()).rank,
		(unsigned long long)t.sent_in_place, (unsigned long long)t.sent_copied, (unsigned long long)t.received_in_place, (unsigned long long)t.received_copied);
}

/* close_session closes the session. */
static void close_session(void)
{
	if (!own_client())
		return; /* a child of fork has only a copy of its parent's session */
	if (!stop_attendant())
		return; /* the attendant still uses the session, which ends with the process */
	print_traffic();
	if (outrigger_alloc_adopt_pieces != NULL)
		(void)outrigger_alloc_adopt_pieces(NULL, 0, NULL, NULL);
	outrigger *s = client();
	set_client(NULL);
	(void)outrigger_close(s); /* undelivered messages have failed at their operations */
}

void hold_session(void) { holders++; }

void release_session(void)
{
	if (--holders == 0 && client() != NULL)
		close_session();
}

/* at_exit closes the session of a program that has not closed its objects. If an endpoint is open,
 * the program has not called MPI_Finalize and other ranks may wait for it: then the session is
 * not closed, so that the sidecar sees the process end and the job's verdict names this rank. If
 * the program calls exit in a signal handler, it may have been interrupted while it held the lock
 * or the client's lock, which is never released then: the session ends with the process. */
__attribute__((destructor)) static void at_exit(void)
{
	if (!own_client() || !lock_within(EXIT_WAIT_NS))
		return;
	if (list_empty(&endpoints))
		close_session();
	else
		(void)stop_attendant(); /* libraries that the attendant calls are about to be unloaded */
	unlock();
}
