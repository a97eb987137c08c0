/*
 * The gate excludes the thread that makes steps (steps.c) from the MPI while threads of the
 * program are in it, and vice versa. Threads of the program do not exclude each other.
 */
#ifndef OUTRIGGER_GATE_H
#define OUTRIGGER_GATE_H

#include <stdbool.h>

/* gate_enter and gate_leave are called by a thread of the program before and after a function of
 * MPI. Nested calls, also within a step, only count. */
void gate_enter(void);
void gate_leave(void);

/* gate_within reports whether the calling thread is inside. */
bool gate_within(void);

/* gate_on_leave sets a function that each thread calls after it has left; NULL: none. */
void gate_on_leave(void (*call)(void));

/* gate_shut waits until no thread of the program is inside and shuts the gate, so that none can
 * enter before gate_open. It returns false, with the gate open, if a thread stays inside.
 * gate_asked reports, while the gate is shut, whether a thread waits to enter. */
bool gate_shut(void);
bool gate_asked(void);
void gate_open(void);

#endif
