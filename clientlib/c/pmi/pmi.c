/*
 * libpmi.so: the PMI-1 functions that Open MPI 4.1's flux component loads, over
 * the connection that the launcher passes in PMI_FD. The library stores only the
 * descriptor, the rank, the size and the name of the key-value space.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PMI_SUCCESS 0
#define PMI_FAIL (-1)
#define PMI_ERR_INVALID_ARG 3

#define LINE 4096
#define NAME_MAX_ 256
#define KEY_MAX_ 64
#define VALUE_MAX_ 1024
#define MAPPING "PMI_process_mapping"

#define EXPORT __attribute__((visibility("default")))

static int fd = -1, rank, size = 1;
static bool begun;
static char space[NAME_MAX_];

static int number(const char *name, int otherwise)
{
	const char *text = getenv(name);
	return text == NULL ? otherwise : atoi(text);
}

static bool write_all(const char *b, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, b, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		b += done;
		n -= (size_t)done;
	}
	return true;
}

/* read_line reads one answer without its newline. */
static bool read_line(char *b, size_t room)
{
	for (size_t n = 0; n + 1 < room;) {
		ssize_t got = read(fd, b + n, 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got != 1)
			return false;
		if (b[n] == '\n') {
			b[n] = 0;
			return true;
		}
		n++;
	}
	return false;
}

/* ask sends a request and reads its answer; PMI_FAIL if its rc is not 0. */
static int ask(const char *request, char *answer)
{
	if (fd < 0 || !write_all(request, strlen(request)) || !read_line(answer, LINE))
		return PMI_FAIL;
	const char *rc = strstr(answer, " rc=");
	return rc == NULL || atoi(rc + 4) == 0 ? PMI_SUCCESS : PMI_FAIL;
}

/* field copies the text behind key, " NAME=", up to the next blank. The field value is the
 * last one of an answer and may contain blanks. */
static int field(const char *answer, const char *key, char *out, size_t room)
{
	const char *at = strstr(answer, key);
	if (at == NULL)
		return PMI_FAIL;
	at += strlen(key);
	size_t n = strcmp(key, " value=") == 0 ? strlen(at) : strcspn(at, " ");
	if (n >= room)
		return PMI_FAIL;
	memcpy(out, at, n);
	out[n] = 0;
	return PMI_SUCCESS;
}

EXPORT int PMI_Init(int *spawned)
{
	char answer[LINE];
	*spawned = 0;
	fd = number("PMI_FD", -1);
	rank = number("PMI_RANK", 0);
	size = number("PMI_SIZE", 1);
	if (ask("cmd=init pmi_version=1 pmi_subversion=1\n", answer) != PMI_SUCCESS ||
	    ask("cmd=get_my_kvsname\n", answer) != PMI_SUCCESS || field(answer, " kvsname=", space, sizeof space) != PMI_SUCCESS) {
		fprintf(stderr, "outrigger: rank %d cannot talk to its sidecar's process management (PMI_FD=%d)\n", rank, fd);
		return PMI_FAIL;
	}
	begun = true;
	return PMI_SUCCESS;
}

EXPORT int PMI_Initialized(int *yes)
{
	*yes = begun;
	return PMI_SUCCESS;
}

EXPORT int PMI_Finalize(void)
{
	char answer[LINE];
	if (!begun)
		return PMI_SUCCESS;
	begun = false;
	return ask("cmd=finalize\n", answer);
}

EXPORT int PMI_Get_size(int *n) { *n = size; return PMI_SUCCESS; }
EXPORT int PMI_Get_rank(int *n) { *n = rank; return PMI_SUCCESS; }
EXPORT int PMI_Get_universe_size(int *n) { *n = size; return PMI_SUCCESS; }
EXPORT int PMI_Get_appnum(int *n) { *n = 0; return PMI_SUCCESS; }

EXPORT int PMI_Barrier(void)
{
	char answer[LINE];
	return ask("cmd=barrier_in\n", answer);
}

EXPORT int PMI_Abort(int code, const char *text)
{
	char request[LINE];
	int n = snprintf(request, sizeof request, "cmd=abort exitcode=%d message=%.*s\n", code, 1024, text == NULL ? "" : text);
	for (int i = 0; i < n - 1; i++)
		if (request[i] == '\n')
			request[i] = ' ';
	if (fd >= 0)
		(void)write_all(request, (size_t)n);
	_exit((code & 0xff) == 0 ? 1 : code); /* exit codes have 8 bits: one whose low bits are 0 would mean success */
}

EXPORT int PMI_KVS_Get_my_name(char *name, int room)
{
	return snprintf(name, (size_t)room, "%s", space) < room ? PMI_SUCCESS : PMI_FAIL;
}

EXPORT int PMI_KVS_Get_name_length_max(int *n) { *n = NAME_MAX_; return PMI_SUCCESS; }
EXPORT int PMI_KVS_Get_key_length_max(int *n) { *n = KEY_MAX_; return PMI_SUCCESS; }
EXPORT int PMI_KVS_Get_value_length_max(int *n) { *n = VALUE_MAX_; return PMI_SUCCESS; }
EXPORT int PMI_KVS_Commit(const char *name) { (void)name; return PMI_SUCCESS; }

EXPORT int PMI_KVS_Put(const char *name, const char *key, const char *value)
{
	char request[LINE], answer[LINE];
	int n = snprintf(request, sizeof request, "cmd=put kvsname=%s key=%s value=%s\n", name, key, value);
	if (n < 0 || (size_t)n >= sizeof request || strchr(value, '\n') != NULL)
		return PMI_ERR_INVALID_ARG;
	return ask(request, answer);
}

EXPORT int PMI_KVS_Get(const char *name, const char *key, char *value, int room)
{
	char request[LINE], answer[LINE];
	int n = snprintf(request, sizeof request, "cmd=get kvsname=%s key=%s\n", name, key);
	if (n < 0 || (size_t)n >= sizeof request)
		return PMI_ERR_INVALID_ARG;
	if (ask(request, answer) != PMI_SUCCESS)
		return PMI_FAIL;
	return field(answer, " value=", value, (size_t)room);
}

/* clique lists the ranks of this rank's node and returns their number. It parses the process
 * mapping, (vector,(first node,nodes,ranks per node),...). */
static int clique(int *list, int room)
{
	char text[VALUE_MAX_];
	if (PMI_KVS_Get(space, MAPPING, text, sizeof text) != PMI_SUCCESS)
		return PMI_FAIL;
	int first = 0, node, nodes, each;
	for (const char *at = strchr(text + 1, '('); at != NULL; at = strchr(at + 1, '(')) {
		if (sscanf(at, "(%d,%d,%d)", &node, &nodes, &each) != 3 || nodes < 1 || each < 1)
			return PMI_FAIL;
		if (rank < first + nodes * each) {
			first += (rank - first) / each * each;
			for (int i = 0; i < each && i < room; i++)
				list[i] = first + i;
			return each;
		}
		first += nodes * each;
	}
	return PMI_FAIL;
}

EXPORT int PMI_Get_clique_size(int *n)
{
	*n = clique(NULL, 0);
	return *n < 1 ? PMI_FAIL : PMI_SUCCESS;
}

EXPORT int PMI_Get_clique_ranks(int *ranks, int room)
{
	return clique(ranks, room) < 1 ? PMI_FAIL : PMI_SUCCESS;
}
