/* What the files of liboutrigger-check.so share: check.c. */
#ifndef OUTRIGGER_CHECK_H
#define OUTRIGGER_CHECK_H

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

/* Values of OUTRIGGER_MPI_CHECK. The launcher says one of the first two. */
#define CHECK_SELECT "select"   /* the program's MPI is known */
#define CHECK_LOADED "loaded"   /* the sidecar is told of a process that has loaded an MPI */
#define CHECK_CLEARED "cleared" /* the environment was, on the way to this process (exec.c) */
#define CHECK_OFF "off"         /* the job's own word: each rank runs this program as a job of its own */

bool check_wanted(void);               /* the launcher started this process, or what did, in an MPI job */
bool check_how(const char *value);     /* OUTRIGGER_MPI_CHECK has it */
const char *check_rank(void);          /* as the launcher of the MPI has it; "?": it is not known */
_Noreturn void check_refuse(const char *text); /* ends the process, and the job with that reason */
int check_ranks(void);                 /* ranks of the job, or of the program's mpirun; 0: it is not known */
void check_release(void);              /* programs that this process starts are checked no more */
int check_world(void);                 /* ranks of the program, as its mpirun has it; 0: it is not known */
void check_said(void);                 /* ends a rank whose MPI is not the one that --mpi says */
void check_starter(void);              /* ends a rank whose mpirun is of another MPI */
void check_placed(void);               /* ends a rank that mpirun has started in a pod which does not have it */
bool check_world_of_one(void);         /* mpirun started it as one rank, in a job of more */
void check_management(void);           /* ends a rank whose connection to process management was closed */
bool check_managed(void);              /* PMI_FD is such a connection */
bool check_intel(void);                /* the process's MPI is Intel MPI */
/* A parameter of Open MPI that selects components of a framework, and the file that it is from;
 * NULL: it has no value, or is from no file. false: Open MPI has not read it. */
bool check_parameter(const char *framework, const char **value, const char **file);
bool check_windows_elsewhere(const char **btl); /* Open MPI's list of btls has others than the launcher's */
int check_missing(const char *name);   /* a function that the MPI does not have was called */

#endif
