/* Declarations shared by the files of liboutrigger-check.so (check.c). */
#ifndef OUTRIGGER_CHECK_H
#define OUTRIGGER_CHECK_H

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

/* Values of OUTRIGGER_MPI_CHECK. The launcher sets one of the first two. */
#define CHECK_SELECT "select"   /* the program's MPI is known */
#define CHECK_LOADED "loaded"   /* a process that has loaded an MPI notifies the sidecar */
#define CHECK_CLEARED "cleared" /* a wrapper has cleared this process's environment (exec.c) */
#define CHECK_OFF "off"         /* set by the user: each rank runs this program as a job of its own */

bool check_wanted(void);               /* reports whether this process belongs to an MPI job and is checked */
bool check_how(const char *value);     /* reports whether OUTRIGGER_MPI_CHECK has this value */
const char *check_rank(void);          /* returns the rank in the variables of the MPI's launcher; "?": unknown */
_Noreturn void check_refuse(const char *text); /* ends the process, and the job with this reason */
int check_ranks(void);                 /* returns the ranks of the job, or of the program's mpirun; 0: unknown */
void check_release(void);              /* ends the checks of programs that this process starts */
int check_world(void);                 /* returns the ranks of the program, by its mpirun; 0: unknown */
void check_option(void);               /* ends a rank whose MPI is not the one that --mpi names */
void check_starter(void);              /* ends a rank whose mpirun is of another MPI */
void check_pod(void);                  /* ends a rank that mpirun has started in a pod of other ranks */
bool check_world_of_one(void);         /* reports whether mpirun started one rank, in a job of more */
void check_management(void);           /* ends a rank whose connection to process management was closed */
bool check_managed(void);              /* reports whether PMI_FD is such a connection */
bool check_intel(void);                /* reports whether the process's MPI is Intel MPI */
/* check_parameter returns the parameter of Open MPI that selects components of a framework, and the
 * file that sets it; NULL: it has no value, or no file sets it. false: Open MPI has not read it. */
bool check_parameter(const char *framework, const char **value, const char **file);
bool check_windows_elsewhere(const char **btl); /* reports whether Open MPI has btls that the launcher's list lacks */
int check_missing(const char *name);   /* reports a call of a function that the MPI lacks */

#endif
