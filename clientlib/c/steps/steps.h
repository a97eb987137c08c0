#ifndef OUTRIGGER_STEPS_H
#define OUTRIGGER_STEPS_H

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

/* steps_find sets *function, a pointer to a function, to the next function of a name in the order
 * of symbols, or to the MPI's if the program has loaded its MPI with local scope. It returns
 * false if there is none. */
bool steps_find(void *function, const char *name);

#endif
