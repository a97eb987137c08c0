/*
 * outrigger-pmix: a PMIx server for the ranks of one pod, which their launcher
 * starts. Open MPI 5 finds its ranks only by PMIx. The server is the libpmix of
 * the program's own Open MPI, loaded at run time; data for other pods goes through
 * the launcher to the sidecar.
 *
 *     outrigger-pmix NAMESPACE POD RANKS-BY-POD FOLDER      e.g. job 1 2,2 /tmp/x
 *
 * Descriptor 3 is a stream of frames to and from the launcher: length u32 (of the body),
 * kind u8, body. Numbers are little-endian.
 *
 * to the launcher    'E' rank u32, then VARIABLE=VALUE with a zero behind each
 *                    'R' the variables of all ranks were sent
 *                    'X' text: an error after which the server ends
 *                    'C' rank u32: the rank has connected
 *                    'F' this pod's data for a fence of all ranks
 *                    'M' number u32 chosen by the server, number of pods u32, length of the
 *                        name u32, length of the data u32, the pods u32 each, the name, the
 *                        data: an operation of some of the ranks (package pmi, Meetings)
 *                    'T' rank u32, output u32 (1 or 2), text, may be empty: the rank prints it
 *                    'A' rank u32, exit code i32, text: the rank aborts the job
 * from the launcher  'G' the data of all pods: the answer to an F
 *                    'N' text: the reason why an F has no answer
 *                    'a' rank u32: the answer to an A, the sidecar knows of the abort
 *                    't' rank u32: the answer to a T, the text is printed
 *                    'm' number u32 of an M, number u64 of the meeting, the data of its pods
 *                    'n' number u32 of an M that failed
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
#define TEXT_MAX (1u << 20) /* maximum size in bytes of one text that a rank prints; the rest is cut */

/* The functions of libpmix that the server uses, with the types of its header. */
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

/* library.c: load_library loads libpmix. It returns NULL or the text of an error. */
const char *load_library(void);

/* frame.c */
void send_frame(int kind, const void *head, size_t head_bytes, const void *body, size_t bytes);
void *receive_frame(int *kind, size_t *bytes); /* returns the next frame; NULL: the launcher has ended */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* job.c: describes the job to libpmix, and sends the launcher the environment of its ranks. */
struct job {
	pmix_nspace_t nspace;
	unsigned pod, pods, ranks, first, local;
	unsigned *layout; /* number of ranks of each pod */
	const char *folder;
};

void read_job(struct job *job, char **argv);
void register_job(const struct job *job);

/* meeting.c: operations of some of the ranks. job must stay valid. */
void begin_meetings(const struct job *job);
pmix_status_t on_group(pmix_group_operation_t op, char group[], const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t infos,
		       pmix_info_cbfunc_t done, void *arg);
pmix_status_t fence_of_some(const pmix_proc_t procs[], size_t n, const char *data, size_t bytes, pmix_modex_cbfunc_t done, void *arg);
void end_meeting(bool met, char *body, size_t bytes);

#endif
