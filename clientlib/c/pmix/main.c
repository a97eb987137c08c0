#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmix.h"

static struct job job;

/* The fence of all ranks in progress: all ranks take part in each, so there is at most one. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	pmix_modex_cbfunc_t done;
	void *arg;
} fence;

static void on_freed(void *p) { free(p); }

static void end_fence(pmix_status_t status, char *data, size_t bytes)
{
	pthread_mutex_lock(&mutex);
	pmix_modex_cbfunc_t done = fence.done;
	void *arg = fence.arg;
	fence.done = NULL;
	pthread_mutex_unlock(&mutex);
	if (done != NULL)
		done(status, data, bytes, arg, on_freed, data);
	else
		free(data);
}

/* of_all_ranks reports whether all ranks take part in a fence. */
static bool of_all_ranks(const pmix_proc_t procs[], size_t n)
{
	return n == job.ranks || (n == 1 && procs[0].rank == PMIX_RANK_WILDCARD);
}

static pmix_status_t on_fence(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t infos, char *data, size_t bytes,
			      pmix_modex_cbfunc_t done, void *arg)
{
	(void)info, (void)infos;
	if (!of_all_ranks(procs, n))
		return fence_of_some(procs, n, data, bytes, done, arg);
	pthread_mutex_lock(&mutex);
	bool busy = fence.done != NULL;
	if (!busy) {
		fence.done = done;
		fence.arg = arg;
	}
	pthread_mutex_unlock(&mutex);
	if (busy)
		return PMIX_ERR_NOT_SUPPORTED;
	send_frame(FRAME_FENCE, data, bytes, NULL, 0);
	return PMIX_SUCCESS;
}

/* on_direct answers a request for data of one rank of another pod. Fences transfer all data,
 * so that data not found after them does not exist. */
static pmix_status_t on_direct(const pmix_proc_t *proc, const pmix_info_t info[], size_t infos, pmix_modex_cbfunc_t done, void *arg)
{
	(void)proc, (void)info, (void)infos, (void)done, (void)arg;
	return PMIX_ERR_NOT_FOUND;
}

/* acknowledge lets the rank that sent a notification continue. */
static pmix_status_t acknowledge(pmix_op_cbfunc_t done, void *arg)
{
	if (done != NULL)
		done(PMIX_SUCCESS, arg);
	return PMIX_SUCCESS;
}

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t infos, pmix_op_cbfunc_t done, void *arg)
{
	(void)object, (void)info, (void)infos;
	uint32_t rank = proc->rank;
	send_frame(FRAME_CONNECTED, &rank, sizeof rank, NULL, 0);
	return acknowledge(done, arg);
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *arg)
{
	(void)proc, (void)object;
	return acknowledge(done, arg);
}

/* A frame that waits for the launcher's answer. A rank that aborts or prints continues when the
 * launcher has answered, because the sidecar must know of an abort before the rank ends: some
 * ranks report their failure in no other way. on_log must not call done itself: libpmix calls
 * on_log with a lock held that done takes, too. */
struct unanswered {
	struct unanswered *next;
	int kind; /* kind of the frame that was sent */
	uint32_t rank;
	pmix_status_t status; /* passed to done */
	pmix_op_cbfunc_t done; /* NULL: no rank waits for this answer */
	void *arg;
};

static struct unanswered *unanswered; /* oldest first */

static bool await_answer(struct unanswered wanted)
{
	struct unanswered *t = malloc(sizeof *t), **last = &unanswered;
	if (t == NULL)
		return false;
	*t = wanted;
	pthread_mutex_lock(&mutex);
	while (*last != NULL)
		last = &(*last)->next;
	*last = t;
	pthread_mutex_unlock(&mutex);
	return true;
}

static void on_answer(int kind, const char *body, size_t bytes)
{
	uint32_t rank = UINT32_MAX;
	if (bytes >= sizeof rank)
		memcpy(&rank, body, sizeof rank);
	pthread_mutex_lock(&mutex);
	struct unanswered **p = &unanswered, *t;
	while (*p != NULL && ((*p)->kind != kind || (*p)->rank != rank))
		p = &(*p)->next;
	t = *p;
	if (t != NULL)
		*p = t->next;
	pthread_mutex_unlock(&mutex);
	if (t != NULL && t->done != NULL)
		t->done(t->status, t->arg);
	free(t);
}

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char message[], pmix_proc_t procs[], size_t n, pmix_op_cbfunc_t done, void *arg)
{
	(void)object, (void)procs, (void)n;
	uint32_t head[] = {proc->rank, (uint32_t)status};
	if (!await_answer((struct unanswered){.kind = FRAME_ABORT, .rank = proc->rank, .status = PMIX_SUCCESS, .done = done, .arg = arg}))
		return PMIX_ERR_NOMEM;
	send_frame(FRAME_ABORT, head, sizeof head, message, message == NULL ? 0 : strlen(message));
	return PMIX_SUCCESS;
}

/* stream_of returns the descriptor on which a rank wants a text printed, 1 or 2; 0: none. */
static uint32_t stream_of(const pmix_info_t *info)
{
	if (info->value.type != PMIX_STRING || info->value.data.string == NULL)
		return 0;
	if (PMIX_CHECK_KEY(info, PMIX_LOG_STDOUT))
		return 1;
	return PMIX_CHECK_KEY(info, PMIX_LOG_STDERR) ? 2 : 0;
}

/* send_text has the launcher print a text. Its answer means that the text was printed. */
static void send_text(uint32_t rank, uint32_t stream, const char *text, struct unanswered wanted)
{
	uint32_t head[] = {rank, stream};
	size_t bytes = strnlen(text, TEXT_MAX);
	if (!await_answer(wanted))
		fail("no memory");
	send_frame(FRAME_TEXT, head, sizeof head, text, bytes);
}

/* on_log prints the texts of a call of PMIx_Log, by which Open MPI 5 prints its errors once PMIx
 * is initialized. The call completes with the answer to an empty text that is sent last. Texts
 * for other channels, such as syslog, are not supported. */
static void on_log(const pmix_proc_t *proc, const pmix_info_t data[], size_t n, const pmix_info_t directives[], size_t m, pmix_op_cbfunc_t done, void *arg)
{
	(void)directives, (void)m;
	struct unanswered each = {.kind = FRAME_TEXT, .rank = proc->rank, .status = PMIX_SUCCESS}, last = each;
	last.done = done;
	last.arg = arg;
	for (size_t i = 0; i < n; i++) {
		uint32_t stream = stream_of(&data[i]);
		if (stream == 0) {
			last.status = PMIX_ERR_NOT_SUPPORTED;
			continue;
		}
		send_text(proc->rank, stream, data[i].value.data.string, each);
		if (strlen(data[i].value.data.string) > TEXT_MAX)
			send_text(proc->rank, 2, "outrigger: the text is longer than 1 MiB, and was cut", each);
	}
	send_text(proc->rank, 2, "", last);
}

static void start(void)
{
	/* A newer library's structure has more members: zero means that they are not offered. */
	pmix_server_module_t *m = calloc(1, sizeof *m + 1024);
	pmix_info_t *info;
	bool no = false;
	if (m == NULL)
		fail("no memory");
	m->client_connected2 = on_connected;
	m->client_finalized = on_finalized;
	m->fence_nb = on_fence;
	m->direct_modex = on_direct;
	m->group = on_group;
	m->abort = on_abort;
	m->log = on_log;
	PMIX_INFO_CREATE(info, 3);
	if (pmix.info_load(&info[0], PMIX_SERVER_TMPDIR, job.folder, PMIX_STRING) != PMIX_SUCCESS ||
	    pmix.info_load(&info[1], PMIX_SYSTEM_TMPDIR, job.folder, PMIX_STRING) != PMIX_SUCCESS ||
	    pmix.info_load(&info[2], PMIX_SERVER_TOOL_SUPPORT, &no, PMIX_BOOL) != PMIX_SUCCESS)
		fail("no memory");
	pmix_status_t rc = pmix.server_init(m, info, 3);
	if (rc != PMIX_SUCCESS)
		fail("PMIx_server_init: %s", pmix.error_string(rc));
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)st, (void)kind, (void)where;
	return remove(path);
}

/* leave ends the server after its launcher has ended, which may not have removed the folder. */
static void leave(void)
{
	(void)nftw(job.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* the launcher may have removed it */
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		static const char usage[] = "usage: outrigger-pmix NAMESPACE POD RANKS-BY-POD FOLDER; outrigger-launch starts it\n";
		(void)!write(2, usage, sizeof usage - 1);
		return 2;
	}
	/* Signals to the process group must not end the server before the ranks: it ends with its
	 * launcher. */
	static const int ignored[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	const char *why = load_library();
	if (why != NULL)
		fail("%s", why);
	read_job(&job, argv);
	begin_meetings(&job);
	start();
	register_job(&job);
	for (;;) {
		int kind;
		size_t bytes;
		char *body = receive_frame(&kind, &bytes);
		if (body == NULL)
			leave();
		if (kind == FRAME_GATHERED) {
			end_fence(PMIX_SUCCESS, body, bytes);
		} else if (kind == FRAME_MET || kind == FRAME_UNMET) {
			end_meeting(kind == FRAME_MET, body, bytes);
		} else if (kind == FRAME_ABORTED || kind == FRAME_PRINTED) {
			on_answer(kind == FRAME_ABORTED ? FRAME_ABORT : FRAME_TEXT, body, bytes);
			free(body);
		} else {
			free(body);
			end_fence(PMIX_ERR_LOST_CONNECTION, NULL, 0);
		}
	}
}
