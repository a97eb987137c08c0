/* Registration of memory (fi_mr(3)); region.c has the table. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "access.h"

static bool has_mode(const struct domain *d, int mode)
{
	return (d->mr_mode & (mode | FI_MR_BASIC)) != 0;
}

/* draw_key sets key to a random number that is not in use, so that a key cannot be guessed. */
static int draw_key(const struct domain *d, uint64_t *key)
{
	do {
		if (syscall(SYS_getrandom, key, sizeof *key, 0) != (long)sizeof *key)
			return -FI_EOTHER;
	} while (*key == FI_KEY_NOTAVAIL || find_region(d, *key) != NULL);
	return 0;
}

/* close_region closes a registration; the memory is the application's when it returns. Accesses
 * that have not begun to transfer data are cancelled, as fi_mr(3) allows, and their origins get an
 * error. The other accesses lose the memory and are finished without it. Only if the memory
 * belongs to the arena and the sidecar itself accesses it, close_region waits until the data has
 * been transferred or the origin has failed. */
static int close_region(struct fid *fid)
{
	struct registration *r = (struct registration *)fid;
	lock();
	list_remove(&r->node);
	registrations--;
	if (r->busy > 0)
		stop_transfers(r);
	uint64_t begun = nanoseconds();
	for (unsigned polls = 0; r->busy > 0 && !sidecar_ended; polls++) {
		progress();
		if (r->busy == 0)
			break;
		back_off_waiting(begun, polls);
	}
	if (r->busy > 0)
		forget_region(r);
	r->domain->users--;
	unlock();
	free(r);
	return 0;
}

/* bind_region accepts an endpoint, as for providers whose registrations belong to an endpoint. Here
 * they belong to a domain. */
static int bind_region(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)flags;
	return other->fclass == FI_CLASS_EP ? 0 : -FI_ENOSYS;
}

static int control_region(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops region_ops = {
	.size = sizeof region_ops, .close = close_region, .bind = bind_region, .control = control_region, .ops_open = no_ops_open,
};

/* insert_region adds a registration to the table, with a random key or the requested one. */
static int insert_region(struct registration *r, uint64_t requested)
{
	uint64_t key = requested;
	if (registrations >= REGISTRATIONS_MAX)
		return -FI_ENOSPC;
	if (has_mode(r->domain, FI_MR_PROV_KEY)) {
		int rc = draw_key(r->domain, &key);
		if (rc != 0)
			return rc;
	} else if (find_region(r->domain, key) != NULL) {
		return -FI_ENOKEY;
	}
	r->fid.key = key;
	list_add(bucket(key), &r->node);
	registrations++;
	r->domain->users++;
	exposed = true;
	if ((r->rights & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
		start_attendant_for_accesses();
	return 0;
}

static int reg_attr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **out)
{
	(void)flags;
	struct domain *d = (struct domain *)fid;
	if (attr->iov_count != 1 || attr->iface != FI_HMEM_SYSTEM)
		return -FI_EINVAL;
	struct registration *r = calloc(1, sizeof *r);
	if (r == NULL)
		return -FI_ENOMEM;
	r->domain = d;
	r->memory = attr->mr_iov->iov_base;
	r->length = attr->mr_iov->iov_len;
	r->start = has_mode(d, FI_MR_VIRT_ADDR) ? (uintptr_t)r->memory : attr->offset;
	r->rights = attr->access;
	r->fid.fid.fclass = FI_CLASS_MR;
	r->fid.fid.context = attr->context;
	r->fid.fid.ops = &region_ops;
	lock();
	int rc = insert_region(r, attr->requested_key);
	unlock();
	if (rc != 0) {
		free(r);
		return rc;
	}
	*out = &r->fid;
	return 0;
}

static int regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **mr, void *context)
{
	struct fi_mr_attr attr = {.mr_iov = iov, .iov_count = count, .access = access, .offset = offset, .requested_key = key, .context = context};
	return reg_attr(fid, &attr, flags, mr);
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **mr, void *context)
{
	struct iovec v = {(void *)(uintptr_t)buf, len};
	return regv(fid, &v, 1, access, offset, key, flags, mr, context);
}

struct fi_ops_mr mr_ops = {.size = sizeof mr_ops, .reg = reg, .regv = regv, .regattr = reg_attr};
