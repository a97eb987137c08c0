/* MPICH in the process of the provider: mpich.c. */
#ifndef OUTRIGGER_MPICH_H
#define OUTRIGGER_MPICH_H

#include <stdint.h>

/* mpich_tags is the layout of the tags of this process's MPI if that is an MPICH (LAYOUT §8.2),
 * 0: it is not, or its tags are not known. Called without the provider's lock. */
uint32_t mpich_tags(void);

#endif
