/*
 * outrigger.h: the C client of Outrigger, message passing for an application
 * whose sidecar does the communication. It speaks the same shared-memory
 * contract as the Go client (api/shm/LAYOUT.md), and needs nothing but libc.
 *
 *     struct outrigger_config config = {0};           // finds its sidecar by environment
 *     char why[256];
 *     outrigger *s;
 *     if (outrigger_open(&config, &s, why, sizeof why) != OUTRIGGER_OK) ...
 *     struct outrigger_envelope to = {.peer = 1, .tag = 7};
 *     outrigger_send(s, data, bytes, &to, 0, &request);
 *     outrigger_wait(s, request, NULL);
 *     outrigger_close(s);
 *
 * A child of fork has no session: there, functions say OUTRIGGER_NO_SIDECAR or have no
 * memory, and outrigger_close, which need not be called, unmaps what the child has of its
 * parent's session. Memory of the arena is its parent's.
 *
 * The last error of a send, receive, probe, wait or test is kept for the job's verdict: a
 * process that then ends without outrigger_close is reported with it.
 *
 * Every function may be called from any thread. Functions return OUTRIGGER_OK
 * or one of the codes below; sizes are bytes.
 */
#ifndef OUTRIGGER_H
#define OUTRIGGER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call or a request has come to. The first ten are the contract's
 * (LAYOUT §6.1). */
enum outrigger_status {
	OUTRIGGER_OK = 0,
	OUTRIGGER_TRUNCATED = 1,   /* the message is longer than the buffer; length says how long */
	OUTRIGGER_CANCELLED = 2,
	OUTRIGGER_PEER_FAILED = 3,
	OUTRIGGER_ABORTED = 4,     /* the job has failed; outrigger_failure says why */
	OUTRIGGER_NO_MESSAGE = 5,  /* a probe that does not wait has found none */
	OUTRIGGER_INVALID = 6,     /* an argument is out of its bounds */
	OUTRIGGER_NO_MEMORY = 7,
	OUTRIGGER_UNSUPPORTED = 8,
	OUTRIGGER_PEER_LEFT = 9,   /* the peer has said goodbye */
	OUTRIGGER_REFUSED = 32,    /* the sidecar does not take this process */
	OUTRIGGER_NO_SIDECAR = 33, /* there is none, or it has ended */
	OUTRIGGER_TOO_MANY = 34,   /* 65,536 requests are open */
	OUTRIGGER_TIMEOUT = 35,
	OUTRIGGER_BUSY = 36        /* a request that has not ended uses the memory */
};

typedef struct outrigger outrigger; /* this process's attachment to its sidecar */

/* How to attach. Zero fields are taken from the environment that the launcher
 * sets: OUTRIGGER_SOCKET, OUTRIGGER_RANK, OUTRIGGER_ARENA, OUTRIGGER_WAIT. */
struct outrigger_config {
	const char *socket;   /* path of the sidecar's socket */
	uint32_t rank;        /* world rank to take; used only when socket is set */
	uint64_t arena_bytes; /* memory to allocate from; 0: the sidecar's default */
	const char *wait;     /* poll, yield or block */
};

/* Who is who. */
struct outrigger_world {
	uint32_t rank, ranks, pod, pods;
	uint32_t sharers; /* processes of the job on the sidecar's processors; 0: not known */
};

/* outrigger_open attaches to the sidecar. It waits up to 30 s while no sidecar listens on
 * the socket, and without an end for one that does and is not ready, since what it needs
 * outside of its pod, such as its certificate, may be away for any length of time. A rank
 * may attach again when it has closed its session, and waits then for the ranks of its pod
 * that have not. On failure *out is NULL and why, of why_bytes, says in words what
 * is wrong. */
int outrigger_open(const struct outrigger_config *config, outrigger **out, char *why, size_t why_bytes);

/* outrigger_close says goodbye when everything that was sent has been taken
 * over by its receivers, as MPI_Finalize does, or at once when the job has
 * failed. No other call may be under way, and s is gone afterwards. */
int outrigger_close(outrigger *s);

/* outrigger_abort ends the whole job with an exit code and a reason. */
int outrigger_abort(outrigger *s, int code, const char *reason);

struct outrigger_world outrigger_world(const outrigger *s);

/* outrigger_has_data says whether the sidecar carries data beside the tag
 * (OUTRIGGER_DATA). One of an earlier release does not. */
int outrigger_has_data(const outrigger *s);

/* outrigger_tags says how the program's MPI makes the tags of its messages, by a number of
 * LAYOUT §8.2, for a person who asks what ranks wait for. */
void outrigger_tags(outrigger *s, uint32_t layout);

/* outrigger_failure copies why the job failed, or an empty text. */
void outrigger_failure(outrigger *s, char *text, size_t bytes);

/* outrigger_status_text names a code. */
const char *outrigger_status_text(int status);

/* Memory shared with the sidecar: a message from or into it is not copied in
 * this process, and moves on while the application computes. 64-byte aligned;
 * NULL when the arena has no room. outrigger_free says OUTRIGGER_INVALID for
 * anything that is not a start of such memory, and OUTRIGGER_BUSY while a request
 * that has not ended reads or writes a part of it: the memory stays allocated. */
void *outrigger_alloc(outrigger *s, size_t bytes);
int outrigger_free(outrigger *s, void *memory);

/* outrigger_lend gives three quarters of the arena, in whole pages, to an
 * allocator of the application's own: *bytes of them, all zero. They are mapped
 * for as long as the process runs, also when the session has ended, and are not
 * given back. The rest serves messages of private memory. It is called once,
 * before anything is allocated; NULL: the arena has no room. */
void *outrigger_lend(outrigger *s, size_t *bytes);

/* outrigger_lend_pieces is outrigger_lend of memory that is not allocated yet: only as many
 * of its first bytes may be touched as outrigger_extend has answered. */
void *outrigger_lend_pieces(outrigger *s, size_t *bytes);

/* outrigger_extend has the sidecar allocate the first bytes of lent memory. It returns
 * bytes, or the size of the lent memory if that is less; 0: the sidecar has no memory, or
 * has ended. It calls no function that allocates, and may be called within malloc. */
size_t outrigger_extend(outrigger *s, size_t bytes);

/* Bytes of messages that have been sent from and received into where the
 * application has them, and those that were copied in this process. */
struct outrigger_traffic {
	uint64_t sent_in_place, sent_copied, received_in_place, received_copied;
};

struct outrigger_traffic outrigger_traffic(outrigger *s);

#define OUTRIGGER_ANY UINT32_MAX  /* any source */
#define OUTRIGGER_IOV_MAX 9       /* segments of one message */

/* To whom, or which messages. A receive or probe takes the oldest message of
 * the context whose source is peer (or any) and whose tag equals tag in every
 * bit that is 0 in ignore. Contexts are the application's own numbers below
 * 2^31, the same on both sides. */
struct outrigger_envelope {
	uint32_t peer;
	uint32_t context;
	uint64_t tag;
	uint64_t ignore; /* receives and probes */
	uint32_t data;   /* sends with OUTRIGGER_DATA */
	uint64_t reply;  /* sends with OUTRIGGER_REPLY: an outrigger_request */
};

/* How a request has ended. */
struct outrigger_result {
	int status;
	uint32_t peer;   /* source, or OUTRIGGER_ANY when nothing was matched */
	uint64_t tag;
	uint64_t length; /* of the message, also of one that was truncated */
	uint64_t handle; /* of a claimed message */
	uint32_t data;   /* what the sender sent beside the tag */
	int has_data;
};

/* A request under way; 0: one that is complete. Wait, and test when it says so,
 * end it. */
typedef uint64_t outrigger_request;

/* Called when a request has ended, inside some call of this library and with
 * its lock held: it must not call the library, nor block. Such a request ends
 * with the call: it is not waited for. */
typedef void (*outrigger_done)(void *arg, const struct outrigger_result *result);

/* Flags of a send. */
#define OUTRIGGER_SYNC 1u  /* completes only when a receive has matched it */
#define OUTRIGGER_COPY 2u  /* the memory may change when the call has returned */
#define OUTRIGGER_ACKED 4u /* completes only when the peer's sidecar has it */
#define OUTRIGGER_DATA 8u  /* 32 bits of data travel beside the tag; a probe sees them too */

/* The send ends with OUTRIGGER_TOO_MANY, as if none were left, where it would take one of the
 * last 512 requests: they are for receives, without which others' sends may not end. */
#define OUTRIGGER_MODEST 32u

/* The message wants a reply, for which the receive to->reply waits, of the same peer. If the
 * message is thrown away, since its receiver has shut its context or has dropped it, that
 * receive ends with OUTRIGGER_PEER_LEFT. A receive can be named once; not with SYNC or DATA.
 * A sidecar of an earlier release does not know it, and leaves the receive open. */
#define OUTRIGGER_REPLY 16u

/* Flags of a probe. */
#define OUTRIGGER_NOW 1u   /* answers OUTRIGGER_NO_MESSAGE instead of waiting */
#define OUTRIGGER_CLAIM 2u /* takes the message out of matching: see handle */

/* The segments of a message, gathered on one side and scattered on the other.
 * The list itself is copied; the memory must stay until the request has ended.
 * done may be NULL, then *request is to be waited for; a send of which both are
 * NULL is complete by itself (its memory is copied, as with OUTRIGGER_COPY). */
int outrigger_sendv(outrigger *s, const struct iovec *iov, int segments, const struct outrigger_envelope *to,
		    unsigned flags, outrigger_done done, void *arg, outrigger_request *request);
int outrigger_recvv(outrigger *s, const struct iovec *iov, int segments, const struct outrigger_envelope *from,
		    outrigger_done done, void *arg, outrigger_request *request);

/* outrigger_claim receives a message that a probe has claimed, outrigger_drop
 * throws it away. Each handle is good for one of them, once. */
int outrigger_claim(outrigger *s, uint64_t handle, const struct iovec *iov, int segments,
		    outrigger_done done, void *arg, outrigger_request *request);
int outrigger_drop(outrigger *s, uint64_t handle);

/* outrigger_shut says that this rank will receive no message of a context any more. What
 * comes from then on is thrown away: sends that wait for their receiver end with
 * OUTRIGGER_PEER_LEFT, as receives of replies do (OUTRIGGER_REPLY). What has come stays until
 * it is claimed and dropped. Cancel the context's receives before: they would get nothing
 * more. OUTRIGGER_UNSUPPORTED: the sidecar is of an earlier release, and keeps what comes. */
int outrigger_shut(outrigger *s, uint32_t context);

int outrigger_probe(outrigger *s, const struct outrigger_envelope *from, unsigned flags,
		    outrigger_done done, void *arg, outrigger_request *request);

/* One segment each. */
int outrigger_send(outrigger *s, const void *data, size_t bytes, const struct outrigger_envelope *to, unsigned flags,
		   outrigger_request *request);
int outrigger_recv(outrigger *s, void *data, size_t bytes, const struct outrigger_envelope *from,
		   outrigger_request *request);

/* outrigger_room is how many more requests can be open. Sends of which nobody is told are
 * requests until they are seen to have ended, which is by the next progress or test. */
uint32_t outrigger_room(const outrigger *s);

/* outrigger_cancel asks for the end of a request to which nothing has happened
 * yet. It then ends with OUTRIGGER_CANCELLED, or as usual if that was too late. */
int outrigger_cancel(outrigger *s, outrigger_request request);

/* outrigger_release gives the memory of an open request back to the caller at once: what a
 * send has still to send is copied, and what a receive gets is thrown away. The request
 * itself goes on. UNSUPPORTED: the memory is of the arena, and the sidecar itself
 * reads or writes it until the end. */
int outrigger_release(outrigger *s, outrigger_request request);

/* outrigger_wait waits for a request and ends it. result may be NULL; the
 * returned code is the result's. outrigger_test sets *over. */
int outrigger_wait(outrigger *s, outrigger_request request, struct outrigger_result *result);
int outrigger_test(outrigger *s, outrigger_request request, int *over, struct outrigger_result *result);

/* outrigger_progress takes what has come and moves staged messages on. It says
 * in *taken, which may be NULL, how many completions there were. */
int outrigger_progress(outrigger *s, unsigned *taken);

/* outrigger_yield gives the processor away between two looks in vain: whoever waits by
 * outrigger_test or outrigger_progress calls it, and not sched_yield, so that the sidecar
 * learns that this process waits, and does not compute between its looks. Where the
 * processor would not come back for milliseconds, as the last time, it sleeps instead,
 * for at most 0.5 ms, and is woken by what comes: outrigger_yield_sleeps reports whether it
 * would now. */
void outrigger_yield(outrigger *s);
int outrigger_yield_sleeps(const outrigger *s);

/* outrigger_sleep waits until something comes, for at most so many
 * microseconds. It may return earlier. */
int outrigger_sleep(outrigger *s, unsigned microseconds);

/* What comes while the program computes. A message of private memory goes in pieces, and
 * a piece is copied by whoever is inside of the library; a thread of the caller's own does
 * it for a program that is not:
 *
 *     while (outrigger_watch(s, 100000) == OUTRIGGER_OK)
 *             outrigger_attend(s);
 *
 * The program says by outrigger_away that it goes: from then on, until its next test,
 * progress, wait or sleep, the watcher is woken by what comes. all: by everything; else
 * only while messages of private memory are on their way. Nonzero: something has come
 * already, which the caller takes by outrigger_progress before it says so again, or leaves
 * to the watcher by outrigger_wake. Without a watcher it costs nothing. The watcher itself
 * may say it for a program that it takes to be gone.
 *
 * outrigger_watch sleeps for at most so many microseconds, and may return earlier;
 * OUTRIGGER_NO_SIDECAR is the end. One thread calls it. It goes off the processor on
 * which the program went on, if it may run on others, and onto it where the program has
 * lately exchanged many large messages and computed beside none. outrigger_attend does what
 * outrigger_progress does, if the program is away. outrigger_wake ends the sleep of every
 * thread. */
int outrigger_away(outrigger *s, int all);
int outrigger_watch(outrigger *s, unsigned microseconds);
int outrigger_attend(outrigger *s);
void outrigger_wake(outrigger *s);

#ifdef __cplusplus
}
#endif
#endif
