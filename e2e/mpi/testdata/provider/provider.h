/*
 * What the provider must do, call by call, through libfabric itself. Two ranks
 * play the same: what one does to the other, the other does to it at the same
 * time.
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

/* An endpoint with its queues, and the partner's address. */
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

/* done waits for a completion and wants it to have a context; fails wants an error. */
struct fi_cq_tagged_entry done(struct fid_cq *cq, void *context);
struct fi_cq_err_entry fails(struct fid_cq *cq, void *context);
bool nothing(struct fid_cq *cq);

/* meet waits until the partner has come as far. */
void meet(struct side *s);

/* swap gives the partner bytes, for its own, without a message. name is for this once. */
void swap(const char *name, void *bytes, size_t n);

void fill(void *b, size_t n, unsigned by);
void check(const void *b, size_t n, unsigned by, const char *what);

/* hints of both kinds of registration. */
void open_side(struct side *s, int mr_mode, const char *name);
void close_side(struct side *s);

struct door {
	uint64_t start, key; /* of the partner's region */
};

/* expose registers memory, and show tells the partner where it is. */
struct fid_mr *expose(struct side *s, void *memory, size_t n, uint64_t rights, uint64_t key);
struct door show(struct side *s, const struct fid_mr *mr, const void *start);

void messages(struct side *s);
void tagged(struct side *s);
void accesses(struct side *s);
void atomics(struct side *s);
void stay(void); /* on this processor alone */
void in_vain(struct side *s);
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
