/* What the files of liboutrigger-check.so share: check.c. */
#ifndef OUTRIGGER_CHECK_H
#define OUTRIGGER_CHECK_H

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

bool check_wanted(void);               /* the launcher started this process, or what did, in an MPI job */
const char *check_rank(void);          /* as the launcher of the MPI has it; "?": it is not known */
_Noreturn void check_refuse(const char *text); /* ends the process, and the job with that reason */
int check_world(void);                 /* ranks of the program, as its mpirun has it; 0: it is not known */
void check_said(void);                 /* ends a rank whose MPI is not the one that --mpi says */
void check_starter(void);              /* ends a rank whose mpirun is of another MPI */
bool check_world_of_one(void);         /* mpirun started it as one rank, in a job of more */
int check_missing(const char *name);   /* a function that the MPI does not have was called */

#endif
