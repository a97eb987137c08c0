/*
 * Collective operations of some of the ranks: PMIx groups, by which
 * MPI_Comm_create_from_group and MPI_Intercomm_create_from_groups agree on a number, and
 * fences of a subset of the ranks. libpmix calls when all participants of this pod have
 * entered. The sidecars find the other pods' participants (package pmi, Meetings) by a name
 * that consists of the kind of operation, the group's name and its ranks, because disjoint
 * groups may have the same name at the same time.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pmix.h"

static const struct job *job;

/* An operation that has not completed. */
struct meeting {
	struct meeting *next;
	uint32_t id;
	pmix_modex_cbfunc_t fenced; /* callback of a fence; NULL: a group, whose callback is done */
	pmix_info_cbfunc_t done;
	void *arg;
	pmix_proc_t *members; /* members of a group that is being constructed; NULL otherwise */
	size_t n;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct meeting *meetings;
static uint32_t last_id;

void begin_meetings(const struct job *j) { job = j; }

/* A buffer that grows. */
struct text {
	char *at;
	size_t bytes;
	bool failed;
};

static void put(struct text *t, const void *data, size_t bytes)
{
	char *grown = t->failed ? NULL : realloc(t->at, t->bytes + bytes + 1);
	t->failed = t->failed || grown == NULL;
	if (t->failed)
		return;
	t->at = grown;
	memcpy(t->at + t->bytes, data, bytes);
	t->bytes += bytes;
}

static void put_number(struct text *t, size_t n)
{
	uint32_t x = (uint32_t)n;
	put(t, &x, sizeof x);
}

/* find_pods marks the pods of procs. It returns false if one is of another job, or if none is
 * of this pod. */
static bool find_pods(const pmix_proc_t procs[], size_t n, bool pods[])
{
	for (size_t i = 0; i < n; i++) {
		pmix_rank_t rank = procs[i].rank;
		if (strcmp(procs[i].nspace, job->nspace) != 0)
			return false;
		if (rank == PMIX_RANK_WILDCARD) {
			for (unsigned p = 0; p < job->pods; p++)
				pods[p] = true;
			continue;
		}
		if (rank == PMIX_RANK_LOCAL_PEERS || rank == PMIX_RANK_LOCAL_NODE) {
			pods[job->pod] = true;
			continue;
		}
		unsigned p = 0;
		while (p < job->pods && rank >= job->layout[p])
			rank -= job->layout[p++];
		if (p == job->pods)
			return false;
		pods[p] = true;
	}
	return pods[job->pod];
}

/* encode makes the body of an 'M' frame without the number at its start. */
static bool encode(struct text *t, char kind, const char *group, const pmix_proc_t procs[], size_t n, const char *data, size_t bytes)
{
	bool *pods = calloc(job->pods, sizeof *pods);
	if (pods == NULL || !find_pods(procs, n, pods)) {
		free(pods);
		return false;
	}
	size_t taking_part = 0, group_bytes = strlen(group) + 1;
	for (unsigned p = 0; p < job->pods; p++)
		taking_part += pods[p];
	put_number(t, taking_part);
	put_number(t, 1 + group_bytes + n * sizeof(uint32_t));
	put_number(t, bytes);
	for (unsigned p = 0; p < job->pods; p++)
		if (pods[p])
			put_number(t, p);
	put(t, &kind, 1);
	put(t, group, group_bytes);
	for (size_t i = 0; i < n; i++)
		put_number(t, procs[i].rank);
	if (bytes > 0)
		put(t, data, bytes);
	free(pods);
	return !t->failed;
}

/* meet starts a meeting. It owns m.members, also if it fails. */
static pmix_status_t meet(struct meeting m, char kind, const char *group, const pmix_proc_t procs[], size_t n, const char *data, size_t bytes)
{
	struct text t = {0};
	struct meeting *kept = malloc(sizeof *kept);
	if (kept == NULL || !encode(&t, kind, group, procs, n, data, bytes)) {
		free(kept);
		free(m.members);
		free(t.at);
		return PMIX_ERR_NOT_SUPPORTED;
	}
	pthread_mutex_lock(&mutex);
	m.id = ++last_id & 0x7fffffff;
	m.next = meetings;
	*kept = m;
	meetings = kept;
	pthread_mutex_unlock(&mutex);
	send_frame(FRAME_MEET, &m.id, sizeof m.id, t.at, t.bytes);
	free(t.at);
	return PMIX_SUCCESS;
}

pmix_status_t fence_of_some(const pmix_proc_t procs[], size_t n, const char *data, size_t bytes, pmix_modex_cbfunc_t done, void *arg)
{
	return meet((struct meeting){.fenced = done, .arg = arg}, 'f', "", procs, n, data, bytes);
}

pmix_status_t on_group(pmix_group_operation_t op, char group[], const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t infos,
		       pmix_info_cbfunc_t done, void *arg)
{
	const pmix_byte_object_t *data = NULL;
	struct meeting m = {.done = done, .arg = arg};
	for (size_t i = 0; i < infos; i++) {
		bool said = info[i].value.type != PMIX_BOOL || info[i].value.data.flag;
		if (PMIX_CHECK_KEY(&info[i], PMIX_GROUP_LOCAL_ONLY) && said)
			return PMIX_OPERATION_SUCCEEDED;
		if (PMIX_CHECK_KEY(&info[i], PMIX_GROUP_ENDPT_DATA) && info[i].value.type == PMIX_BYTE_OBJECT)
			data = &info[i].value.data.bo;
	}
	if (op == PMIX_GROUP_CONSTRUCT) {
		m.members = calloc(n, sizeof *m.members);
		if (m.members == NULL)
			return PMIX_ERR_NOMEM;
		memcpy(m.members, procs, n * sizeof *m.members);
		m.n = n;
	}
	return meet(m, op == PMIX_GROUP_CONSTRUCT ? 'c' : 'd', group, procs, n, data == NULL ? NULL : data->bytes, data == NULL ? 0 : data->size);
}

/* remove_meeting removes the meeting with a number from the list; NULL: there is none. */
static struct meeting *remove_meeting(uint32_t id)
{
	pthread_mutex_lock(&mutex);
	struct meeting **p = &meetings, *m;
	while (*p != NULL && (*p)->id != id)
		p = &(*p)->next;
	m = *p;
	if (m != NULL)
		*p = m->next;
	pthread_mutex_unlock(&mutex);
	return m;
}

/* The results of a group operation for its members. */
struct learned {
	pmix_info_t info[3];
	size_t n;
};

static void on_learned(void *arg)
{
	struct learned *l = arg;
	for (size_t i = 0; i < l->n; i++)
		pmix.value_destruct(&l->info[i].value);
	free(l);
}

static bool learn(struct learned *l, const char *key, const void *value, pmix_data_type_t type)
{
	return pmix.info_load(&l->info[l->n], key, value, type) == PMIX_SUCCESS && ++l->n > 0;
}

/* end_group completes the construction or destruction of a group. */
static void end_group(const struct meeting *m, uint64_t number, char *data, size_t bytes)
{
	struct learned *l = calloc(1, sizeof *l);
	size_t context = (size_t)number;
	pmix_data_array_t members = {.type = PMIX_PROC, .size = m->n, .array = m->members};
	pmix_byte_object_t put = {.bytes = data, .size = bytes};
	bool whole = l != NULL && (m->members == NULL || (learn(l, PMIX_GROUP_CONTEXT_ID, &context, PMIX_SIZE) &&
	                                                  learn(l, PMIX_GROUP_MEMBERSHIP, &members, PMIX_DATA_ARRAY) &&
	                                                  (bytes == 0 || learn(l, PMIX_GROUP_ENDPT_DATA, &put, PMIX_BYTE_OBJECT))));
	if (whole) {
		m->done(PMIX_SUCCESS, l->info, l->n, m->arg, on_learned, l);
		return;
	}
	m->done(PMIX_ERR_NOMEM, NULL, 0, m->arg, NULL, NULL);
	if (l != NULL)
		on_learned(l);
}

static void end_fence(const struct meeting *m, char *data, size_t bytes)
{
	char *copy = malloc(bytes + 1);
	if (copy != NULL)
		memcpy(copy, data, bytes);
	m->fenced(copy == NULL ? PMIX_ERR_NOMEM : PMIX_SUCCESS, copy, copy == NULL ? 0 : bytes, m->arg, free, copy);
}

void end_meeting(bool met, char *body, size_t bytes)
{
	uint32_t id;
	uint64_t number = 0;
	size_t head = sizeof id + (met ? sizeof number : 0);
	struct meeting *m = NULL;
	if (bytes >= head) {
		memcpy(&id, body, sizeof id);
		if (met)
			memcpy(&number, body + sizeof id, sizeof number);
		m = remove_meeting(id);
	}
	if (m != NULL && met && m->fenced != NULL)
		end_fence(m, body + head, bytes - head);
	else if (m != NULL && met)
		end_group(m, number, body + head, bytes - head);
	else if (m != NULL && m->fenced != NULL)
		m->fenced(PMIX_ERR_LOST_CONNECTION, NULL, 0, m->arg, NULL, NULL);
	else if (m != NULL)
		m->done(PMIX_ERR_LOST_CONNECTION, NULL, 0, m->arg, NULL, NULL);
	if (m != NULL)
		free(m->members);
	free(m);
	free(body);
}
