/*
 * The gate of the MPI: whether threads of the program are inside of it, or the one that takes
 * steps (steps.c), and never both. Threads of the program go in together, as they like.
 */
#ifndef OUTRIGGER_GATE_H
#define OUTRIGGER_GATE_H

#include <stdbool.h>

/* A thread of the program goes in, and out. Within another call, and within a step, it is
 * in already. */
void gate_enter(void);
void gate_leave(void);

bool gate_within(void); /* the calling thread is inside */

/* gate_left_by has each thread that has gone out call a function; NULL: none. */
void gate_left_by(void (*left)(void));

bool gate_shut(void);  /* nobody is inside, and nobody goes in; false: somebody stays there */
bool gate_asked(void); /* somebody wants to go in */
void gate_open(void);

#endif
