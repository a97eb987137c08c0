/*
 * Tests every call of the provider through libfabric. Two ranks run the same tests at
 * the same time, each as the other's partner.
 */
#ifndef TEST_PROVIDER_H
#define TEST_PROVIDER_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* side is an endpoint with its queues, and the partner's address. */
struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_cntr *sent, *received, *reads, *writes;
	struct fid_ep *ep;
	fi_addr_t partner, self;
};

extern unsigned rank;
extern const char *scenario;

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define must(rc) must_at((rc), #rc, __LINE__)
#define want(good, ...)                                                         \
	do {                                                                    \
		if (!(good))                                                    \
			die(__VA_ARGS__);                                       \
	} while (0)

void must_at(ssize_t rc, const char *what, int line);

/* done waits for a completion and checks its context; fails waits for an error. */
struct fi_cq_tagged_entry done(struct fid_cq *cq, void *context);
struct fi_cq_err_entry fails(struct fid_cq *cq, void *context);
bool nothing(struct fid_cq *cq);

/* meet waits until the partner calls meet, too. */
void meet(struct side *s);

/* swap exchanges bytes with the partner without messages. Each call needs another name. */
void swap(const char *name, void *bytes, size_t n);

void fill(void *b, size_t n, unsigned by);
void check(const void *b, size_t n, unsigned by, const char *what);

/* open_side opens an endpoint with a kind of registration, mr_mode. */
void open_side(struct side *s, int mr_mode, const char *name);
void close_side(struct side *s);

struct door {
	uint64_t start, key; /* address and key of the partner's region */
};

/* expose registers memory, and show exchanges its address and key with the partner's. */
struct fid_mr *expose(struct side *s, void *memory, size_t n, uint64_t rights, uint64_t key);
struct door show(struct side *s, const struct fid_mr *mr, const void *start);

void messages(struct side *s);
void tagged(struct side *s);
void accesses(struct side *s);
void atomics(struct side *s);
void stay(void); /* pins the process to its current CPU */
void empty_polls(struct side *s);
void allocations(struct side *s);
void crowds(struct side *s);
void offers(struct side *s);
void leave_receives(struct side *s);
void leave_message(struct side *s);
void send_after(struct side *s);
void closed(struct side *basic);
void strange(struct side *s);
void bereft(struct side *s);
void orphaned(struct side *s);

#endif
