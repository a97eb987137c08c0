/*
 * Accesses to registered memory of another process: FI_RMA and FI_ATOMIC.
 *
 * The memory is the application's own, which no sidecar can reach, so its own
 * process carries an access out while it is inside MPI (FI_PROGRESS_MANUAL). It
 * checks key, bounds and rights: nobody else could write there.
 *
 *     origin                                  target
 *     request (SPACE_REQUEST) ------------->  checks
 *       with the data, up to ACCESS_SMALL
 *     data of a long write (SPACE_REQUEST) -> straight into the region
 *     <------------- answer (SPACE_ANSWER)    done: status, data of a read, old values
 *
 * A tag is the origin's number of the access, eight bits for the status of the
 * answer. Requests are letters (inbox.c) and are carried out in the order in
 * which they come. Each names the receive of its answer, which ends if the target's
 * endpoint is closed: its sidecar throws the request away, or its process answers that.
 */
#ifndef OUTRIGGER_ACCESS_H
#define OUTRIGGER_ACCESS_H

#include "provider.h"

#define ACCESS_SMALL LETTER_MAX /* bytes that travel with a request */

enum access { ACCESS_WRITE = 1, ACCESS_READ, ACCESS_ATOMIC, ACCESS_FETCH, ACCESS_COMPARE };

/* A request as it travels; its number is in the message's tag. All processes of
 * a job are little-endian, as the contract is. */
struct request {
	uint8_t access, type, op;
	uint8_t bulk;      /* 1: the data follows in a message of its own */
	uint32_t endpoint; /* of the origin, for the answer */
	uint64_t key, addr;
	uint64_t length;   /* bytes of the region */
};

/* What the target is told of a write, behind the request: a message that wants a reply
 * carries no data beside its tag. */
#define WRITE_TELLS 1 /* op of such a write */

struct telling {
	struct request request;
	uint32_t data;
};

#define TELLING_BYTES (sizeof(struct request) + sizeof(uint32_t))

_Static_assert(sizeof(struct request) == 32, "a request without data is one descriptor");

#define TAG_STATUS UINT64_C(0xff)

static inline uint64_t tag_of(uint64_t number) { return number << 8; }

/* Memory that others may access. */
struct registration {
	struct fid_mr fid;
	char slack[SLACK];
	struct node node; /* of those whose keys have the same hash */
	struct domain *domain;
	uint64_t start, length; /* addresses as accesses name them */
	unsigned char *memory;
	uint64_t rights;
	unsigned busy; /* accesses under way */
};

/* region.c */
extern bool exposed; /* something was ever registered */
extern unsigned registrations;
struct node *bucket(uint64_t key); /* of the table */
struct registration *find_region(const struct domain *d, uint64_t key);
struct registration *region_of(const struct domain *d, const struct request *r, uint64_t rights, unsigned char **memory);

/* atomic.c */
bool atomic_valid(const struct request *r, uint64_t payload);
void atomic_apply(const struct request *r, unsigned char *memory, unsigned char *operands);

/* origin.c */
struct wanted {
	struct request request;
	const struct iovec *out; /* data of a write, operands */
	size_t outs;
	const struct iovec *in; /* for the answer */
	size_t ins;
	fi_addr_t to;
	uint64_t data;
	void *context;
	uint64_t flags; /* of the operation */
	bool inject;    /* no completion, no context */
};

ssize_t start_access(struct fid_ep *fid, const struct wanted *w);

#endif
