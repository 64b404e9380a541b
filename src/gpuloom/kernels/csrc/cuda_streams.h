/* CUDA's streams as slots, and what a launch on one has to do. Stands between cuda_hook.c, which programs call, and the
 * runtime. */
#ifndef CUDA_STREAMS_H
#define CUDA_STREAMS_H

#include "cuda_api.h"
#include "runtime.h"

typedef void cuda_entry(void);
struct cuda_stream;
struct cuda_launch;

/* A function of the driver by its exported name, or NULL. (In cuda_hook.c.) */
cuda_entry *cuda_find(const char *name);

/* The stream that a launch goes to. `handle` is not NULL: CU_STREAM_LEGACY or CU_STREAM_PER_THREAD stand for the
 * default streams. NULL: nobody needs to know of the launch. */
struct cuda_stream *cuda_watched(CUstream handle);
/* Wait for our turn. Then launch, and tell what the driver said, which is what cuda_after returns. */
struct cuda_launch *cuda_before(struct cuda_stream *stream, const char *name, const uint64_t grid[3],
                                const uint64_t block[3]);
CUresult cuda_after(struct cuda_stream *stream, struct cuda_launch *launch, CUresult result);

const char *cuda_name(CUfunction function);
/* Graphs have no names: they are numbered in the order of their first launch, which is the same in each run of most
 * programs. */
uint64_t cuda_graph_number(CUgraphExec graph);

/* It is about to be destroyed. */
void cuda_stream_goes(CUstream handle);
/* It was destroyed. */
void cuda_context_gone(CUcontext context);
/* A device's primary context was reset, or released by one of its users. */
void cuda_primary_released(CUdevice device);
/* The program has waited for a result; a record says which launches came after that. If it was told that the context
 * has died, nobody shall wait for its kernels: the context of `stream`, else `context`, else (both NULL) the current
 * one. */
void cuda_waited(CUresult result, CUstream stream, CUcontext context);

#endif
