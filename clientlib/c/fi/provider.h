/*
 * liboutrigger-fi.so: a libfabric provider over the C client. libfabric loads it by
 * FI_PROVIDER_PATH. It imports no symbol of libfabric, so that it works with any libfabric that
 * an MPI brings along. The Go client has no such layer.
 *
 * One lock guards everything here. It is acquired before the client's lock and released while a
 * thread sleeps or waits. Therefore the client is not called to submit while its ring is full
 * (ring_full): a call of the program waits for room (await_room), and a poll leaves its work to a
 * later one.
 * The client calls the callbacks of requests (on_* functions) while both locks are held; they record
 * the result and submit nothing.
 *
 * The path of a call that starts an operation: transfer.c, origin.c or atomic.c submits requests
 * to the client (request.c) and returns through end_start (linger.c). The path of a poll:
 * cq.c calls progress (progress.c), which handles the client's completions; their callbacks
 * write completions (completion.c), and the endpoints serve messages that have arrived
 * (untagged.c, target.c).
 */
#ifndef OUTRIGGER_PROVIDER_H
#define OUTRIGGER_PROVIDER_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "outrigger.h"

#define PROVIDER_NAME "outrigger"

/* Zeros behind each structure: a newer libfabric may read fields that it has added at the end. */
#define SLACK 512

/* The limits that fi_getinfo returns. */
#define IOV_LIMIT 8 /* one less than OUTRIGGER_IOV_MAX: a request for an access is a segment, too */
#define INJECT_MAX 8192 /* one slot of the slab: such a message is copied by the call */
#define EAGER_MAX INJECT_MAX /* the payload of an eager message (rxqueue.c) */
/* Operations of each direction: both together are a session's 65,536 requests (LAYOUT) less the
 * ones that are reserved below. */
#define QUEUE_SIZE 32256
#define REGISTRATIONS_MAX 65536

#define CAPS_SEND (FI_MSG | FI_TAGGED | FI_SEND)
#define CAPS_RECV (FI_MSG | FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV)
#define CAPS_ACCESS (FI_RMA | FI_ATOMIC)
#define CAPS_ORIGIN (CAPS_ACCESS | FI_READ | FI_WRITE)
#define CAPS_TARGET (CAPS_ACCESS | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define CAPS_COMM (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define CAPS_ALL (CAPS_SEND | CAPS_RECV | CAPS_ORIGIN | CAPS_TARGET | CAPS_COMM)

/* Requests that the program's operations leave free: they receive eager messages and answer the
 * accesses of other ranks. If two ranks could use all requests for their own accesses, neither
 * could answer the other, and no access would complete. Receives leave more requests free than
 * sends (OUTRIGGER_MODEST) and accesses, because receives may never complete without those. */
#define LEFT_BY_ACCESSES 512u
#define LEFT_BY_RECEIVES 1024u

/* Messages from one rank to another are ordered, and so are atomics, which the target executes in
 * the order of their requests (target.c). */
#define ORDER_ATOMIC (FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define ORDERS (FI_ORDER_SAS | ORDER_ATOMIC)

/* A doubly linked list; a head is a node that points at itself. */
struct node {
	struct node *next, *prev;
};

static inline void list_init(struct node *n) { n->next = n->prev = n; }
static inline bool list_empty(const struct node *n) { return n->next == n; }

static inline void list_add(struct node *head, struct node *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

static inline void list_remove(struct node *n)
{
	n->next->prev = n->prev;
	n->prev->next = n->next;
	list_init(n);
}

/* An endpoint's name, as MPI passes it to its peers. */
struct name {
	uint32_t magic, rank, endpoint, zero;
};

#define NAME_MAGIC 0x5254554fu /* "OUTR" */

/* Each endpoint has four contexts (LAYOUT §4.1), which peers compute from its name. Contexts below
 * CONTEXT_BASE are those of the Go client. */
#define CONTEXT_BASE 0x40000000u
#define CONTEXTS_EACH 4u

/* The contexts of an endpoint. */
enum space {
	SPACE_TAGGED,
	SPACE_MSG,
	SPACE_REQUEST, /* requests for accesses to registered memory, and data of long writes: access.h */
	SPACE_ANSWER,  /* answers to those requests */
};

static inline uint32_t context_of(uint32_t endpoint, enum space s)
{
	return CONTEXT_BASE + endpoint * CONTEXTS_EACH + (uint32_t)s;
}

/* An entry of a completion queue, in the longest format and with the fields of an error. */
struct completion {
	void *context, *buf;
	uint64_t flags, data, tag;
	size_t len, olen;
	int err, status;
};

struct cq {
	struct fid_cq fid;
	char slack[SLACK];
	struct domain *domain;
	enum fi_cq_format format;
	struct completion *list;
	size_t room, head, count; /* room is a power of two */
	bool lost;                /* a completion was lost for want of memory */
	bool end_reported;              /* the end of the sidecar was reported */
	bool signalled;           /* fi_cq_signal was called: the next wait returns */
	unsigned users;           /* number of endpoints that use the queue */
};

struct counter {
	struct fid_cntr fid;
	char slack[SLACK];
	struct domain *domain;
	uint64_t value, errors;
	uint64_t last_read; /* value when the program last read it */
	unsigned users; /* number of endpoints that use the counter */
};

/* An entry of an address vector. */
struct peer {
	uint32_t rank, endpoint;
	uint32_t inserted; /* insertions less removals; 0: the address is not valid */
};

struct av {
	struct fid_av fid;
	char slack[SLACK];
	struct domain *domain;
	struct peer *list;
	size_t count, room;
	uint32_t *index; /* hash table: 0 is free, otherwise index in list + 1 */
	size_t buckets;  /* a power of two */
	unsigned users;  /* number of endpoints that use the vector */
};

struct domain {
	struct fid_domain fid;
	char slack[SLACK];
	int mr_mode; /* mode of registrations that fi_getinfo returned */
	unsigned users; /* number of endpoints, queues, counters, address vectors and registrations */
};

/* A receive queue of eager messages (rxqueue.c). */
struct rx_queue {
	struct node buffers_posted; /* buffers for untagged messages, in the order of posting */
	enum space space;
};

/* Buckets of the tables of receives by context: a program may have tens of thousands of receives
 * and cancel all of them. */
#define RECEIVES_BITS 9u
#define RECEIVES (1u << RECEIVES_BITS)

/* by_context returns the bucket with the receives of a context: a multiplicative hash whose upper
 * bits depend on all bits of the pointer (Knuth, The Art of Computer Programming, 6.4). */
static inline struct node *by_context(struct node table[RECEIVES], const void *context)
{
	return &table[(uint64_t)(uintptr_t)context * UINT64_C(0x9e3779b97f4a7c15) >> (64 - RECEIVES_BITS)];
}

struct endpoint {
	struct fid_ep fid;
	char slack[SLACK];
	struct domain *domain;
	struct cq *tx, *rx;
	bool tx_selective, rx_selective;
	struct counter *sent, *received, *reads, *writes;
	struct av *av;
	uint64_t tx_flags, rx_flags;
	uint32_t number;
	bool enabled, closing;
	bool directed; /* a receive matches only messages of the source that it names (FI_DIRECTED_RECV) */
	unsigned unswept; /* for an endpoint that closes: bits of the spaces in which a sweep found a message */
	unsigned sweeps;
	size_t min_multi;
	void (*serve)(struct endpoint *ep); /* handles the messages that have arrived for the endpoint */
	bool (*served)(const struct endpoint *ep); /* reports whether serve has nothing to do until the client has a completion */
	struct node node;    /* node in the list of all endpoints */
	struct node ops;     /* open requests of the endpoint */
	struct node receives[RECEIVES]; /* tagged receives that were not cancelled, by context */
	struct node buffers[RECEIVES];  /* the buffers of posted, by context */
	struct node claimed; /* messages that a peek has claimed */
	size_t unwanted;     /* number of claimed messages that will be dropped */
	struct node posted;  /* buffers for untagged messages, in the order of posting */
	struct node deferred;  /* untagged messages of sources for which there was no buffer */
	size_t deferred_count;   /* number of deferred messages */
	bool retry_deferred; /* there may be a buffer for a deferred message now */
	struct node answers; /* answers to accesses whose data has been transferred */
	struct rx_queue untagged, requests;
};

enum kind {
	OP_SWEEP,    /* probe of an endpoint that closes */
	OP_SEND,
	OP_RECV,     /* tagged receive */
	OP_PEEK,
	OP_EAGER,   /* receive of an eager message */
	OP_UNTAGGED, /* receive of a large untagged message into a buffer */
	OP_ANSWER,   /* origin: receive of an answer */
	OP_DATA,     /* send of an access's data */
	OP_BULK,     /* target: receive of a long write's data */
};

/* A request of the provider at the client. */
struct op {
	struct node node;
	struct node receive; /* node in the list of the bucket of its context */
	struct endpoint *ep;
	enum kind kind;
	outrigger_done done; /* callback of the request */
	void *context, *buf;
	uint64_t flags; /* flags of the completion; for a peek, flags of the call */
	size_t room;
	bool reports;   /* the operation writes a completion if it succeeds */
	bool silent;    /* the operation writes no completion if it fails either */
	outrigger_request request;
	struct posted *posted;
	void *of; /* the eager message, or the access at its origin or target */
	enum space space; /* space of a sweep */
	bool abandoned; /* the call that started the operation has failed: the operation's end is not reported */
	struct first_request *first; /* that call is in progress and handles its end */
};

/* A buffer for untagged messages. */
struct posted {
	struct node node;
	struct node receive; /* node in the list of the bucket of its context */
	void *context;
	struct iovec iov[IOV_LIMIT];
	int segments;
	uint32_t from;
	bool multi;   /* the buffer receives many messages, one behind the other (FI_MULTI_RECV) */
	bool reports; /* the buffer writes a completion for each message */
	bool retired; /* the buffer receives no more messages */
	size_t used, room;
	unsigned in_flight; /* number of messages that are being received into the buffer */
};

/* A message that a peek has claimed. */
struct claimed {
	struct node node;
	void *context; /* context of the peek */
	bool unwanted; /* the message will be dropped */
	bool acknowledged; /* the acknowledgement that Open MPI's sender waits for was sent (openmpi.c) */
	struct outrigger_result message;
};

/* relaxed reads a field that other threads write, which hold the lock. */
#define relaxed(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

extern pthread_mutex_t provider_lock;
extern _Atomic bool settled; /* progress() has nothing to do until the client has a completion (progress.c) */

static inline void lock(void)
{
	pthread_mutex_lock(&provider_lock);
	/* What the caller does may leave work for the next poll. */
	if (atomic_load_explicit(&settled, memory_order_relaxed))
		atomic_store_explicit(&settled, false, memory_order_relaxed);
}

static inline void unlock(void) { pthread_mutex_unlock(&provider_lock); }

/* pool.c: memory in pieces of one size. */
struct piece {
	struct piece *next;
};

struct pool {
	size_t bytes; /* bytes of a piece: a multiple of the size of a pointer */
	struct piece *spare;
};

void *pool_take(struct pool *p); /* returns zeroed memory, or NULL if there is none */
void pool_give(struct pool *p, void *piece);

/* A poll within so many ns after the last one is part of a loop that waits. */
#define RAPID_NS 5000u
/* So many polls in a row need not be such a loop: an MPI polls up to three times for one call of
 * its program, or after it has found something. */
#define RAPID_MAX 3u

/* object.c */
int no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int no_control(struct fid *fid, int command, void *arg);
int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
void retain_domain(struct domain *d);
int close_unused(struct fid *fid, const unsigned *users, struct domain *of, void *more);
size_t bytes_of(const struct iovec *iov, size_t segments);

/* clock.c */
uint64_t nanoseconds(void);
uint64_t processor_time(void); /* CPU time of this thread in ns */
void nap(void);                /* sleeps 20 us; needs no lock */

/* session.c: the one session of this process. */
outrigger *client(void); /* returns the client's session; NULL: the process is not attached */
void set_client(outrigger *s);
bool own_client(void);     /* reports whether the process is attached itself; a child of fork has a copy of its parent's session */
bool cpu_contended(void);   /* reports whether another thread computes on this CPU */
bool requests_below(uint32_t left); /* reports whether fewer than left requests are free */
bool ring_full(void);              /* reports whether a call of the client may have to wait for the sidecar */
int to_errno(int status);

/* completion.c */
void cq_put(struct cq *cq, const struct completion *c);
void count(struct counter *c, int status);
/* unreportable reports whether an error is not written to the completion queue: the end of the sidecar
 * for an operation without a context. Open MPI 4 accesses the request of each error. */
static inline bool unreportable(const void *context, int status) { return context == NULL && status == OUTRIGGER_NO_SIDECAR; }
extern _Atomic unsigned unread; /* number of completions in all queues */
extern uint64_t activity; /* number of completions that the program has read and of requests that it has started */

/* request.c */
struct op *op_new(struct endpoint *ep, enum kind kind, outrigger_done done, void *context);
void op_free(struct op *op);
void visit_ops(struct endpoint *ep, void (*visit)(struct op *op, const void *arg), const void *arg);
void cancel_ops(struct endpoint *ep, bool (*chosen)(const struct op *op, const void *arg), const void *arg);

/* presence.c: whether the program is inside of libfabric, and the attendant, a thread that makes
 * progress while it is not (background.c). */
struct presence {
	pthread_t attendant;
	bool attended; /* there is an attendant */
	bool requested; /* the environment has requested it, and the program hands over to it; otherwise it takes over */
	bool all;      /* the attendant also calls the MPI's progress */
	_Atomic uint64_t polled; /* end of the program's last poll */
	unsigned rapid;  /* polls in a row, each within RAPID_NS of the last one, that found nothing */
	_Atomic bool away; /* the attendant, and not the program, handles completions */
	bool woken; /* the attendant was woken and has not run yet */
};

extern struct presence program;
bool is_attendant(void);       /* reports whether this thread is the attendant; needs no lock */
bool polls_occasionally(void);      /* called when a poll begins: reports whether the program polls occasionally and not in a loop */
void note_poll(bool found); /* called when a poll ends */
void program_returned(void);    /* lets this thread handle completions; unless it is the attendant, the program is in libfabric */

/* progress.c */
extern struct node endpoints;
extern bool sidecar_ended;
void progress(void);
void settle(void);
bool polls_on(uint64_t first, unsigned polls, uint64_t now, bool hurries);
bool sleeps_next(uint64_t since, uint64_t now);
bool back_off(uint64_t since, uint64_t now, bool waits);
void back_off_waiting(uint64_t begun, unsigned polls);
void await_room(void);
void set_alone(bool yes);

/* background.c */
void start_requested_attendant(void);
void start_attendant_for_accesses(void);
bool stop_attendant(void);
void unlock_and_hand_over(void);
void note_attended_access(void); /* called when the attendant has executed an access of another rank */

/* caller.c */
bool called_by_test(void);

/* linger.c */
bool poll_in_vain(void);
bool threads_of_openmpi(void);
bool yield_if_waiting(void);
void end_empty_polls(void);
void end_start(ssize_t rc);
void end_poll(bool passes, bool found);

/* process.c: attaches and detaches this process. */
int attach(void); /* returns 0 or -FI_E* */
void hold_session(void);
void release_session(void);

/* info.c */
int provider_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **info);
extern struct fi_provider provider;

/* domain.c */
int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
/* av.c */
int av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);
bool av_find(const struct av *av, fi_addr_t address, struct peer *p);
int source_of(const struct endpoint *ep, fi_addr_t address, uint32_t *rank);

/* cq.c */
int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
int counter_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **counter, void *context);

/* endpoint.c */
int endpoint_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
void end_requests(void);

/* transfer.c */
extern struct fi_ops_tagged tagged_ops;
extern struct fi_ops_msg msg_ops;
bool await_self(const size_t *found);
bool awaits_self(void);
ssize_t cancel(struct endpoint *ep, void *context);
void discard(struct endpoint *ep);
void drop_claimed(struct endpoint *ep);
void sweep(struct endpoint *ep, enum space space);

/* region.c */
bool served(void); /* reports whether memory is registered, so that other ranks may access it */

/* registration.c */
extern struct fi_ops_mr mr_ops;

/* origin.c, atomic.c */
extern struct fi_ops_rma rma_ops;
extern struct fi_ops_atomic atomic_ops;
int query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags);

/* target.c */
void serve_accesses(struct endpoint *ep);
bool accesses_served(const struct endpoint *ep);
bool drop_accesses(struct endpoint *ep);
void drop_answers(struct endpoint *ep);
struct registration;
void stop_transfers(struct registration *r);
void forget_region(const struct registration *r);

/* untagged.c */
ssize_t post_untagged(struct endpoint *ep, const struct iovec *iov, size_t segments, fi_addr_t from, void *context, uint64_t flags);
void serve_untagged(struct endpoint *ep);
bool untagged_served(const struct endpoint *ep);
bool cancel_untagged(struct endpoint *ep, void *context);
void fail_untagged(struct endpoint *ep, int status);
void drop_untagged(struct endpoint *ep);

#endif
