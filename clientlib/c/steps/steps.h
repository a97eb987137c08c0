#ifndef OUTRIGGER_STEPS_H
#define OUTRIGGER_STEPS_H

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

/* steps_find has a pointer to a function point to the next one of a name, or, where a
 * program has loaded its MPI for itself alone, to the MPI's. */
bool steps_find(void *function, const char *name);

#endif
