/* Common functions of libfabric's objects: operations that they do not support, and closing. */
#include <stdlib.h>

#include "provider.h"

int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_ENOSYS;
}

int no_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

/* retain_domain counts an object of a domain. A domain with open objects cannot be closed. */
void retain_domain(struct domain *d)
{
	lock();
	d->users++;
	unlock();
}

/* close_unused frees an object, and more, unless an endpoint uses it (FI_EBUSY). */
int close_unused(struct fid *fid, const unsigned *users, struct domain *of, void *more)
{
	lock();
	bool used = *users > 0;
	of->users -= !used;
	unlock();
	if (used)
		return -FI_EBUSY;
	free(more);
	free(fid);
	return 0;
}

/* bytes_of returns the total length of segments. */
size_t bytes_of(const struct iovec *iov, size_t segments)
{
	size_t n = 0;
	for (size_t i = 0; i < segments; i++)
		n += iov[i].iov_len;
	return n;
}
