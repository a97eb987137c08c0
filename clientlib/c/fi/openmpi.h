/* Defects of Open MPI that concern what the provider carries: openmpi.c. */
#ifndef OUTRIGGER_OPENMPI_H
#define OUTRIGGER_OPENMPI_H

#include <stdbool.h>
#include <stdint.h>

/* openmpi_correct corrects the Open MPI of this process, once. It returns false and prints an error
 * if this Open MPI sends wrong data and cannot be corrected. It must be called without the
 * provider's lock, after the MPI has chosen its pml. */
bool openmpi_correct(void);

/* openmpi_tags returns the layout of the tags of this process's MPI (LAYOUT §8.2), or 0 if it is
 * not known. It must be called after openmpi_correct. */
uint32_t openmpi_tags(void);

/* openmpi_yields reports whether the program's MPI is an Open MPI that yields between its polls. The
 * first call makes it do so, for a program whose threads poll together. */
bool openmpi_yields(void);

/* openmpi_acknowledges reports whether the sender of a probed message with this tag waits for an
 * acknowledgement, a message without data, and sets its tag. */
bool openmpi_acknowledges(uint64_t tag, uint64_t *answer);

#endif
