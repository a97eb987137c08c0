/* What victim and forger agree on. */
#include <stdint.h>

enum { GOOD_BYTES = 64, GOOD_MARK = 7, GOODS = 3, REGION_BYTES = 4096, TAG_TOLD = 11, TAG_OVER = 12 };

#define ADDRESS_MAGIC 0x5254554fu

struct address {
	uint32_t magic, rank, endpoint, zero;
};

/* The key and the address of the registered memory. */
struct told {
	uint64_t key, addr;
};
