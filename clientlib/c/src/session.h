/* What the library's files share. Everything here is guarded by the session's
 * lock, but for what is set once by outrigger_open. */
#ifndef OUTRIGGER_SESSION_H
#define OUTRIGGER_SESSION_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outrigger.h"
#include "ring.h"

/* A list of offsets that is used as a stack. */
struct or_stack {
	uint64_t *list;
	size_t count, room;
};

int or_stack_push(struct or_stack *s, uint64_t v); /* 0, or -1: no memory */
bool or_stack_pop(struct or_stack *s, uint64_t *v);

/* A queue of request numbers. */
struct or_queue {
	uint32_t *list;
	size_t head, count, room; /* room is a power of two, or 0 */
};

int or_queue_push(struct or_queue *q, uint32_t id);
bool or_queue_first(const struct or_queue *q, uint32_t *id);
bool or_queue_pop(struct or_queue *q, uint32_t *id);

/* The arena: first fit over free ranges in the order of their addresses, which
 * are merged when they meet. */
struct or_span {
	uint64_t offset, size;
};

struct or_spans {
	struct or_span *list; /* by offset */
	size_t count, room;
};

struct or_arena {
	unsigned char *memory;
	uint64_t size;
	uint64_t ready; /* up to here it is allocated: nothing behind may be touched */
	outrigger *owner; /* that has more allocated (pieces.c); NULL: all is */
	struct or_spans spare, used;
};

#define OR_ARENA_ALIGN 64u

int or_arena_init(struct or_arena *a, unsigned char *memory, uint64_t size);
void or_arena_free(struct or_arena *a);
/* One that does not insist goes without for a while after the sidecar has had no memory. */
bool or_arena_take(struct or_arena *a, uint64_t bytes, bool insist, uint64_t *offset);
bool or_arena_give(struct or_arena *a, uint64_t offset);
uint64_t or_arena_size(const struct or_arena *a, uint64_t offset); /* of the allocation there; 0: none */

/* A piece of shared memory that carries a message, or a part of a staged one. */
struct or_chunk {
	uint8_t class;
	uint64_t offset, bytes;
};

#define OR_STAGE_DEPTH 4 /* chunks of one message that are with the engine at most */

struct or_chunks {
	struct or_chunk list[OR_STAGE_DEPTH];
	int count;
};

/* The slab, cut into slots for one small message each and chunks for larger ones. */
struct or_slab {
	unsigned char *memory;
	uint64_t slot_bytes, chunk_bytes;
	struct or_stack slots, chunks;
	size_t half;       /* of the chunks: as many are for sends, and for receives, */
	size_t held[2];    /* which have so many; by or_op.receives */
	uint64_t borrowed; /* bytes of chunks that are of the arena instead */
};

/* The state behind a request; its index is the request number of the contract. */
struct or_op {
	uint32_t gen;
	bool open, done, receives, staged, slotted;
	bool whole; /* one chunk, which is the first of spare, carries the message */
	bool counted; /* its memory is private, and larger than a slot */
	bool in_place; /* the engine reads or writes the caller's memory */
	bool asked;  /* the other side waits for chunks of a staged send */
	bool queued; /* is in the session's stage queue or one of the starved ones */
	bool nobody; /* nobody is told of its end */
	const char *call; /* what the caller asked for: */
	uint32_t peer;
	uint64_t tag, bytes;
	outrigger_done notify;
	void *arg;
	struct iovec iov[OUTRIGGER_IOV_MAX];
	int segments;
	void *copy; /* of the message, freed at the end */
	uint64_t slot;
	uint64_t offset; /* bytes of a staged message that chunks were supplied for */
	uint64_t want;   /* bytes that they are to be supplied for in all */
	uint64_t room;
	struct or_chunks with_engine, spare;
	struct outrigger_result result;
};

#define OR_OP_BLOCK 64u

/* Requests are kept in blocks that never move. */
struct or_ops {
	struct or_op **blocks;
	uint32_t count; /* of ops */
	struct or_stack free;
	uint64_t unheard; /* open sends of which nobody is told */
	_Atomic uint32_t private; /* open ones that are counted */
	_Atomic uint32_t used;    /* open ones */
};

struct or_op *or_op_at(const struct or_ops *t, uint32_t id);
int or_op_take(struct or_ops *t, uint32_t *id, struct or_op **op);
void or_op_release(struct or_ops *t, uint32_t id);
void or_ops_free(struct or_ops *t);

/* How a caller waits: looks, then looks that yield, then sleep. */
struct or_patience {
	bool polls;         /* for ever */
	bool blocks;        /* at once */
	uint64_t yield_ns;  /* before it sleeps */
	/* What yields have cost: until when a caller sleeps instead, and how long that is.
	 * Threads share it, and a lost update does not matter. */
	_Atomic uint64_t crowded, crowd_ns;
};

/* Whether this process waits (place.c). Times are of or_now, but for spent. */
struct or_place {
	bool wanted;     /* the sidecar looks at it */
	bool waits;      /* is said of it */
	bool away;       /* until the look that it is in, it has computed */
	bool slept;      /* or slept, and not within this library */
	uint64_t looked; /* at completions, or woke, or had a message copied */
	uint64_t marked; /* when the thread's processor time was found out, */
	uint64_t spent;  /* which was so much, */
	long switches;   /* and how often it had been preempted */
	long sleeps;     /* or had gone to sleep; also after a sleep within this library */
	pid_t thread;    /* whose time it is */
	uint64_t vain;   /* the first of the looks in vain since the last other one, 0: none */
};

/* A thread that watches while the program is away (watch.c). */
struct or_watch {
	_Atomic bool there;
	bool away;
	bool armed; /* the word may be set for it */
	pthread_t thread; /* the watcher, if there */
};

struct outrigger {
	pthread_mutex_t lock;
	int socket, doorbell; /* these change while nobody forks (fork.c), and -1 is none */
	int files[2];         /* of the control segment and of the arena, until they are mapped */
	struct outrigger_world world;
	uint64_t features; /* of the contract, that both sides know */
	unsigned char *control; /* the control segment */
	uint64_t control_bytes;
	struct or_producer submit;
	struct or_consumer complete;
	struct or_arena arena;
	pthread_mutex_t asking; /* guards the four below; the caller may hold the lock of its allocator */
	uint64_t asks_again;    /* when those that do not insist do; 0: at once */
	uint64_t lent_ready, lent_size; /* bytes of the lent part that are allocated, and all */
	bool mute;        /* the socket has ended, or is not to be believed: nothing is asked */
	struct or_slab slab;
	struct or_ops ops;
	struct or_queue stage, starved[2]; /* the latter by or_op.receives, as chunks are */
	struct or_patience patience;
	struct or_place place;
	struct or_watch watch;
	uint64_t silent; /* silent sends submitted */
	struct outrigger_traffic traffic;
	bool lent;       /* a part of the arena, which stays mapped */
	unsigned taken;  /* completions, since somebody asked last */
	unsigned looked; /* of these, when the program itself looked last */
	unsigned sleepers; /* threads that may be blocked */
	uint32_t roused; /* how often they were woken from here */
	bool gone;       /* the sidecar has ended, or cannot be reached */
	bool lied;       /* it is not to be believed, and is gone */
	bool failed;     /* the job has */
	bool forked;     /* this is the copy of a child, which has no session */
	outrigger *next_known; /* fork.c's */
};

/* Functions of the files, lowest first: no file calls one below it (hack/arch, TestCClientHasNoCycle). */

/* clock.c */
uint64_t or_now(void); /* ns */

/* query.c: functions of outrigger.h */

/* arena.c, op.c: declared with their types */

/* pieces.c */
bool or_grow(outrigger *s, uint64_t *ready, uint64_t end, uint64_t limit, bool insist);

/* bell.c */
int or_ring(outrigger *s);
bool or_sidecar_ended(outrigger *s); /* looks at the socket */
void or_nap(const outrigger *s, uint32_t word, unsigned microseconds); /* while the word that the sidecar wakes by is this one */
void or_rouse(outrigger *s);         /* wakes every thread that sleeps */
void or_back(outrigger *s);
bool or_watches(const outrigger *s);

/* place.c */
void or_place_leaves(outrigger *s, uint64_t bytes);
void or_place_back(outrigger *s);
void or_place_looks(outrigger *s, unsigned came);
void or_place_waits(outrigger *s);
void or_place_woke(outrigger *s);
void or_place_napped(outrigger *s);
void or_place_forked(void);

/* fork.c */
int or_know(outrigger *s);   /* before it has a descriptor */
void or_forget(outrigger *s); /* closes those that it has */
void or_hold_forks(void);    /* nothing is allocated, and nobody waits, until */
void or_let_fork(void);

/* lasterror.c: notes a status that is an error, and returns it. The lock is held, or the
 * arguments of the call are what is wrong. */
int or_failed(outrigger *s, const char *call, uint32_t peer, uint64_t tag, uint64_t bytes, int status);

/* stage.c */
int or_slab_init(struct or_slab *slab, unsigned char *memory, uint64_t size, uint64_t eager);
bool or_whole(outrigger *s, struct or_op *op, uint64_t bytes);
unsigned char *or_chunk_at(const outrigger *s, struct or_chunk k);
bool or_next_chunk(outrigger *s, uint32_t id, struct or_op *op, struct or_descriptor *d);
int or_staged(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d);
void or_want_stage(outrigger *s, uint32_t id, struct or_op *op);
void or_give_chunks(outrigger *s, struct or_op *op);
void or_feed(outrigger *s);
uint64_t or_gather(const struct iovec *iov, int segments, uint64_t from, unsigned char *to, uint64_t bytes);
void or_scatter(const struct iovec *iov, int segments, uint64_t at, const unsigned char *from, uint64_t bytes);

/* complete.c */
void or_drop(outrigger *s, uint32_t id, struct or_op *op);
int or_drain(outrigger *s);

/* submit.c */
int or_submit(outrigger *s, const struct or_descriptor *d);

/* progress.c */
int or_begin(outrigger *s, uint32_t *id, struct or_op **op);
int or_stage(outrigger *s, uint32_t id, struct or_op *op);
int or_progress(outrigger *s);
int or_look(outrigger *s);

/* wait.c */
int or_patience_init(outrigger *s, const char *name);

/* attach.c */
int or_attach(const struct outrigger_config *config, outrigger *s, char *why, size_t why_bytes);
void or_unmap(outrigger *s);
void or_detach(outrigger *s); /* closes, unmaps and frees whatever is there */
void or_encode_hello(unsigned char b[OR_HELLO_BYTES], uint32_t rank, uint64_t arena_bytes);
struct or_welcome {
	uint32_t abi, accepted, rank, ranks, pod, pods, sharers;
	uint64_t features, segment_bytes, arena_bytes, eager_bytes;
	char text[OR_TEXT_MAX + 1];
};
bool or_decode_welcome(const unsigned char *b, size_t n, struct or_welcome *w);

static inline _Atomic uint32_t *or_word(const outrigger *s, size_t offset)
{
	return (_Atomic uint32_t *)(void *)(s->control + offset);
}

static inline uint64_t or_retired(const outrigger *s)
{
	return atomic_load((_Atomic uint64_t *)(void *)(s->control + OR_SEG_OFF_RETIRED));
}

#endif
