/*
 * Accesses to registered memory of another process: FI_RMA and FI_ATOMIC.
 *
 * The memory is private to the target's application, and no sidecar can access it. Therefore the
 * target's process executes an access while it is inside MPI (FI_PROGRESS_MANUAL), after it has
 * checked key, bounds and rights.
 *
 *     origin                                  target
 *     request (SPACE_REQUEST) ------------->  checks
 *       with the data, up to ACCESS_SMALL
 *     data of a long write (SPACE_REQUEST) -> received directly into the region
 *     <------------- answer (SPACE_ANSWER)    done: status, data of a read, old values
 *
 * A tag is the origin's number of the access, followed by eight bits for the status of the
 * answer. Requests are eager messages (rxqueue.c) and are executed in the order of arrival. Each
 * request names the receive of its answer (OUTRIGGER_REPLY), which completes with an error if the
 * target's endpoint is closed: the target's sidecar discards the request, or the target's process
 * answers it.
 */
#ifndef OUTRIGGER_ACCESS_H
#define OUTRIGGER_ACCESS_H

#include "provider.h"

#define ACCESS_SMALL EAGER_MAX /* the most bytes of data in the message of a request */

enum access { ACCESS_WRITE = 1, ACCESS_READ, ACCESS_ATOMIC, ACCESS_FETCH, ACCESS_COMPARE };

/* A request on the wire; its number is in the message's tag. All processes of a job are
 * little-endian, as the contract is. */
struct request {
	uint8_t access, type, op;
	uint8_t bulk;      /* 1: the data is in a separate message */
	uint32_t endpoint; /* endpoint of the origin, for the answer */
	uint64_t key, addr;
	uint64_t length;   /* number of bytes of the region */
};

/* The remote data of a write (FI_REMOTE_CQ_DATA) follows the request, because a message with
 * OUTRIGGER_REPLY cannot have OUTRIGGER_DATA. */
#define WRITE_HAS_DATA 1 /* op of such a write */

struct write_header {
	struct request request;
	uint32_t data;
};

#define WRITE_HEADER_BYTES (sizeof(struct request) + sizeof(uint32_t))

_Static_assert(sizeof(struct request) == 32, "a request without data is one descriptor");

#define TAG_STATUS UINT64_C(0xff)

static inline uint64_t tag_of(uint64_t number) { return number << 8; }

/* Registered memory. */
struct registration {
	struct fid_mr fid;
	char slack[SLACK];
	struct node node; /* node in the list of the bucket of its key */
	struct domain *domain;
	uint64_t start, length; /* range of the region, in the addresses that accesses use */
	unsigned char *memory;
	uint64_t rights;
	unsigned busy; /* number of transfers in progress */
};

/* region.c */
extern bool exposed; /* memory was registered at least once */
extern unsigned registrations;
struct node *bucket(uint64_t key); /* list of the registrations whose keys have this hash */
struct registration *find_region(const struct domain *d, uint64_t key);
struct registration *region_of(const struct domain *d, const struct request *r, uint64_t rights, unsigned char **memory);

/* atomic.c */
bool atomic_valid(const struct request *r, uint64_t payload);
void atomic_apply(const struct request *r, unsigned char *memory, unsigned char *operands);

/* origin.c: the arguments of any call that starts an access. */
struct access_call {
	struct request request;
	const struct iovec *out; /* data of a write, or operands */
	size_t outs;
	const struct iovec *in; /* memory for the answer */
	size_t ins;
	fi_addr_t to;
	uint64_t data;
	void *context;
	uint64_t flags; /* flags of the operation */
	bool inject;    /* the access writes no completion and has no context */
};

ssize_t start_access(struct fid_ep *fid, const struct access_call *w);

/* repeat.c: whether an access repeats earlier ones. */
#define REPEAT_BYTES 16u
struct trial {
	uint64_t call, word; /* hashes of the access, and of the place */
	const void *result;  /* memory of the result, of so many bytes */
	size_t length;
	unsigned char compared[REPEAT_BYTES]; /* value that a swap compares with */
	bool compares, small;
};

void trial_begin(struct trial *t, const struct access_call *w, uint32_t rank);
void trial_end(const struct trial *t);

#endif
