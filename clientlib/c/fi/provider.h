/*
 * liboutrigger-fi.so: a libfabric provider over the C client. libfabric loads it
 * by FI_PROVIDER_PATH; it imports nothing of libfabric, so that it works with
 * whichever one an MPI brings along.
 *
 * One lock guards everything here. It is taken before the client's, and not held
 * while a thread sleeps. Completions of the client come while both are held, and
 * only note what has happened (on_* functions).
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
#include <stdbool.h>
#include <stdint.h>

#include "outrigger.h"

#define PROVIDER_NAME "outrigger"

/* What a newer libfabric may add to a structure that it reads whole: zeros. */
#define SLACK 512

/* The limits that fi_getinfo tells. */
#define IOV_LIMIT 8
#define INJECT_MAX 8192 /* one slot of the slab */
#define LETTER_MAX INJECT_MAX /* bytes of a message in a letter: inbox.c */
/* Of each direction: together they are what is left of a session's requests (LAYOUT) when those
 * below are kept. */
#define QUEUE_SIZE 32256
#define REGISTRATIONS_MAX 65536

#define CAPS_SEND (FI_MSG | FI_TAGGED | FI_SEND)
#define CAPS_RECV (FI_MSG | FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV)
#define CAPS_ACCESS (FI_RMA | FI_ATOMIC)
#define CAPS_ORIGIN (CAPS_ACCESS | FI_READ | FI_WRITE)
#define CAPS_TARGET (CAPS_ACCESS | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define CAPS_COMM (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define CAPS_ALL (CAPS_SEND | CAPS_RECV | CAPS_ORIGIN | CAPS_TARGET | CAPS_COMM)

/* Requests that the program's own operations leave: letters that come are received by them,
 * and accesses of others answered. Two ranks with as many accesses under way as there are
 * requests could answer none, and so end none. Receives leave more of them than sends
 * (OUTRIGGER_MODEST) and accesses do, without which none of them may ever end. */
#define LEFT_BY_ACCESSES 512u
#define LEFT_BY_RECEIVES 1024u

/* Messages of a rank to another are ordered, and so are atomics, which are
 * carried out in the order of their requests (target.c). */
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

/* Each endpoint has contexts of its own (LAYOUT §4.1), which its peers know by
 * its name. A process's own contexts, as the Go client makes them, are below. */
#define CONTEXT_BASE 0x40000000u
#define CONTEXTS_EACH 4u

enum space {
	SPACE_TAGGED,
	SPACE_MSG,
	SPACE_REQUEST, /* accesses to registered memory: access.h */
	SPACE_ANSWER,
};

static inline uint32_t context_of(uint32_t endpoint, enum space s)
{
	return CONTEXT_BASE + endpoint * CONTEXTS_EACH + (uint32_t)s;
}

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
	bool lost;                /* there was no memory for one */
	bool told;                /* of the end of the sidecar */
	bool signalled;           /* who waits is to come back */
	unsigned users;           /* endpoints */
};

struct counter {
	struct fid_cntr fid;
	char slack[SLACK];
	struct domain *domain;
	uint64_t value, errors;
	uint64_t told; /* value as it was last read */
	unsigned users; /* endpoints */
};

struct peer {
	uint32_t rank, endpoint;
	uint32_t inserted; /* so many times more than removed; 0: the address is none */
};

struct av {
	struct fid_av fid;
	char slack[SLACK];
	struct domain *domain;
	struct peer *list;
	size_t count, room;
	uint32_t *index; /* of the list, by hash; 0: free, else place + 1 */
	size_t buckets;  /* a power of two */
	unsigned users;  /* endpoints */
};

struct domain {
	struct fid_domain fid;
	char slack[SLACK];
	int mr_mode; /* as fi_getinfo told it */
	unsigned users; /* endpoints, queues, counters, address vectors, registrations */
};

struct inbox {
	struct node letters; /* in the order of posting */
	enum space space;
};

/* A program may have receives by the ten thousand, and cancel all of them. */
#define RECEIVES_BITS 9u
#define RECEIVES (1u << RECEIVES_BITS)

/* by_context is where the receives of a context are, and some of other ones: by the bits of a
 * product that depend on all of the pointer's (Knuth, The Art of Computer Programming, 6.4). */
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
	bool directed; /* the source that a receive names counts */
	unsigned unswept; /* spaces of one that closes in which there was a message */
	unsigned sweeps;
	size_t min_multi;
	void (*serve)(struct endpoint *ep); /* moves on what has come for it */
	struct node node;    /* of all endpoints */
	struct node ops;     /* open ones */
	struct node receives[RECEIVES]; /* those of tagged messages that nobody has cancelled, by context */
	struct node buffers[RECEIVES];  /* those of posted, by context */
	struct node claimed; /* messages that a peek has taken */
	size_t unwanted;     /* of these, so many are to be thrown away */
	struct node posted;  /* buffers for untagged messages */
	struct node aside;   /* letters of sources for which there was none */
	size_t laid_aside;   /* so many */
	bool wanted;         /* one of them may have a buffer now */
	struct node answers; /* to accesses whose data has come */
	struct inbox untagged, requests;
};

enum kind { OP_SWEEP, OP_SEND, OP_RECV, OP_PEEK, OP_LETTER, OP_UNTAGGED, OP_ANSWER, OP_DATA, OP_BULK };

/* A request at the client. */
struct op {
	struct node node;
	struct node receive; /* among those of its context */
	struct endpoint *ep;
	enum kind kind;
	outrigger_done done; /* takes its end */
	void *context, *buf;
	uint64_t flags; /* of the completion; FI_PEEK's own of a peek */
	size_t room;
	bool reports;   /* writes a completion when all is well */
	bool silent;    /* and none when it is not */
	outrigger_request request;
	struct posted *posted;
	void *of; /* a letter, or an access at its origin or target */
	enum space space; /* of a sweep */
	bool abandoned; /* the call that started it has failed: it ends without a word */
	struct beginning *beginning; /* that call is under way, and takes its end */
};

/* A buffer for untagged messages. */
struct posted {
	struct node node;
	struct node receive; /* among those of its context */
	void *context;
	struct iovec iov[IOV_LIMIT];
	int segments;
	uint32_t from;
	bool multi, reports, retired;
	size_t used, room;
	unsigned under_way;
};

/* A message that a peek has taken out of matching. */
struct claimed {
	struct node node;
	void *context; /* of the probe */
	bool unwanted; /* it is to be thrown away */
	bool acknowledged; /* by openmpi.c, if its sender waits for that */
	struct outrigger_result message;
};

extern pthread_mutex_t provider_lock;
static inline void lock(void) { pthread_mutex_lock(&provider_lock); }
static inline void unlock(void) { pthread_mutex_unlock(&provider_lock); }

/* pool.c: pieces of one size. */
struct piece {
	struct piece *next;
};

struct pool {
	size_t bytes; /* of a piece: a multiple of a pointer's */
	struct piece *spare;
};

void *pool_take(struct pool *p); /* zeros; NULL: no memory */
void pool_give(struct pool *p, void *piece);

#define TIGHT_NS 5000u /* a look so soon after another one is part of waiting */
#define TIGHT_MAX 3u   /* looks that an MPI makes for one of its program's, or when it has found something */

/* object.c */
int no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int no_control(struct fid *fid, int command, void *arg);
int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
void keep_open(struct domain *d);
int close_unused(struct fid *fid, const unsigned *users, struct domain *of, void *more); /* frees it, and more, unless it is in use */
size_t bytes_of(const struct iovec *iov, size_t segments);

/* clock.c */
uint64_t nanoseconds(void);
uint64_t processor_time(void); /* of this thread, in ns */
void nap(void);                /* a moment; called without the lock too */

/* session.c: the one session of this process. */
outrigger *client(void); /* NULL: there is none */
void set_client(outrigger *s);
bool own_client(void);     /* there is one, and it is not that of the process which this one is a copy of */
bool yields_badly(void);   /* another thread computes on this processor */
bool crowded(uint32_t left); /* fewer requests are left */
int to_errno(int status);

/* completion.c */
void cq_put(struct cq *cq, const struct completion *c);
void count(struct counter *c, int status);
/* untold reports that an end is told by no error: that of the sidecar, to an operation without
 * a context. Open MPI 4 looks for the request of each error. */
static inline bool untold(const void *context, int status) { return context == NULL && status == OUTRIGGER_NO_SIDECAR; }
extern _Atomic unsigned unread; /* completions in all queues */
extern uint64_t doings; /* completions that were read, and requests that were started */

/* request.c */
struct op *op_new(struct endpoint *ep, enum kind kind, outrigger_done done, void *context);
void op_free(struct op *op);
void visit_ops(struct endpoint *ep, void (*visit)(struct op *op, const void *arg), const void *arg);
void cancel_ops(struct endpoint *ep, bool (*chosen)(const struct op *op, const void *arg), const void *arg);

/* presence.c: the program, and the attendant that stands in for it (background.c). */
struct presence {
	pthread_t attendant;
	bool attended; /* it is there */
	bool all;      /* the MPI's own steps go on, too */
	uint64_t looked; /* when the program's last look was over */
	unsigned tight;  /* looks in vain that soon followed on others */
	_Atomic bool away;
	bool roused; /* the attendant was woken by it, and has not come yet */
};

extern struct presence program;
bool behind(void);       /* this thread is the attendant; called without the lock too */
bool passing(void);      /* a look begins, of a program that looks now and then */
void looked(bool found); /* it is over */
void came_back(void);    /* this thread takes what has come: the program is here, if it is not the attendant */

/* progress.c */
extern struct node endpoints;
extern bool sidecar_ended;
void progress(void);
bool doze(uint64_t since, unsigned looks, bool waits); /* gives up the lock meanwhile, and reports so */
void set_patience(bool alone); /* each process of the job here has a processor */

/* background.c */
void attend(void);  /* starts the thread that goes on while the program computes, if it is wanted */
bool dismiss(void); /* ends it; false: it cannot be */
void depart(void);  /* gives up the lock, and hands over */

/* linger.c */
bool linger(void);
void found_something(void);
void end_of_start(ssize_t rc); /* gives up the lock, and hands over */
void end_of_look(bool passes, bool found); /* gives up the lock */

/* process.c: when this process is attached. */
int attach(void); /* 0 or -FI_E* */
void hold(void);
void release(void);

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
bool await_self(void); /* what this process has sent itself has come; false: it had sent nothing */
ssize_t cancel(struct endpoint *ep, void *context);
void discard(struct endpoint *ep);
void drop_claimed(struct endpoint *ep);
void sweep(struct endpoint *ep, enum space space);

/* region.c */
bool served(void); /* others may access memory of this process */

/* registration.c */
extern struct fi_ops_mr mr_ops;

/* origin.c, atomic.c */
extern struct fi_ops_rma rma_ops;
extern struct fi_ops_atomic atomic_ops;
int query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags);

/* target.c */
void serve_accesses(struct endpoint *ep);
bool drop_accesses(struct endpoint *ep);
void drop_answers(struct endpoint *ep);
struct registration;
void stop_transfers(struct registration *r);
void forget_region(const struct registration *r);

/* untagged.c */
ssize_t post_untagged(struct endpoint *ep, const struct iovec *iov, size_t segments, fi_addr_t from, void *context, uint64_t flags);
void serve_untagged(struct endpoint *ep);
bool cancel_untagged(struct endpoint *ep, void *context);
void fail_untagged(struct endpoint *ep, int status);
void drop_untagged(struct endpoint *ep);

#endif
