/*
 * outrigger-pmix: a PMIx server for the ranks of one pod, beside their launcher.
 * Open MPI 5 finds its ranks by PMIx and by nothing else. The server is the
 * library that the program's own Open MPI brings along, loaded at run time; what
 * it has to tell other pods goes through the launcher to the sidecar.
 *
 *     outrigger-pmix NAMESPACE POD RANKS-BY-POD FOLDER      e.g. job 1 2,2 /tmp/x
 *
 * Descriptor 3 is a stream to the launcher, of frames: length u32 (of what follows
 * the kind), kind u8, body. Numbers are little-endian.
 *
 * to the launcher    'E' rank u32, then VARIABLE=VALUE with a zero behind each
 *                    'R' all ranks have their variables
 *                    'X' text: what is wrong; the server ends
 *                    'C' rank u32: it has connected
 *                    'F' what this pod has put, for a fence of all ranks
 *                    'M' number u32 of the server's, then pods u32, bytes of the name u32,
 *                        of the data u32, the pods u32, the name, the data: for what some of
 *                        the ranks do together (package pmi, Meetings)
 *                    'T' rank u32, output u32 (1 or 2), text, which may be empty: it prints that
 *                    'A' rank u32, exit code i32, text: it asks for the end of the job
 * from the launcher  'G' what all pods have put, in answer to an F
 *                    'N' text: why there is no answer
 *                    'a' rank u32, of an A: the sidecar knows
 *                    't' rank u32, of a T: it is printed
 *                    'm' number u32 of an M, number u64 of the meeting, what its pods have put
 *                    'n' number u32 of an M that has no answer
 */
#ifndef OUTRIGGER_PMIX_H
#define OUTRIGGER_PMIX_H

#include <pmix.h>
#include <pmix_server.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	FRAME_ENV = 'E', FRAME_READY = 'R', FRAME_ERROR = 'X', FRAME_CONNECTED = 'C', FRAME_FENCE = 'F', FRAME_ABORT = 'A', FRAME_ABORTED = 'a',
	FRAME_GATHERED = 'G', FRAME_FAILED = 'N', FRAME_MEET = 'M', FRAME_MET = 'm', FRAME_UNMET = 'n', FRAME_TEXT = 'T', FRAME_PRINTED = 't',
};

#define FRAME_MAX (1u << 30)
#define TEXT_MAX (1u << 20) /* of one text that a rank prints */

/* What of libpmix is used, by the names of its header. */
struct library {
	const char *(*error_string)(pmix_status_t status);
	pmix_status_t (*info_load)(pmix_info_t *info, const char *key, const void *data, pmix_data_type_t type);
	pmix_status_t (*generate_regex)(const char *input, char **regex);
	pmix_status_t (*generate_ppn)(const char *input, char **ppn);
	pmix_status_t (*server_init)(pmix_server_module_t *module, pmix_info_t info[], size_t n);
	pmix_status_t (*register_nspace)(const pmix_nspace_t nspace, int local, pmix_info_t info[], size_t n, pmix_op_cbfunc_t done, void *arg);
	pmix_status_t (*register_client)(const pmix_proc_t *proc, uid_t uid, gid_t gid, void *object, pmix_op_cbfunc_t done, void *arg);
	pmix_status_t (*setup_local_support)(const pmix_nspace_t nspace, pmix_info_t info[], size_t n, pmix_op_cbfunc_t done, void *arg);
	pmix_status_t (*setup_fork)(const pmix_proc_t *proc, char ***env);
	void (*value_destruct)(pmix_value_t *value);
};

extern struct library pmix;

/* library.c: NULL, or what is wrong. */
const char *load_library(void);

/* frame.c */
void send_frame(int kind, const void *head, size_t head_bytes, const void *body, size_t bytes);
void *receive_frame(int *kind, size_t *bytes); /* NULL: the launcher has gone */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* job.c: tells libpmix who is who, and the launcher what its ranks need. */
struct job {
	pmix_nspace_t nspace;
	unsigned pod, pods, ranks, first, local;
	unsigned *layout; /* ranks by pod */
	const char *folder;
};

void read_job(struct job *job, char **argv);
void register_job(const struct job *job);

/* meeting.c: what some of the ranks do together. job stays. */
void begin_meetings(const struct job *job);
pmix_status_t on_group(pmix_group_operation_t op, char group[], const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t infos,
		       pmix_info_cbfunc_t done, void *arg);
pmix_status_t fence_of_some(const pmix_proc_t procs[], size_t n, const char *data, size_t bytes, pmix_modex_cbfunc_t done, void *arg);
void end_meeting(bool met, char *body, size_t bytes);

#endif
