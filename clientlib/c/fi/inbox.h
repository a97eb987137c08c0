/* Small messages, received before it is known what becomes of them: inbox.c. */
#ifndef OUTRIGGER_INBOX_H
#define OUTRIGGER_INBOX_H

#include "access.h"

#define TAG_BULK (UINT64_C(1) << 63) /* of a message that goes with a letter */

/* A receive that is used again and again. */
struct letter {
	struct node node;
	struct endpoint *ep;
	struct inbox *inbox;
	bool come;
	bool applied; /* a request that was carried out, and is not answered yet */
	bool answered; /* the endpoint closes, and its origin was told */
	bool wanted; /* of one that was laid aside: there may be a buffer for it */
	struct outrigger_result message;
	union {
		struct request request;
		uint64_t length; /* of an untagged message that travels beside it */
		struct telling telling;
		unsigned char bytes[TELLING_BYTES + LETTER_MAX];
	};
};

/* inbox_first is the oldest letter that was not looked at yet; NULL: there is
 * none. It posts letters when there are none at all. */
struct letter *inbox_first(struct endpoint *ep, struct inbox *b);

/* inbox_next is done with the first letter. */
void inbox_next(struct letter *l);

/* inbox_copy is the first letter, for who is done with it by inbox_next and keeps it all
 * the same: of what it has room for it is as long as its message. NULL: there is no memory. */
struct letter *inbox_copy(const struct letter *l);

/* inbox_close forgets the letters that have come; those that wait are freed by
 * calling it again when they have been cancelled. */
void inbox_close(struct inbox *b);

#endif
