#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmix.h"

static void *make(size_t bytes)
{
	void *p = calloc(1, bytes + 1);
	if (p == NULL)
		fail("no memory");
	return p;
}

void read_job(struct job *job, char **argv)
{
	memset(job, 0, sizeof *job);
	if (strlen(argv[1]) > PMIX_MAX_NSLEN)
		fail("the name %s is too long", argv[1]);
	strcpy(job->nspace, argv[1]);
	job->pod = (unsigned)strtoul(argv[2], NULL, 10);
	job->folder = argv[4];
	job->layout = make((strlen(argv[3]) + 1) * sizeof *job->layout);
	for (char *p = argv[3]; *p != 0;) {
		unsigned n = (unsigned)strtoul(p, &p, 10);
		if (n == 0 || (*p != 0 && *p != ','))
			fail("ranks by pod: %s", argv[3]);
		if (job->pods < job->pod)
			job->first += n;
		job->layout[job->pods++] = n;
		job->ranks += n;
		p += *p == ',';
	}
	if (job->pod >= job->pods)
		fail("pod %u of %u", job->pod, job->pods);
	job->local = job->layout[job->pod];
}

/* Operations of libpmix complete by a callback in libpmix's thread, or before they return. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct pending {
	bool over;
	pmix_status_t status;
};

static void on_over(pmix_status_t status, void *arg)
{
	struct pending *p = arg;
	pthread_mutex_lock(&mutex);
	p->status = status;
	p->over = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void finish(pmix_status_t status, struct pending *p, const char *what)
{
	if (status == PMIX_SUCCESS) {
		pthread_mutex_lock(&mutex);
		while (!p->over)
			pthread_cond_wait(&changed, &mutex);
		status = p->status;
		pthread_mutex_unlock(&mutex);
	}
	if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED)
		fail("%s: %s", what, pmix.error_string(status));
}

static void load(pmix_info_t *info, const char *key, const void *value, pmix_data_type_t type)
{
	pmix_status_t rc = pmix.info_load(info, key, value, type);
	if (rc != PMIX_SUCCESS)
		fail("%s: %s", key, pmix.error_string(rc));
}

#define NAME_BYTES 16

/* pod_name sets name to the host name of a pod: to libpmix, pods are the nodes of the job. */
static void pod_name(char name[NAME_BYTES], unsigned pod) { snprintf(name, NAME_BYTES, "pod%u", pod); }

/* lists makes the texts from which libpmix generates its maps: the names of the pods
 * and the ranks of each. */
static void lists(const struct job *job, char **names, char **ranks)
{
	size_t names_room = (size_t)job->pods * NAME_BYTES, ranks_room = (size_t)job->ranks * 12, n = 0, r = 0;
	unsigned rank = 0;
	*names = make(names_room);
	*ranks = make(ranks_room);
	for (unsigned pod = 0; pod < job->pods; pod++) {
		char name[NAME_BYTES];
		pod_name(name, pod);
		n += (size_t)snprintf(*names + n, names_room - n, "%s%s", pod > 0 ? "," : "", name);
		for (unsigned i = 0; i < job->layout[pod]; i++)
			r += (size_t)snprintf(*ranks + r, ranks_room - r, "%s%u", i > 0 ? "," : pod > 0 ? ";" : "", rank++);
	}
}

static char *local_peers(const struct job *job)
{
	size_t room = (size_t)job->local * 12, n = 0;
	char *text = make(room);
	for (unsigned i = 0; i < job->local; i++)
		n += (size_t)snprintf(text + n, room - n, "%s%u", i > 0 ? "," : "", job->first + i);
	return text;
}

enum { RANK_KEYS = 7 };

static void describe_rank(pmix_info_t *info, unsigned rank, unsigned pod, unsigned local)
{
	char name[NAME_BYTES];
	pmix_rank_t r = rank;
	uint16_t at = (uint16_t)local;
	uint32_t node = pod, app = 0;
	pmix_data_array_t *array;
	pod_name(name, pod);
	PMIX_DATA_ARRAY_CREATE(array, RANK_KEYS, PMIX_INFO);
	pmix_info_t *p = array->array;
	load(&p[0], PMIX_RANK, &r, PMIX_PROC_RANK);
	load(&p[1], PMIX_LOCAL_RANK, &at, PMIX_UINT16);
	load(&p[2], PMIX_NODE_RANK, &at, PMIX_UINT16);
	load(&p[3], PMIX_NODEID, &node, PMIX_UINT32);
	load(&p[4], PMIX_APPNUM, &app, PMIX_UINT32);
	load(&p[5], PMIX_HOSTNAME, name, PMIX_STRING);
	load(&p[6], PMIX_GLOBAL_RANK, &r, PMIX_PROC_RANK);
	PMIX_LOAD_KEY(info->key, PMIX_PROC_DATA);
	info->value.type = PMIX_DATA_ARRAY;
	info->value.data.darray = array;
}

enum { JOB_KEYS = 12 };

static void register_nspace(const struct job *job)
{
	char *names, *ranks, *nodes, *map, *peers = local_peers(job);
	uint32_t size = job->ranks, local = job->local, pods = job->pods, apps = 1;
	pmix_rank_t leader = job->first;
	pmix_info_t *info, *p;
	struct pending pending = {false, PMIX_SUCCESS};
	lists(job, &names, &ranks);
	if (pmix.generate_regex(names, &nodes) != PMIX_SUCCESS || pmix.generate_ppn(ranks, &map) != PMIX_SUCCESS)
		fail("the map of %u ranks in %u pods", job->ranks, job->pods);
	PMIX_INFO_CREATE(info, JOB_KEYS + job->ranks);
	p = info;
	load(p++, PMIX_UNIV_SIZE, &size, PMIX_UINT32);
	load(p++, PMIX_JOB_SIZE, &size, PMIX_UINT32);
	load(p++, PMIX_MAX_PROCS, &size, PMIX_UINT32);
	load(p++, PMIX_LOCAL_SIZE, &local, PMIX_UINT32);
	load(p++, PMIX_NUM_NODES, &pods, PMIX_UINT32);
	load(p++, PMIX_NODE_MAP, nodes, PMIX_STRING);
	load(p++, PMIX_PROC_MAP, map, PMIX_STRING);
	load(p++, PMIX_LOCAL_PEERS, peers, PMIX_STRING);
	load(p++, PMIX_LOCALLDR, &leader, PMIX_PROC_RANK);
	load(p++, PMIX_JOBID, job->nspace, PMIX_STRING);
	load(p++, PMIX_JOB_NUM_APPS, &apps, PMIX_UINT32);
	load(p++, PMIX_NSDIR, job->folder, PMIX_STRING);
	for (unsigned pod = 0, rank = 0; pod < job->pods; pod++)
		for (unsigned i = 0; i < job->layout[pod]; i++)
			describe_rank(p++, rank++, pod, i);
	finish(pmix.register_nspace(job->nspace, (int)job->local, info, (size_t)(p - info), on_over, &pending), &pending, "registering the job");
}

/* send_env sends the launcher the variables that libpmix adds to a rank's environment. */
static void send_env(const pmix_proc_t *proc)
{
	char **env = make(sizeof *env), *text;
	size_t bytes = 0, n = 0;
	pmix_status_t rc = pmix.setup_fork(proc, &env);
	if (rc != PMIX_SUCCESS)
		fail("the variables of rank %u: %s", proc->rank, pmix.error_string(rc));
	for (char **e = env; *e != NULL; e++)
		bytes += strlen(*e) + 1;
	text = make(bytes);
	for (char **e = env; *e != NULL; e++) {
		memcpy(text + n, *e, strlen(*e) + 1);
		n += strlen(*e) + 1;
	}
	uint32_t rank = proc->rank;
	send_frame(FRAME_ENV, &rank, sizeof rank, text, bytes);
}

void register_job(const struct job *job)
{
	struct pending support = {false, PMIX_SUCCESS};
	register_nspace(job);
	finish(pmix.setup_local_support(job->nspace, NULL, 0, on_over, &support), &support, "preparing this pod");
	for (unsigned i = 0; i < job->local; i++) {
		struct pending pending = {false, PMIX_SUCCESS};
		pmix_proc_t proc;
		memset(&proc, 0, sizeof proc);
		strcpy(proc.nspace, job->nspace);
		proc.rank = job->first + i;
		finish(pmix.register_client(&proc, geteuid(), getegid(), NULL, on_over, &pending), &pending, "registering a rank");
		send_env(&proc);
	}
	send_frame(FRAME_READY, NULL, 0, NULL, 0);
}
