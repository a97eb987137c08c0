/* Completion queues and counters: the program's reads and waits. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

static struct completion *first(const struct cq *cq) { return &cq->list[cq->head]; }

static void pop(struct cq *cq)
{
	cq->head = (cq->head + 1) & (cq->room - 1);
	cq->count--;
	unread--;
	activity++;
}

static size_t entry_bytes(enum fi_cq_format f)
{
	switch (f) {
	case FI_CQ_FORMAT_MSG: return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA: return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_TAGGED: return sizeof(struct fi_cq_tagged_entry);
	default: return sizeof(struct fi_cq_entry);
	}
}

/* write_entry writes a completion in a format; each format is a prefix of the longer ones. */
static void write_entry(const struct completion *c, enum fi_cq_format f, void *to)
{
	struct fi_cq_tagged_entry e = {c->context, c->flags, c->len, c->buf, c->data, c->tag};
	memcpy(to, &e, entry_bytes(f));
}

/* read_entries returns up to count completions to the program, or the error that fi_cq_read returns. */
static ssize_t read_entries(struct cq *cq, void *buf, size_t count, fi_addr_t *sources)
{
	size_t n = 0, bytes = entry_bytes(cq->format);
	if (count == 0 && cq->count > 0 && first(cq)->err == 0)
		return 0; /* the program calls it only for progress */
	while (n < count && cq->count > 0 && first(cq)->err == 0) {
		write_entry(first(cq), cq->format, (char *)buf + n * bytes);
		if (sources != NULL)
			sources[n] = FI_ADDR_NOTAVAIL; /* FI_SOURCE is not offered */
		pop(cq);
		n++;
	}
	if (n > 0)
		return (ssize_t)n;
	if (cq->lost)
		return -FI_EOVERRUN;
	return cq->count > 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

/* report_end reports once that the sidecar has ended. All open operations end with an error. Only a queue
 * without open operations gets an error without a context, because Open MPI 4 accesses the
 * request of each error. */
static void report_end(struct cq *cq)
{
	if (cq->end_reported)
		return;
	end_requests();
	if (cq->end_reported || cq->count > 0) {
		cq->end_reported = true;
		return;
	}
	cq_put(cq, &(struct completion){.err = FI_ECONNABORTED, .status = OUTRIGGER_NO_SIDECAR});
}

/* poll_queue polls a queue: it reads what is there, else makes progress and reads again, and waits for
 * messages that this process has sent to itself. passes: the program polls occasionally. */
static ssize_t poll_queue(struct cq *cq, void *buf, size_t count, fi_addr_t *sources, bool passes)
{
	if (passes) /* the client sees by this poll that the program has computed */
		progress();
	ssize_t n = read_entries(cq, buf, count, sources);
	if (n == -FI_EAGAIN || (n == 0 && count == 0)) {
		progress();
		if (sidecar_ended)
			report_end(cq);
		n = read_entries(cq, buf, count, sources);
	}
	if (n == -FI_EAGAIN && !is_attendant() && await_self(&cq->count))
		n = read_entries(cq, buf, count, sources);
	return n;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *sources)
{
	struct cq *cq = (struct cq *)fid;
	if (!relaxed(cq->lost) && poll_in_vain())
		return -FI_EAGAIN;
	lock();
	bool passes = polls_occasionally();
	ssize_t n = poll_queue(cq, buf, count, sources, passes);
	if (n == -FI_EAGAIN && yield_if_waiting()) /* the lock was released, and completions may have arrived */
		n = poll_queue(cq, buf, count, sources, false);
	if (n != -FI_EAGAIN)
		end_empty_polls();
	end_poll(passes, n > 0);
	return n;
}

/* was_signalled reports whether fi_cq_signal was called, and resets that. */
static bool was_signalled(struct cq *cq)
{
	bool was = cq->signalled;
	cq->signalled = false;
	return was;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count) { return cq_readfrom(fid, buf, count, NULL); }

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *out, uint64_t flags)
{
	struct cq *cq = (struct cq *)fid;
	(void)flags;
	lock();
	if (cq->count == 0 || first(cq)->err == 0) {
		unlock();
		return -FI_EAGAIN;
	}
	const struct completion *c = first(cq);
	/* Fields of a newer libfabric are not written: the caller's structure may be an older one. */
	out->op_context = c->context;
	out->flags = c->flags;
	out->len = c->len;
	out->buf = c->buf;
	out->data = c->data;
	out->tag = c->tag;
	out->olen = c->olen;
	out->err = c->err;
	out->prov_errno = c->status;
	out->err_data_size = 0;
	pop(cq);
	unlock();
	return 1;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *sources, const void *cond, int timeout)
{
	struct cq *cq = (struct cq *)fid;
	uint64_t begun = nanoseconds();
	(void)cond;
	ssize_t n;
	lock();
	for (unsigned polls = 0;; polls++) {
		n = poll_queue(cq, buf, count, sources, false);
		bool over = n == -FI_EAGAIN && was_signalled(cq);
		if (n == -FI_EAGAIN && !over && sidecar_ended)
			n = -FI_ECONNABORTED; /* the end was reported, and no completion will follow */
		uint64_t waited = nanoseconds() - begun;
		if (n != -FI_EAGAIN || over || (timeout >= 0 && waited >= (uint64_t)timeout * 1000000u))
			break;
		back_off_waiting(begun, polls);
	}
	unlock();
	return n;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

/* cq_signal makes a thread that waits return, or else the next one that waits. A waiting thread
 * polls at least every SLEEP_US. */
static int cq_signal(struct fid_cq *fid)
{
	lock();
	((struct cq *)fid)->signalled = true;
	unlock();
	return 0;
}

static const char *cq_text(struct fid_cq *fid, int status, const void *data, char *buf, size_t length)
{
	static __thread char text[512];
	char why[256] = "";
	(void)fid, (void)data;
	lock();
	if (client() != NULL)
		outrigger_failure(client(), why, sizeof why);
	unlock();
	snprintf(text, sizeof text, "%s%s%s", outrigger_status_text(status), *why == 0 ? "" : ": ", why);
	if (buf != NULL && length > 0)
		snprintf(buf, length, "%s", text);
	return text;
}

static int cq_close(struct fid *fid)
{
	struct cq *cq = (struct cq *)fid;
	unsigned left = (unsigned)cq->count;
	int rc = close_unused(fid, &cq->users, cq->domain, cq->list);
	lock();
	unread -= rc == 0 ? left : 0;
	unlock();
	return rc;
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof cq_fid_ops, .close = cq_close, .bind = no_bind, .control = no_control, .ops_open = no_ops_open,
};

static struct fi_ops_cq cq_ops = {
	.size = sizeof cq_ops, .read = cq_read, .readfrom = cq_readfrom, .readerr = cq_readerr, .sread = cq_sread, .sreadfrom = cq_sreadfrom,
	.signal = cq_signal, .strerror = cq_text,
};

static bool waitable(enum fi_wait_obj w) { return w == FI_WAIT_NONE || w == FI_WAIT_UNSPEC || w == FI_WAIT_YIELD; }

int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	if (attr != NULL && !waitable(attr->wait_obj))
		return -FI_ENOSYS;
	struct cq *cq = calloc(1, sizeof *cq);
	if (cq == NULL)
		return -FI_ENOMEM;
	cq->format = attr == NULL || attr->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_TAGGED : attr->format;
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_ops;
	cq->fid.ops = &cq_ops;
	cq->domain = (struct domain *)domain;
	retain_domain(cq->domain);
	*out = &cq->fid;
	return 0;
}

/* counter_read reads a counter. A program with accesses in flight waits by calling it in a loop,
 * often together with polls of a completion queue. */
static uint64_t counter_read(struct fid_cntr *fid)
{
	struct counter *c = (struct counter *)fid;
	uint64_t value = relaxed(c->value);
	if (value == relaxed(c->last_read) && poll_in_vain())
		return value;
	lock();
	bool passes = polls_occasionally();
	progress();
	if (c->value == c->last_read && yield_if_waiting())
		progress();
	bool found = c->value != c->last_read;
	if (found)
		end_empty_polls();
	uint64_t v = c->last_read = c->value;
	end_poll(passes, found);
	return v;
}

static uint64_t counter_readerr(struct fid_cntr *fid)
{
	struct counter *c = (struct counter *)fid;
	lock();
	progress();
	uint64_t v = c->errors;
	unlock();
	return v;
}

static int counter_change(struct fid_cntr *fid, bool errors, uint64_t base, uint64_t v)
{
	struct counter *c = (struct counter *)fid;
	lock();
	uint64_t *at = errors ? &c->errors : &c->value;
	*at = *at * base + v;
	unlock();
	return 0;
}

static int counter_add(struct fid_cntr *fid, uint64_t v) { return counter_change(fid, false, 1, v); }
static int counter_set(struct fid_cntr *fid, uint64_t v) { return counter_change(fid, false, 0, v); }
static int counter_adderr(struct fid_cntr *fid, uint64_t v) { return counter_change(fid, true, 1, v); }
static int counter_seterr(struct fid_cntr *fid, uint64_t v) { return counter_change(fid, true, 0, v); }

static int counter_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct counter *c = (struct counter *)fid;
	uint64_t begun = nanoseconds();
	lock();
	uint64_t errors = c->errors;
	int rc = -FI_EAGAIN;
	for (unsigned polls = 0; rc == -FI_EAGAIN; polls++) {
		progress();
		if (c->value >= threshold)
			rc = 0;
		else if (c->errors != errors)
			rc = -FI_EAVAIL;
		else if (sidecar_ended)
			rc = -FI_ECONNABORTED;
		else if (timeout >= 0 && nanoseconds() - begun >= (uint64_t)timeout * 1000000u)
			rc = -FI_ETIMEDOUT;
		if (rc != -FI_EAGAIN)
			break;
		back_off_waiting(begun, polls);
	}
	unlock();
	return rc;
}

static int counter_close(struct fid *fid)
{
	struct counter *c = (struct counter *)fid;
	return close_unused(fid, &c->users, c->domain, NULL);
}

static struct fi_ops counter_fid_ops = {
	.size = sizeof counter_fid_ops, .close = counter_close, .bind = no_bind, .control = no_control, .ops_open = no_ops_open,
};

static struct fi_ops_cntr counter_ops = {
	.size = sizeof counter_ops, .read = counter_read, .readerr = counter_readerr, .add = counter_add, .set = counter_set,
	.wait = counter_wait, .adderr = counter_adderr, .seterr = counter_seterr,
};

int counter_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	if (attr != NULL && !waitable(attr->wait_obj))
		return -FI_ENOSYS;
	struct counter *c = calloc(1, sizeof *c);
	if (c == NULL)
		return -FI_ENOMEM;
	c->fid.fid.fclass = FI_CLASS_CNTR;
	c->fid.fid.context = context;
	c->fid.fid.ops = &counter_fid_ops;
	c->fid.ops = &counter_ops;
	c->domain = (struct domain *)domain;
	retain_domain(c->domain);
	*out = &c->fid;
	return 0;
}
