/* The inside of the stand-in: contexts, streams and what is in them. streams.c makes it run, libcuda.c is how a program
 * reaches it. */
#ifndef STANDIN_STREAMS_H
#define STANDIN_STREAMS_H

#include <pthread.h>
#include <stdbool.h>

#include "standin_cuda.h"

struct CUfunc_st {
    char *name;
    bool is_kernel; /* was asked for as a CUkernel */
};

struct CUctx_st {
    CUresult lost; /* why it does nothing any more */
};

struct CUevent_st {
    unsigned long recorded, reached;
    unsigned users; /* the program, and each operation on it */
};

enum kind { KERNEL, HOST, RECORD, WAIT };

struct op {
    struct op *next;
    enum kind kind;
    unsigned long number, event_number; /* in the order of all operations; of the event's records */
    CUfunction function;
    volatile long long *buffer;
    long long value;
    CUhostFn host;
    void *data;
    CUevent event;
};

struct CUgraph_st {
    struct op *first, **last;
    bool spoiled; /* while it was captured, by a call that must not be made then */
};

struct CUstream_st {
    CUstream next;
    CUcontext context;
    CUstream handle; /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or itself */
    const void *thread;
    bool non_blocking, closing;
    struct op *first, **last; /* the first stays in the list until it is done */
    CUgraph capture;
    pthread_t worker;
};

extern pthread_mutex_t lock; /* for all of it: the stand-in need not be fast */
extern pthread_cond_t changed;
extern CUstream streams;
extern struct CUctx_st primary;
extern unsigned primary_users;
extern pthread_mutex_t *device;
extern _Thread_local CUcontext current[8];
extern _Thread_local int depth;

CUresult open_device(void);
void release_event(CUevent event);
CUstream new_stream(CUcontext context, CUstream handle, const void *thread, bool non_blocking);
CUresult state_of(CUcontext context);
CUcontext now_current(void);
CUstream resolve(CUstream handle);
CUresult give(CUstream handle, struct op op);
void lose(CUcontext context);
CUresult wait_for(CUcontext context, CUstream only);
CUresult wait_for_stream(CUstream handle);
void end_context(CUcontext context);

#endif
