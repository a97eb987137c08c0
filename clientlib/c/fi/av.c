/* Address vectors: lists of the names of endpoints. An address is the index of a name. A name that
 * is inserted twice keeps its address: if it had a second one, receives that name the source by
 * the first one would no longer match. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpich.h"
#include "openmpi.h"
#include "provider.h"

#define BUCKETS_MIN 64

static size_t hash(const struct av *av, const struct peer *p)
{
	uint64_t h = ((uint64_t)p->endpoint << 32 | p->rank) * 0x9e3779b97f4a7c15ull;
	return (size_t)(h >> 32) & (av->buckets - 1);
}

/* find_bucket returns the bucket of a peer, or the free bucket where it belongs. */
static uint32_t *find_bucket(const struct av *av, const struct peer *p)
{
	for (size_t i = hash(av, p);; i = (i + 1) & (av->buckets - 1)) {
		uint32_t at = av->index[i];
		if (at == 0 || (av->list[at - 1].rank == p->rank && av->list[at - 1].endpoint == p->endpoint))
			return &av->index[i];
	}
}

/* grow makes room for one more peer, and hashes all peers again if it enlarges the table. */
static bool grow(struct av *av)
{
	if (av->count < av->room)
		return true;
	size_t room = av->room == 0 ? BUCKETS_MIN / 2 : 2 * av->room;
	struct peer *list = realloc(av->list, room * sizeof *list);
	if (list == NULL)
		return false;
	av->list = list;
	uint32_t *index = calloc(2 * room, sizeof *index);
	if (index == NULL)
		return false;
	free(av->index);
	av->index = index;
	av->buckets = 2 * room;
	av->room = room;
	for (size_t i = 0; i < av->count; i++)
		*find_bucket(av, &list[i]) = (uint32_t)i + 1;
	return true;
}

static bool insert_one(struct av *av, const struct name *n, fi_addr_t *address)
{
	struct peer p = {.rank = n->rank, .endpoint = n->endpoint};
	if (n->magic != NAME_MAGIC || !grow(av))
		return false;
	uint32_t *bucket = find_bucket(av, &p);
	if (*bucket == 0) {
		av->list[av->count++] = p;
		*bucket = (uint32_t)av->count;
	}
	av->list[*bucket - 1].inserted++;
	*address = *bucket - 1;
	return true;
}

static int av_insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *out, uint64_t flags, void *context)
{
	struct av *av = (struct av *)fid;
	int done = 0;
	int *statuses = (flags & FI_SYNC_ERR) != 0 ? context : NULL; /* fi_av(3) */
	if (!openmpi_correct())
		return -FI_ENOSYS;
	uint32_t tags = openmpi_tags() != 0 ? openmpi_tags() : mpich_tags();
	lock();
	if (client() != NULL)
		outrigger_tags(client(), tags);
	for (size_t i = 0; i < count; i++) {
		struct name n;
		fi_addr_t address = FI_ADDR_NOTAVAIL;
		memcpy(&n, (const char *)addresses + i * sizeof n, sizeof n);
		bool good = insert_one(av, &n, &address);
		done += good;
		if (statuses != NULL)
			statuses[i] = good ? 0 : -FI_EINVAL;
		if (out != NULL)
			out[i] = address;
	}
	unlock();
	return done;
}

static int no_insert_service(struct fid_av *av, const char *node, const char *service, fi_addr_t *out, uint64_t flags, void *context)
{
	(void)av, (void)node, (void)service, (void)out, (void)flags, (void)context;
	return -FI_ENOSYS;
}

static int no_insert_symmetric(struct fid_av *av, const char *node, size_t nodes, const char *service, size_t services, fi_addr_t *out, uint64_t flags, void *context)
{
	(void)av, (void)node, (void)nodes, (void)service, (void)services, (void)out, (void)flags, (void)context;
	return -FI_ENOSYS;
}

/* av_remove undoes one insertion of each address; a peer that was inserted twice is removed by the
 * second call. The index stays reserved for the peer and is valid again when the peer is inserted
 * again. */
static int av_remove(struct fid_av *fid, fi_addr_t *addresses, size_t count, uint64_t flags)
{
	struct av *av = (struct av *)fid;
	int rc = flags == 0 ? 0 : -FI_EINVAL;
	lock();
	for (size_t i = 0; rc == 0 && i < count; i++) {
		struct peer p;
		if (av_find(av, addresses[i], &p))
			av->list[addresses[i]].inserted--;
		else
			rc = -FI_EINVAL;
	}
	unlock();
	return rc;
}

bool av_find(const struct av *av, fi_addr_t address, struct peer *p)
{
	if (av == NULL || address >= av->count || av->list[address].inserted == 0)
		return false;
	*p = av->list[address];
	return true;
}

static int av_lookup(struct fid_av *fid, fi_addr_t address, void *out, size_t *length)
{
	struct name n = {.magic = NAME_MAGIC};
	struct peer p;
	lock();
	bool found = av_find((struct av *)fid, address, &p);
	unlock();
	if (!found)
		return -FI_EINVAL;
	n.rank = p.rank;
	n.endpoint = p.endpoint;
	memcpy(out, &n, *length < sizeof n ? *length : sizeof n);
	*length = sizeof n;
	return 0;
}

static const char *av_text(struct fid_av *av, const void *address, char *buf, size_t *length)
{
	struct name n;
	(void)av;
	memcpy(&n, address, sizeof n);
	int wanted = snprintf(buf, *length, "outrigger://rank/%u/endpoint/%u", n.rank, n.endpoint);
	*length = (size_t)wanted + 1;
	return buf;
}

static int av_close(struct fid *fid)
{
	struct av *av = (struct av *)fid;
	uint32_t *index = av->index;
	int rc = close_unused(fid, &av->users, av->domain, av->list);
	if (rc == 0)
		free(index);
	return rc;
}

static int av_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return 0; /* an event queue reports asynchronous insertions; all insertions here are synchronous */
}

static struct fi_ops av_fid_ops = {
	.size = sizeof av_fid_ops, .close = av_close, .bind = av_bind, .control = no_control, .ops_open = no_ops_open,
};

static struct fi_ops_av av_ops = {
	.size = sizeof av_ops, .insert = av_insert, .insertsvc = no_insert_service, .insertsym = no_insert_symmetric, .remove = av_remove,
	.lookup = av_lookup, .straddr = av_text,
};

int av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
	if (attr != NULL && (attr->name != NULL || (attr->flags & FI_EVENT) != 0))
		return -FI_ENOSYS; /* neither vectors shared between processes nor asynchronous insertions */
	struct av *av = calloc(1, sizeof *av);
	if (av == NULL)
		return -FI_ENOMEM;
	if (attr != NULL && attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	av->domain = (struct domain *)domain;
	retain_domain(av->domain);
	*out = &av->fid;
	return 0;
}

int source_of(const struct endpoint *ep, fi_addr_t address, uint32_t *rank)
{
	struct peer p;
	*rank = OUTRIGGER_ANY;
	if (address == FI_ADDR_UNSPEC || !ep->directed)
		return 0;
	if (!av_find(ep->av, address, &p))
		return -FI_EINVAL;
	*rank = p.rank;
	return 0;
}
