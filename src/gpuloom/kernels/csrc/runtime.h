/* What a front end needs: a stream of kernels that waits its turn. Settings come from the environment, see settings()
 * in runtime.c.
 *
 * Fails open: wherever something is wrong, loom_stream_open returns NULL, says why once, and the program runs ungated.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include "loom.h"

struct loom_stream;

/* Is there anything to do in this process at all? */
bool loom_wanted(void);
/* A stream on a device, which the front end names by a number that is the same in every process. */
LOOM_API struct loom_stream *loom_stream_open(uint64_t device, int priority);
LOOM_API void loom_stream_close(struct loom_stream *stream);
/* The priority of the next stream: the settings list them in the order of creation. */
int loom_next_priority(void);
LOOM_API void loom_stream_priority(struct loom_stream *stream, uint32_t priority);
/* What the profile at `path` tells about the stream's kernels. */
LOOM_API bool loom_stream_profile(struct loom_stream *stream, const char *path);

/* False: nobody needs to know of the next launch. */
LOOM_API bool loom_stream_watched(struct loom_stream *stream);
/* Wait until the kernel may start. Then launch it, and report either that this failed or, later, that the kernel ended.
 */
LOOM_API void loom_stream_launch(struct loom_stream *stream, uint64_t kernel);
/* Without waiting: for a thread that others wait for. */
void loom_stream_launch_now(struct loom_stream *stream, uint64_t kernel);
LOOM_API void loom_stream_failed(struct loom_stream *stream);
LOOM_API void loom_stream_ended(struct loom_stream *stream, uint64_t kernel, uint64_t ran_ns);

/* Measuring: every kernel that ended, in a file. */
bool loom_recording(void);
void loom_record_device(const char *name);
void loom_record(uint32_t queue, uint64_t kernel, const char *name, uint32_t dims, const uint64_t *grid,
                 const uint64_t *block, uint64_t launched_ns, uint64_t ended_ns, uint64_t ran_ns, bool after_wait);

uint64_t loom_now(void);

#endif
