/* Defects of Open MPI that concern what the provider carries: openmpi.c. */
#ifndef OUTRIGGER_OPENMPI_H
#define OUTRIGGER_OPENMPI_H

#include <stdbool.h>
#include <stdint.h>

/* openmpi_mend corrects the Open MPI of this process, once; false, with a text on standard
 * error: it sends wrong data and cannot be corrected. Called without the provider's lock, when
 * the MPI has chosen its pml. */
bool openmpi_mend(void);

/* openmpi_tags is the layout of the tags of this process's MPI (LAYOUT §8.2), 0: not known.
 * Called after openmpi_mend. */
uint32_t openmpi_tags(void);

/* openmpi_acknowledges reports whether the receiver of a probed message with a tag owes its
 * sender a message without data, and gives its tag. */
bool openmpi_acknowledges(uint64_t tag, uint64_t *answer);

#endif
