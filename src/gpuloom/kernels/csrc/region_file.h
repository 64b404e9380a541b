/* The shared memory as a file: who may open it, who is alive, when it goes.
 *
 * Liveness is a lock on a byte of the file for each slot, held by its process: the kernel drops it at any death, so
 * that neither a kill -9 nor a reused process number can leave a ghost, and it works across containers that share the
 * file. */
#ifndef REGION_FILE_H
#define REGION_FILE_H

#include <stddef.h>

#include "loom.h"

/* Open or create the file at `path` and join its users. NULL with a sentence in `why` if it cannot be trusted or made.
 */
LOOM_API struct loom_region *loom_region_open(const char *path, char *why, size_t why_size);
/* Leave it; the last one removes the file. */
LOOM_API void loom_region_leave(struct loom_region *region);
/* A free slot, or -1. */
LOOM_API int loom_claim(struct loom_region *region, uint64_t device, uint32_t priority, const char *name);
LOOM_API void loom_unclaim(struct loom_region *region, int index);
/* Free the slots of dead processes; how many there were. */
LOOM_API int loom_reap(struct loom_region *region);
/* Wake everybody who sleeps, if anybody does. */
LOOM_API void loom_ring(struct loom_region *region);

#endif
