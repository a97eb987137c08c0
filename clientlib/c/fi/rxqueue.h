/* The receive queue of eager messages: rxqueue.c. */
#ifndef OUTRIGGER_RXQUEUE_H
#define OUTRIGGER_RXQUEUE_H

#include "access.h"

#define TAG_BULK (UINT64_C(1) << 63) /* set in the tag of a message that an eager message announces */

/* A buffer for one eager message. It is posted again after each message. */
struct eager {
	struct node node;
	struct endpoint *ep;
	struct rx_queue *queue;
	bool arrived; /* a message has arrived in the buffer */
	bool applied; /* the request was executed and is not answered yet */
	bool answered; /* the endpoint closes, and the request was answered */
	bool retry; /* for a deferred message: there may be a buffer for it */
	struct outrigger_result message;
	union {
		struct request request;
		uint64_t length; /* length of the bulk message that this message announces */
		struct write_header write;
		unsigned char bytes[WRITE_HEADER_BYTES + EAGER_MAX];
	};
};

/* rx_first returns the oldest message that was not removed yet, or NULL. If the queue has no
 * buffers it posts them. */
struct eager *rx_first(struct endpoint *ep, struct rx_queue *b);

/* rx_waits reports whether the queue has buffers, and no message has arrived in the first one. */
bool rx_waits(const struct rx_queue *b);

/* rx_repost removes the first message and posts its buffer again. */
void rx_repost(struct eager *m);

/* rx_copy returns a copy of a message that is to be kept after rx_repost. Its memory is only as
 * long as the message. NULL: there is no memory. */
struct eager *rx_copy(const struct eager *m);

/* rx_close frees the messages that have arrived. Posted buffers are freed by another call after
 * their receives have been cancelled. */
void rx_close(struct rx_queue *b);

#endif
