/* MPICH in the process of the provider: mpich.c. */
#ifndef OUTRIGGER_MPICH_H
#define OUTRIGGER_MPICH_H

#include <stdint.h>

/* mpich_tags returns the layout of the tags of this process's MPI (LAYOUT §8.2) if that is an
 * MPICH. 0: it is another MPI, or the layout is not known. It must be called without the
 * provider's lock. */
uint32_t mpich_tags(void);

#endif
