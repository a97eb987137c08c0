/* The types of a session and the functions that the library's files share. The session's lock
 * guards everything here except the fields that outrigger_open sets once, and atomic fields. The
 * Go client has the types in clientlib/session.go, operation.go, arena.go and slab.go.
 *
 * The life of an operation (struct or_op):
 *
 *   or_enter        the ring has room for its descriptor
 *   or_begin_op     allocated: open
 *   or_submit    its descriptor is in the submission ring
 *   OR_OP_MATCHED, OR_OP_STAGED    only if staged: chunks go to the engine and come back
 *   OR_OP_DONE   done: result is set, slot and chunks are free
 *   or_free_op      freed, after the callback, or by the wait or test that returns the result */
#ifndef OUTRIGGER_SESSION_H
#define OUTRIGGER_SESSION_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outrigger.h"
#include "ring.h"

/* A stack of offsets. */
struct or_stack {
	uint64_t *list;
	size_t count, room;
};

int or_stack_push(struct or_stack *s, uint64_t v); /* returns 0, or -1 if there is no memory */
bool or_stack_pop(struct or_stack *s, uint64_t *v);

/* A queue of request numbers. */
struct or_queue {
	uint32_t *list;
	size_t head, count, room; /* room is a power of two, or 0 */
};

int or_queue_push(struct or_queue *q, uint32_t id);
bool or_queue_first(const struct or_queue *q, uint32_t *id);
bool or_queue_pop(struct or_queue *q, uint32_t *id);

/* A range of the arena. */
struct or_span {
	uint64_t offset, size;
};

struct or_spans {
	struct or_span *list; /* free spans, sorted by offset */
	size_t count, room;
};

/* The arena's allocator: first fit over free spans in the order of their addresses. Adjacent free
 * spans are merged. */
struct or_arena {
	unsigned char *memory;
	uint64_t size;
	uint64_t ready; /* the sidecar has allocated the bytes before this offset; later bytes must not be accessed */
	outrigger *owner; /* the session that requests more pieces (pieces.c); not used if all is allocated */
	struct or_spans spare, used;
};

#define OR_ARENA_ALIGN 64u

int or_arena_init(struct or_arena *a, unsigned char *memory, uint64_t size);
void or_arena_free(struct or_arena *a);
/* insist: ask the sidecar for memory even if it had none a moment ago (or_grow_arena). */
bool or_arena_alloc(struct or_arena *a, uint64_t bytes, bool insist, uint64_t *offset);
bool or_arena_release(struct or_arena *a, uint64_t offset);
uint64_t or_arena_size(const struct or_arena *a, uint64_t offset); /* returns the size of the allocation that starts at offset; 0: none does */

/* A range of shared memory that carries a message, or a part of a staged one. */
struct or_chunk {
	uint8_t class;
	uint64_t offset, bytes;
};

#define OR_STAGE_DEPTH 4 /* at most so many chunks of one message are with the engine: enough to copy one while others are sent */

struct or_chunks {
	struct or_chunk list[OR_STAGE_DEPTH];
	int count;
};

/* The slab, cut into slots for one small message each and chunks for larger ones. */
struct or_slab {
	unsigned char *memory;
	uint64_t slot_bytes, chunk_bytes;
	struct or_stack slots, chunks;
	size_t half;       /* half the number of chunks: the maximum for sends, and the maximum for receives */
	size_t held[2];    /* number of chunks that sends [0] and receives [1] use */
	uint64_t borrowed; /* bytes of chunks that were allocated in the arena, because the slab had none */
};

/* An operation. Its index in the table is the request number of the contract. */
struct or_op {
	uint32_t gen; /* distinguishes operations that have the same number one after the other */
	bool open, done, receives, staged;
	bool slotted; /* a slot is allocated for the operation */
	bool whole; /* one chunk, which is the first of spare, carries the message */
	bool counted; /* counted in or_ops.private: the memory is private, and the message larger than a slot */
	bool in_place; /* the engine reads or writes the caller's memory */
	bool peer_waits;  /* the peer waits for chunks of this staged operation */
	bool reaches; /* the operation is a message of an access to memory of another rank (LAYOUT §8.2) */
	bool queued; /* the operation is in the session's stage queue or in one of the starved queues */
	bool cancels; /* its cancellation waits for room in the ring, and the operation is in the cancels queue */
	bool unreported; /* neither a callback nor a request reports the end of the operation */
	const char *call; /* the call and its arguments, for the last error: */
	uint32_t peer;
	uint64_t tag, bytes;
	outrigger_done notify;
	void *arg;
	struct iovec iov[OUTRIGGER_IOV_MAX];
	int segments;
	void *copy; /* copy of the message, freed at the end of the operation */
	uint64_t slot;
	uint64_t offset; /* number of bytes of a staged message for which chunks were submitted */
	uint64_t want;   /* total number of bytes for which chunks will be submitted */
	uint64_t room;   /* length of the buffer */
	struct or_chunks with_engine, spare;
	struct outrigger_result result;
};

#define OR_OP_BLOCK 64u

/* The table of operations: blocks that never move, so that pointers stay valid. */
struct or_ops {
	struct or_op **blocks;
	uint32_t count; /* number of operations in all blocks */
	struct or_stack free;
	uint64_t unreported; /* number of open sends whose end is reported to no caller */
	_Atomic uint32_t private; /* number of open operations with counted set */
	_Atomic uint32_t used;    /* number of open operations */
};

struct or_op *or_op_at(const struct or_ops *t, uint32_t id);
int or_op_alloc(struct or_ops *t, uint32_t *id, struct or_op **op);
void or_op_release(struct or_ops *t, uint32_t id);
void or_ops_free(struct or_ops *t);

/* The wait policy: how a wait polls, yields and sleeps (wait.c). */
struct or_wait_policy {
	bool polls;         /* a thread polls and never sleeps */
	bool blocks;        /* a thread sleeps at once */
	uint64_t yield_ns;  /* for other policies: time for which a thread polls and yields before it sleeps */
	/* The back-off from yields: until when a wait sleeps instead of yielding, and how long that
	 * period was. Threads share them without a lock: a lost update does no harm. */
	_Atomic uint64_t backoff_until, backoff_ns;
};

/* Whether this process waits (activity.c). Times are of or_now, except cpu_ns. */
struct or_activity {
	bool watched;    /* the sidecar reads the activity (OR_FEATURE_PLACE) */
	bool waits;      /* the word says that the process waits */
	uint64_t computed_ns; /* CPU time for which the program computed before the present poll; 0: it did not */
	uint64_t slept_ns; /* time for which the program slept outside of this library before the present poll; 0: it did not */
	uint64_t polled; /* last poll, end of a sleep or yield, or copy of a message */
	/* The last sample: */
	uint64_t sampled;/* when it was taken */
	uint64_t cpu_ns; /* CPU time of the thread */
	long switches;   /* context switches of the thread */
	long sleeps;     /* context switches of the thread to sleep; renewed after a sleep within this library */
	pid_t thread;    /* the thread whose activity this is */
	uint64_t empty_since; /* first of the empty polls since the last other one; 0: none */
	/* Repetitions in vain: */
	unsigned in_vain;       /* value of the session's in_vain at the last poll */
	bool paused;            /* the program has acted since the last one ended */
	uint64_t between_ns;    /* mean time between the last poll and a probe */
	uint64_t account_ns;    /* time for which the program computed or slept lately */
	uint64_t accounted;     /* when account_ns was last changed */
};

/* The thread that makes progress while the program computes (watch.c). */
struct or_watch {
	_Atomic bool there;
	bool away;  /* the program is outside of the library and leaves completions to the watcher */
	bool armed; /* the waiting word may be set for the watcher */
	pthread_t thread; /* the watcher, if there is one */
};

struct outrigger {
	pthread_mutex_t lock;
	int socket, doorbell; /* -1: none; they change only while forks are locked out (fork.c) */
	int files[2];         /* descriptors of the control segment and of the arena, until both are mapped */
	struct outrigger_world world;
	uint64_t features; /* features of the contract that both sides have */
	unsigned char *control; /* the control segment */
	uint64_t control_bytes;
	struct or_producer submit;
	struct or_consumer complete;
	struct or_arena arena;
	pthread_mutex_t pieces_lock; /* guards the next four fields; a caller may hold the lock of its allocator */
	uint64_t pieces_retry;    /* when callers that do not insist may request pieces again; 0: at once */
	uint64_t lent_ready, lent_size; /* bytes of the lent part that are allocated, and all bytes of the lent part */
	bool no_pieces;        /* the socket has ended, or an answer was malformed: nothing is requested */
	struct or_slab slab;
	struct or_ops ops;
	struct or_queue stage;      /* operations for which chunks can be submitted */
	struct or_queue starved[2]; /* sends [0] and receives [1] that wait for a free chunk */
	struct or_queue cancels;    /* operations whose cancellation waits for room in the ring */
	struct or_wait_policy wait_policy;
	struct or_activity activity;
	struct or_watch watch;
	uint64_t silent; /* number of silent sends that were submitted */
	struct outrigger_traffic traffic;
	bool lent;       /* a part of the arena is lent and stays mapped */
	unsigned completed;  /* number of completions since the last outrigger_progress */
	unsigned polled; /* value of completed at the last poll of the program itself */
	unsigned in_vain; /* number of completions that may be of a repetition in vain: of probes that found nothing, and of accesses */
	unsigned sleepers; /* number of threads that may be blocked */
	uint32_t wakeups; /* number of times that or_wake_sleepers woke threads: a part of the waiting word's value */
	_Atomic uint64_t handled; /* changes with each completion that is handled; unique among the sessions of the process */
	uint64_t asked;   /* time at which a poll last asked whether the sidecar has ended */
	bool gone;       /* the sidecar has ended, or cannot be reached */
	bool violated;       /* the sidecar has violated the protocol; gone is set as well */
	bool failed;     /* the job has failed */
	bool forked;     /* this is a child's copy of its parent's session */
	outrigger *next_session; /* next session of this process (fork.c) */
};

/* or_get reads a field, without the lock, that other threads write by or_set, with the lock: the ends
 * of the session, the counts of its queues, and watch.armed (outrigger_idle, or_in_vain). A value that
 * is about to change is a correct answer for a moment of the call. */
#define or_get(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define or_set(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

/* The functions of each file, lowest layer first: no file calls a function of a file below it in
 * this list (hack/arch, TestCClientHasNoCycle). */

/* clock.c */
uint64_t or_now(void); /* returns the present time in ns */

/* query.c: functions of outrigger.h */

/* arena.c, op.c: declared with their types */

/* pieces.c */
bool or_grow_arena(outrigger *s, uint64_t *ready, uint64_t end, uint64_t limit, bool insist);

/* bell.c */
int or_ring_doorbell(outrigger *s);
bool or_sidecar_ended(outrigger *s);
void or_sleep_on_word(const outrigger *s, uint32_t word, unsigned microseconds);
void or_wake_sleepers(outrigger *s);
void or_program_back(outrigger *s);
bool or_is_watcher(const outrigger *s);

/* activity.c */
void or_activity_copied(outrigger *s, uint64_t bytes);
void or_activity_begin(outrigger *s, bool watched);
void or_activity_probes(outrigger *s);
void or_activity_begin_poll(outrigger *s);
void or_activity_end_poll(outrigger *s, unsigned came);
void or_activity_waits(outrigger *s);
void or_activity_yielded(outrigger *s);
void or_activity_slept(outrigger *s);
void or_activity_forked(void);

/* fork.c */
int or_register_session(outrigger *s);
void or_unregister_session(outrigger *s);
void or_lock_forks(void); /* locks out forks; until or_unlock_forks the caller must not allocate or block */
void or_unlock_forks(void);

/* lasterror.c. The session's lock is held, except for an error about the call's arguments. */
int or_record_error(outrigger *s, const char *call, uint32_t peer, uint64_t tag, uint64_t bytes, int status);

/* stage.c */
int or_slab_init(struct or_slab *slab, unsigned char *memory, uint64_t size, uint64_t eager);
bool or_alloc_whole(outrigger *s, struct or_op *op, uint64_t bytes);
bool or_alloc_copy(outrigger *s, struct or_op *op, uint64_t bytes);
unsigned char *or_chunk_at(const outrigger *s, struct or_chunk k);
bool or_next_chunk(outrigger *s, uint32_t id, struct or_op *op, struct or_descriptor *d);
int or_chunk_returned(outrigger *s, uint32_t id, struct or_op *op, const struct or_descriptor *d);
void or_queue_stage(outrigger *s, uint32_t id, struct or_op *op);
void or_free_chunks(outrigger *s, struct or_op *op);
void or_feed_starved(outrigger *s);
uint64_t or_gather(const struct iovec *iov, int segments, uint64_t from, unsigned char *to, uint64_t bytes);
void or_scatter(const struct iovec *iov, int segments, uint64_t at, const unsigned char *from, uint64_t bytes);

/* complete.c */
void or_free_op(outrigger *s, uint32_t id, struct or_op *op);
int or_handle_completions(outrigger *s);

/* submit.c */
int or_submit(outrigger *s, const struct or_descriptor *d);

/* progress.c */
int or_begin_op(outrigger *s, uint32_t *id, struct or_op **op);
int or_submit_chunks(outrigger *s, uint32_t id, struct or_op *op);
int or_enter(outrigger *s);
bool or_behind(outrigger *s);
bool or_ended(outrigger *s);
int or_progress(outrigger *s);
int or_poll(outrigger *s);

/* vain.c */
void or_vain_init(outrigger *s);
bool or_in_vain(const outrigger *s, outrigger_request request);
void or_note_vain(const outrigger *s, outrigger_request request);
void or_end_vain(void);

/* wait.c */
int or_wait_policy_init(outrigger *s, const char *name);

/* attach.c */
int or_attach(const struct outrigger_config *config, outrigger *s, char *why, size_t why_bytes);
void or_unmap(outrigger *s);
void or_detach(outrigger *s); /* closes, unmaps and frees all that s has */
void or_encode_hello(unsigned char b[OR_HELLO_BYTES], uint32_t rank, uint64_t arena_bytes);
/* A decoded Welcome (LAYOUT §2.2). */
struct or_welcome {
	uint32_t abi, accepted, rank, ranks, pod, pods, sharers;
	uint64_t features, segment_bytes, arena_bytes, eager_bytes;
	char text[OR_TEXT_MAX + 1];
};
bool or_decode_welcome(const unsigned char *b, size_t n, struct or_welcome *w);

/* or_word returns a word of the control segment. */
static inline _Atomic uint32_t *or_word(const outrigger *s, size_t offset)
{
	return (_Atomic uint32_t *)(void *)(s->control + offset);
}

/* or_retired returns how many silent sends the engine has taken over. */
static inline uint64_t or_retired(const outrigger *s)
{
	return atomic_load((_Atomic uint64_t *)(void *)(s->control + OR_SEG_OFF_RETIRED));
}

#endif
