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
 * A child of fork has no session: in a child, functions return OUTRIGGER_NO_SIDECAR or NULL.
 * outrigger_close, which a child need not call, unmaps the child's copy of its parent's
 * session. Memory of the arena belongs to the parent.
 *
 * The last error of a send, receive, probe, wait or test is recorded for the job's verdict: if
 * the process then ends without outrigger_close, the verdict quotes it.
 *
 * Every function may be called from any thread. Functions return OUTRIGGER_OK
 * or one of the codes below. Sizes are in bytes.
 */
#ifndef OUTRIGGER_H
#define OUTRIGGER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The status of a call or of a request. The first ten are those of the contract
 * (LAYOUT §6.1). */
enum outrigger_status {
	OUTRIGGER_OK = 0,
	OUTRIGGER_TRUNCATED = 1,   /* the message is longer than the buffer; length is the message's */
	OUTRIGGER_CANCELLED = 2,
	OUTRIGGER_PEER_FAILED = 3,
	OUTRIGGER_ABORTED = 4,     /* the job has failed; outrigger_failure says why */
	OUTRIGGER_NO_MESSAGE = 5,  /* a probe with OUTRIGGER_NOW has found no message */
	OUTRIGGER_INVALID = 6,     /* an argument is out of its bounds */
	OUTRIGGER_NO_MEMORY = 7,
	OUTRIGGER_UNSUPPORTED = 8,
	OUTRIGGER_PEER_LEFT = 9,   /* the peer has closed its session */
	OUTRIGGER_REFUSED = 32,    /* the sidecar does not accept this process */
	OUTRIGGER_NO_SIDECAR = 33, /* there is no sidecar, or it has ended */
	OUTRIGGER_TOO_MANY = 34,   /* 65,536 requests are open */
	OUTRIGGER_TIMEOUT = 35,
	OUTRIGGER_BUSY = 36        /* an open request uses the memory */
};

typedef struct outrigger outrigger; /* this process's attachment to its sidecar */

/* How to attach. Zero fields are filled in from the environment that the launcher
 * sets: OUTRIGGER_SOCKET, OUTRIGGER_RANK, OUTRIGGER_ARENA, OUTRIGGER_WAIT. */
struct outrigger_config {
	const char *socket;   /* path of the sidecar's socket */
	uint32_t rank;        /* world rank of this process; used only if socket is set */
	uint64_t arena_bytes; /* memory to allocate from; 0: the sidecar's default */
	const char *wait;     /* poll, yield or block */
};

/* The position of this process in the job. */
struct outrigger_world {
	uint32_t rank, ranks, pod, pods;
	uint32_t sharers; /* processes of the job on the sidecar's CPUs; 0: not known */
};

/* outrigger_open attaches to the sidecar. If no sidecar listens on the socket, it waits up to
 * 30 s. If one listens and is not ready, it waits without a limit, because services outside of
 * the pod that the sidecar needs, such as the one that issues its certificate, may be absent for
 * any length of time. A rank may attach again after it has closed its session; outrigger_open
 * then waits until the other ranks of its pod have closed theirs. On failure *out is NULL, and
 * why, of why_bytes, is the text of the error. */
int outrigger_open(const struct outrigger_config *config, outrigger **out, char *why, size_t why_bytes);

/* outrigger_close detaches from the sidecar after the receivers have taken over all messages
 * that were sent, as MPI_Finalize does, or at once if the job has failed. No other call may be
 * in progress, and s must not be used afterwards. */
int outrigger_close(outrigger *s);

/* outrigger_abort ends the whole job with an exit code and a reason. */
int outrigger_abort(outrigger *s, int code, const char *reason);

struct outrigger_world outrigger_world(const outrigger *s);

/* outrigger_has_data reports whether the sidecar carries data with the tag (OUTRIGGER_DATA). A
 * sidecar of an earlier release does not. */
int outrigger_has_data(const outrigger *s);

/* outrigger_tags records how the program's MPI composes the tags of its messages, as a number of
 * LAYOUT §8.2. Explanations of a hang name tags and communicators by it. */
void outrigger_tags(outrigger *s, uint32_t layout);

/* outrigger_failure copies the reason why the job failed, or an empty text. */
void outrigger_failure(outrigger *s, char *text, size_t bytes);

/* outrigger_status_text returns the text of a status. */
const char *outrigger_status_text(int status);

/* outrigger_alloc allocates memory that is shared with the sidecar: a message from or into it is
 * not copied in this process, and is transferred while the application computes. The memory is
 * aligned to 64 bytes. NULL: the arena has no room. outrigger_free returns OUTRIGGER_INVALID if
 * memory is not the start of such memory, and OUTRIGGER_BUSY while an open request reads or
 * writes a part of it; the memory then stays allocated. */
void *outrigger_alloc(outrigger *s, size_t bytes);
int outrigger_free(outrigger *s, void *memory);

/* outrigger_lend gives three quarters of the arena, in whole pages, to an allocator of the
 * application, and sets *bytes to their size. All bytes are zero. The memory stays mapped until
 * the process ends, even after the session has ended, and cannot be given back. The rest of the
 * arena serves messages of private memory. outrigger_lend may be called once, before anything is
 * allocated. NULL: the arena has no room. */
void *outrigger_lend(outrigger *s, size_t *bytes);

/* outrigger_lend_pieces is like outrigger_lend, but the sidecar has not allocated the memory yet:
 * only as many of its first bytes may be accessed as outrigger_extend has returned. */
void *outrigger_lend_pieces(outrigger *s, size_t *bytes);

/* outrigger_extend has the sidecar allocate the first bytes of lent memory. It returns bytes, or
 * the size of the lent memory if that is less, or 0 if the sidecar has no memory or has ended. It
 * allocates nothing and may be called within malloc. */
size_t outrigger_extend(outrigger *s, size_t bytes);

/* Bytes of messages that were sent and received in place, in the application's memory, and of
 * those that were copied in this process. */
struct outrigger_traffic {
	uint64_t sent_in_place, sent_copied, received_in_place, received_copied;
};

struct outrigger_traffic outrigger_traffic(outrigger *s);

#define OUTRIGGER_ANY UINT32_MAX  /* any source */
#define OUTRIGGER_IOV_MAX 9       /* segments of one message */

/* The destination of a send, or which messages a receive or probe matches: the oldest message of
 * the context whose source is peer (or any source) and whose tag equals tag in every bit that is
 * 0 in ignore. Contexts are numbers below 2^31 that the application chooses, the same on both
 * sides. */
struct outrigger_envelope {
	uint32_t peer;
	uint32_t context;
	uint64_t tag;
	uint64_t ignore; /* receives and probes */
	uint32_t data;   /* sends with OUTRIGGER_DATA */
	uint64_t reply;  /* sends with OUTRIGGER_REPLY: an outrigger_request */
};

/* The result of a request. */
struct outrigger_result {
	int status;
	uint32_t peer;   /* source, or OUTRIGGER_ANY if nothing was matched */
	uint64_t tag;
	uint64_t length; /* of the message, also of one that was truncated */
	uint64_t handle; /* of a claimed message */
	uint32_t data;   /* the sender's data (OUTRIGGER_DATA) */
	int has_data;
};

/* An open request; 0: a complete one. outrigger_wait ends it, as does outrigger_test if it sets
 * *over. */
typedef uint64_t outrigger_request;

/* A callback, called when a request has completed, within any call of this library and with its
 * lock held. It must not call the library and must not block. The request ends with the callback:
 * it must not be waited for. */
typedef void (*outrigger_done)(void *arg, const struct outrigger_result *result);

/* Flags of a send. */
#define OUTRIGGER_SYNC 1u  /* completes only when a receive has matched the message */
#define OUTRIGGER_COPY 2u  /* the memory may change as soon as the call returns */
#define OUTRIGGER_ACKED 4u /* completes only when the peer's sidecar has the message */
#define OUTRIGGER_DATA 8u  /* 32 bits of data are sent with the tag; a probe returns them, too */

/* The send fails with OUTRIGGER_TOO_MANY if it would use one of the last 512 requests. They are
 * reserved for receives, without which the sends of other ranks may never complete. */
#define OUTRIGGER_MODEST 32u

/* The message requests a reply from the same peer, for which the receive to->reply waits. If the
 * message is discarded, because its receiver has shut its context or has dropped the message,
 * that receive completes with OUTRIGGER_PEER_LEFT. A receive can be named by one message. The
 * flag cannot be combined with SYNC or DATA. A sidecar of an earlier release ignores it and
 * leaves the receive open. */
#define OUTRIGGER_REPLY 16u

/* Flags of a probe. */
#define OUTRIGGER_NOW 1u   /* completes with OUTRIGGER_NO_MESSAGE instead of waiting */
#define OUTRIGGER_CLAIM 2u /* removes the message from matching; the result has its handle */

/* outrigger_sendv and outrigger_recvv send and receive a message of several segments. The list
 * is copied; the memory must stay valid until the request has ended. If done is NULL, the caller
 * waits for *request. A send of which done and request are NULL needs no wait: its memory is
 * copied, as with OUTRIGGER_COPY. */
int outrigger_sendv(outrigger *s, const struct iovec *iov, int segments, const struct outrigger_envelope *to,
		    unsigned flags, outrigger_done done, void *arg, outrigger_request *request);
int outrigger_recvv(outrigger *s, const struct iovec *iov, int segments, const struct outrigger_envelope *from,
		    outrigger_done done, void *arg, outrigger_request *request);

/* outrigger_claim receives a message that a probe has claimed, and outrigger_drop discards it.
 * Each handle can be used for one of them, once. */
int outrigger_claim(outrigger *s, uint64_t handle, const struct iovec *iov, int segments,
		    outrigger_done done, void *arg, outrigger_request *request);
int outrigger_drop(outrigger *s, uint64_t handle);

/* outrigger_shut declares that this rank will receive no more messages of a context. Messages
 * that arrive later are discarded: sends that wait for their receiver complete with
 * OUTRIGGER_PEER_LEFT, and so do receives of replies (OUTRIGGER_REPLY). Messages that have
 * arrived stay until they are claimed or dropped. The caller cancels the receives of the context
 * before: they would receive no more messages. OUTRIGGER_UNSUPPORTED: the sidecar is of an
 * earlier release and keeps the messages. */
int outrigger_shut(outrigger *s, uint32_t context);

/* outrigger_probe finds a message without receiving it; the flags are OUTRIGGER_NOW and
 * OUTRIGGER_CLAIM. */
int outrigger_probe(outrigger *s, const struct outrigger_envelope *from, unsigned flags,
		    outrigger_done done, void *arg, outrigger_request *request);

/* outrigger_send and outrigger_recv are outrigger_sendv and outrigger_recvv with one segment and
 * no callback. */
int outrigger_send(outrigger *s, const void *data, size_t bytes, const struct outrigger_envelope *to, unsigned flags,
		   outrigger_request *request);
int outrigger_recv(outrigger *s, void *data, size_t bytes, const struct outrigger_envelope *from,
		   outrigger_request *request);

/* outrigger_room returns how many more requests can be open. A send without callback and request
 * counts until the next progress or test after its completion. */
uint32_t outrigger_room(const outrigger *s);

/* outrigger_full reports whether a call that starts an operation, drops a message or shuts a context
 * may have to wait, because the sidecar has not taken what was submitted before. Other threads get
 * their completions meanwhile. A program that must not wait in such a call polls instead. It only
 * loads memory. */
int outrigger_full(const outrigger *s);

/* outrigger_taken reports whether the sidecar has the whole message of a send: the message then reaches
 * its receiver although this process makes no further call. */
int outrigger_taken(outrigger *s, outrigger_request request);

/* outrigger_cancel requests the cancellation of a request that has not been matched yet. The
 * request then completes with OUTRIGGER_CANCELLED, or as usual if it was too late. */
int outrigger_cancel(outrigger *s, outrigger_request request);

/* outrigger_release makes the memory of an open request available to the caller at once: the
 * rest of a send is copied, and what a receive gets is discarded. The request stays open.
 * OUTRIGGER_UNSUPPORTED: the memory belongs to the arena, and the sidecar reads or writes it
 * until the request completes. */
int outrigger_release(outrigger *s, outrigger_request request);

/* outrigger_wait waits for a request and ends it. It returns the status of the result, which is
 * stored in *result unless that is NULL. outrigger_test does the same if the request has
 * completed, and sets *over; otherwise it returns at once. */
int outrigger_wait(outrigger *s, outrigger_request request, struct outrigger_result *result);
int outrigger_test(outrigger *s, outrigger_request request, int *over, struct outrigger_result *result);

/* outrigger_progress handles completions and moves staged messages. It sets *completions, which
 * may be NULL, to the number of completions since the last call. */
int outrigger_progress(outrigger *s, unsigned *completions);

/* outrigger_idle reports whether outrigger_progress would find nothing: no completion is
 * published, and no chunk can be submitted. It only loads memory. Completions that another thread
 * has handled are not seen by it. */
int outrigger_idle(const outrigger *s);

/* outrigger_yield gives the CPU away between two empty polls. A program that waits by calling
 * outrigger_test or outrigger_progress calls it instead of sched_yield, so that the time of the
 * yield does not count as computation and the sidecar learns that this process waits. If the
 * last yield took so long that another thread must be computing on the same CPU, it sleeps
 * instead, for at most 0.5 ms, and the next completion wakes it. outrigger_yield_sleeps reports
 * whether it would sleep now. */
void outrigger_yield(outrigger *s);
int outrigger_yield_sleeps(const outrigger *s);

/* outrigger_sleep sleeps until there is a completion, for at most so many microseconds. It may
 * return earlier. */
int outrigger_sleep(outrigger *s, unsigned microseconds);

/* outrigger_acts notes that the program does something besides repeating accesses to memory of other ranks
 * that have no effect (LAYOUT §8.1), for a caller that makes such accesses of messages. It
 * takes no lock. */
void outrigger_acts(outrigger *s);

/* Progress while the program computes. A message of private memory is transferred in chunks, and
 * a thread inside of the library copies each chunk. While the program computes, a thread that
 * the caller provides, the watcher, can do that:
 *
 *     while (outrigger_watch(s, 100000) == OUTRIGGER_OK)
 *             outrigger_attend(s);
 *
 * The program calls outrigger_away when it goes to compute. From then on, until its next test,
 * progress, wait or sleep, completions wake the watcher: all completions if all is set,
 * otherwise only while messages of private memory are in flight. If outrigger_away returns
 * nonzero, there are completions already; the caller handles them by outrigger_progress and
 * calls outrigger_away again, or leaves them to the watcher by outrigger_wake. Without a watcher
 * outrigger_away costs nothing. The watcher may call it for a program that it considers away.
 *
 * outrigger_watch sleeps for at most so many microseconds, and may return earlier. It returns
 * OUTRIGGER_NO_SIDECAR when the session has ended. Only one thread may call it.
 * outrigger_attend does the same as outrigger_progress if the program is away or outrigger_full
 * reports true, and otherwise nothing. outrigger_wake ends the sleep of every thread. */
int outrigger_away(outrigger *s, int all);
int outrigger_watch(outrigger *s, unsigned microseconds);
int outrigger_attend(outrigger *s);
void outrigger_wake(outrigger *s);

#ifdef __cplusplus
}
#endif
#endif
