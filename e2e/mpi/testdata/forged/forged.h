/* Definitions shared by victim.c and forger.c. */
#include <stdint.h>

enum { GOOD_BYTES = 64, GOOD_MARK = 7, GOODS = 3, REGION_BYTES = 4096, TAG_REGIONS = 11, TAG_OVER = 12, TAG_CLOSED = 13, LONG_BYTES = 1 << 23 };

#define ADDRESS_MAGIC 0x5254554fu

struct address {
	uint32_t magic, rank, endpoint, zero;
};

/* Keys and addresses of the registered memory: the region, the long one that is closed before the
 * data of accesses is sent, and the one that is closed during accesses. */
struct regions {
	uint64_t key, addr, long_key, long_addr, begun_key, begun_addr;
};

/* The contents of the memory that is closed during accesses, and the file that the victim creates
 * when it has closed it: the forger does nothing else meanwhile. */
enum { BEGUN_MARK = 0x33 };
#define CLOSED_FILE "closed"
