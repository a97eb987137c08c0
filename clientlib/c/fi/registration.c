/* Registered memory, found by its key. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "access.h"

static bool has(const struct domain *d, int mode)
{
	return (d->mr_mode & (mode | FI_MR_BASIC)) != 0;
}

/* draw finds a key that nobody can guess and that is not in use. */
static int draw(const struct domain *d, uint64_t *key)
{
	do {
		if (syscall(SYS_getrandom, key, sizeof *key, 0) != (long)sizeof *key)
			return -FI_EOTHER;
	} while (*key == FI_KEY_NOTAVAIL || find_region(d, *key) != NULL);
	return 0;
}

/* close_region stops the accesses that have not begun to move data, as fi_mr(3) allows:
 * their origins are told. Of the others it takes the memory away, which is the
 * application's again when it returns. Only where that is of the arena, and the sidecar
 * itself is at it, it waits: until the data has moved, or the origin has failed. */
static int close_region(struct fid *fid)
{
	struct registration *r = (struct registration *)fid;
	lock();
	list_remove(&r->node);
	registrations--;
	if (r->busy > 0)
		stop_transfers(r);
	uint64_t begun = nanoseconds();
	for (unsigned looks = 0; r->busy > 0 && !sidecar_ended; looks++) {
		progress();
		if (r->busy == 0)
			break;
		(void)doze(begun, looks, true);
	}
	if (r->busy > 0)
		forget_region(r);
	r->domain->users--;
	unlock();
	free(r);
	return 0;
}

/* An endpoint may be bound where registrations belong to one; here they belong to
 * their domain. */
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

static int enter(struct registration *r, uint64_t requested)
{
	uint64_t key = requested;
	if (registrations >= REGISTRATIONS_MAX)
		return -FI_ENOSPC;
	if (has(r->domain, FI_MR_PROV_KEY)) {
		int rc = draw(r->domain, &key);
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
	r->start = has(d, FI_MR_VIRT_ADDR) ? (uintptr_t)r->memory : attr->offset;
	r->rights = attr->access;
	r->fid.fid.fclass = FI_CLASS_MR;
	r->fid.fid.context = attr->context;
	r->fid.fid.ops = &region_ops;
	lock();
	int rc = enter(r, attr->requested_key);
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
