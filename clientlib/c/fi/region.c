/* The table of registered memory, by key. */
#include "access.h"

#define BUCKETS 1024u

static struct node table[BUCKETS];
unsigned registrations;
bool exposed;

bool served(void) { return registrations > 0; }

/* bucket returns the list of registrations whose keys have the same hash. */
struct node *bucket(uint64_t key)
{
	struct node *n = &table[key * 0x9e3779b97f4a7c15ull >> 54];
	if (n->next == NULL)
		list_init(n);
	return n;
}

static struct registration *registration_of(struct node *n)
{
	return (struct registration *)((char *)n - offsetof(struct registration, node));
}

/* find_region returns the registration with a key, or NULL. */
struct registration *find_region(const struct domain *d, uint64_t key)
{
	struct node *head = bucket(key);
	for (struct node *n = head->next; n != head; n = n->next) {
		struct registration *r = registration_of(n);
		if (r->fid.key == key && r->domain == d)
			return r;
	}
	return NULL;
}

/* region_of returns the registration that a request names and the address in it, or NULL if the
 * key, the bounds or the rights of the request are not valid. */
struct registration *region_of(const struct domain *d, const struct request *q, uint64_t rights, unsigned char **memory)
{
	struct registration *r = find_region(d, q->key);
	if (r == NULL || (r->rights & rights) != rights || q->length > r->length || q->addr - r->start > r->length - q->length)
		return NULL;
	*memory = r->memory + (q->addr - r->start);
	return r;
}
