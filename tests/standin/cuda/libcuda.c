/* A stand-in for libcuda.so.1: as much of CUDA's driver as the tests of the hook need, on the processor.
 *
 * It is for the correctness of the hook: which functions a program reaches, what is counted, what runs before what. Nothing about
 * its speed says anything about a GPU, and no figure may be taken on it.
 *
 * One device. Each stream is a queue with a thread of its own that takes its operations in order. The device runs one kernel at
 * a time, whichever process it is of: a robust mutex in the file $STANDIN_CUDA_DEVICE sees to that. Kernels are known by name:
 *     add..., spin_<n>us   x = 31 * x + value, to the first number of the buffer (so that the order shows), for n microseconds
 *     hold...              the same, and then runs until the second number of the buffer is not 0
 *     fault...             kills the context, as a wrong address would
 * Parameters: the buffer (CUdeviceptr), the value (long long). Device memory is the process' own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "standin_cuda.h"

#define API __attribute__((visibility("default")))

struct CUfunc_st {
    char name[64];
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all of it: the stand-in need not be fast */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static CUstream streams;
static struct CUctx_st primary;
static unsigned primary_users;
static unsigned long operations;
static pthread_mutex_t *device;
static _Thread_local CUcontext current[8];
static _Thread_local int depth;
static _Thread_local char this_thread;

/* The device --------------------------------------------------------------------------------------------------------------- */

static CUresult open_device(void) {
    const char *path = getenv("STANDIN_CUDA_DEVICE");
    int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || flock(file, LOCK_EX) != 0) return CUDA_ERROR_NOT_FOUND;
    bool is_new = lseek(file, 0, SEEK_END) == 0;
    if (is_new && ftruncate(file, sizeof *device) != 0) return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) return CUDA_ERROR_NOT_FOUND;
    if (is_new) {
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(shared, &how);
    }
    flock(file, LOCK_UN); /* not by closing it: the mapping would keep the lock */
    close(file);
    device = shared;
    return CUDA_SUCCESS;
}

static void run(CUcontext context, const struct op *op) {
    if (pthread_mutex_lock(device) == EOWNERDEAD) pthread_mutex_consistent(device); /* a process was killed in its kernel */
    const char *name = op->function->name, *length = strchr(name, '_');
    struct timespec rest = {0, length ? atol(length + 1) * 1000 : 0};
    nanosleep(&rest, NULL);
    if (strncmp(name, "fault", 5) == 0) {
        pthread_mutex_lock(&lock);
        context->lost = CUDA_ERROR_LAUNCH_FAILED;
        pthread_mutex_unlock(&lock);
    } else
        op->buffer[0] = (long long)(31 * (unsigned long long)op->buffer[0] + (unsigned long long)op->value);
    while (strncmp(name, "hold", 4) == 0 && __atomic_load_n(&op->buffer[1], __ATOMIC_ACQUIRE) == 0) sched_yield();
    pthread_mutex_unlock(device);
}

/* Streams ------------------------------------------------------------------------------------------------------------------ */

static void release_event(CUevent event) {
    if (event && --event->users == 0) free(event);
}

/* The legacy default stream and the blocking streams wait for what was given to the other before. */
static bool may_start(CUstream stream) {
    const struct op *op = stream->first;
    if (op->kind == WAIT && op->event->reached < op->event_number && !stream->context->lost) return false;
    for (CUstream other = streams; other; other = other->next) {
        bool ordered = other != stream && other->context == stream->context && !other->non_blocking && !stream->non_blocking &&
                       (other->handle == CU_STREAM_LEGACY || stream->handle == CU_STREAM_LEGACY);
        if (ordered && other->first && other->first->number < op->number) return false;
    }
    return true;
}

static void *work(void *data) {
    CUstream stream = data;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (stream->first ? !may_start(stream) : !stream->closing) pthread_cond_wait(&changed, &lock);
        struct op *op = stream->first;
        if (!op) break;
        bool lost = stream->context->lost != CUDA_SUCCESS;
        pthread_mutex_unlock(&lock);
        if (op->kind == KERNEL && !lost) run(stream->context, op);
        if (op->kind == HOST && !lost) op->host(op->data);
        pthread_mutex_lock(&lock);
        if (op->kind == RECORD && op->event->reached < op->event_number) op->event->reached = op->event_number;
        stream->first = op->next;
        if (!stream->first) stream->last = &stream->first;
        release_event(op->event);
        free(op);
        pthread_cond_broadcast(&changed);
    }
    for (CUstream *at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(stream);
    return NULL;
}

static CUstream new_stream(CUcontext context, CUstream handle, const void *thread, bool non_blocking) {
    CUstream stream = calloc(1, sizeof *stream);
    stream->context = context;
    stream->handle = handle ? handle : stream;
    stream->thread = thread;
    stream->non_blocking = non_blocking;
    stream->last = &stream->first;
    stream->next = streams;
    streams = stream;
    pthread_create(&stream->worker, NULL, work, stream);
    pthread_detach(stream->worker);
    return stream;
}

static CUresult state_of(CUcontext context) {
    pthread_mutex_lock(&lock);
    CUresult lost = context->lost;
    pthread_mutex_unlock(&lock);
    return lost;
}

static CUcontext now_current(void) { return depth ? current[depth - 1] : NULL; }

static CUstream resolve(CUstream handle) {
    if (!handle) handle = CU_STREAM_LEGACY;
    if (handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) return handle;
    const void *thread = handle == CU_STREAM_PER_THREAD ? &this_thread : NULL;
    for (CUstream at = streams; at; at = at->next)
        if (at->handle == handle && at->thread == thread && at->context == now_current()) return at;
    return now_current() ? new_stream(now_current(), handle, thread, false) : NULL;
}

static void append(struct op **first, struct op ***last, const struct op *op) {
    struct op *made = malloc(sizeof *made);
    *made = *op;
    made->next = NULL;
    if (!*first) *last = first;
    **last = made;
    *last = &made->next;
}

static void enqueue(CUstream stream, struct op op) {
    if (op.event) {
        op.event->users++;
        op.event_number = op.kind == RECORD ? ++op.event->recorded : op.event->recorded;
    }
    op.number = ++operations;
    append(&stream->first, &stream->last, &op);
    pthread_cond_broadcast(&changed);
}

static CUresult give(CUstream handle, struct op op) {
    pthread_mutex_lock(&lock);
    CUstream stream = resolve(handle);
    CUresult result = !stream ? CUDA_ERROR_INVALID_CONTEXT : stream->context->lost;
    if (result == CUDA_SUCCESS && stream->capture) append(&stream->capture->first, &stream->capture->last, &op);
    else if (result == CUDA_SUCCESS) enqueue(stream, op);
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult wait_for(CUcontext context, CUstream only) {
    pthread_mutex_lock(&lock);
    CUstream busy;
    do {
        busy = streams;
        while (busy && !(busy->context == context && (!only || busy == only) && busy->first)) busy = busy->next;
        if (busy) pthread_cond_wait(&changed, &lock);
    } while (busy);
    CUresult result = context->lost;
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult wait_for_stream(CUstream handle) {
    pthread_mutex_lock(&lock);
    CUstream stream = resolve(handle);
    pthread_mutex_unlock(&lock);
    return stream ? wait_for(stream->context, stream) : CUDA_ERROR_INVALID_CONTEXT;
}

/* With all its streams, and as if a program could not have forgotten any. */
static void end_context(CUcontext context) {
    wait_for(context, NULL);
    pthread_mutex_lock(&lock);
    for (CUstream at = streams; at; at = at->next)
        if (at->context == context) at->closing = true;
    pthread_cond_broadcast(&changed);
    for (CUstream at = streams; at; at = at->context == context ? (pthread_cond_wait(&changed, &lock), streams) : at->next) {}
    pthread_mutex_unlock(&lock);
    if (now_current() == context) depth--;
}

/* Devices and contexts ----------------------------------------------------------------------------------------------------- */

API CUresult cuInit(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    CUresult result = device ? CUDA_SUCCESS : open_device();
    pthread_mutex_unlock(&lock);
    return result;
}

API CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *found, int ordinal) {
    *found = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice which) {
    (void)which;
    memcpy(uuid->bytes, "standin-gpu-0000", 16);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice which) {
    (void)which;
    primary_users++;
    *context = &primary;
    return device ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice which, unsigned *flags, int *active) {
    (void)which;
    *flags = 0;
    *active = primary_users > 0;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice which) {
    (void)which;
    primary_users = 0;
    end_context(&primary);
    primary.lost = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice which) {
    if (primary_users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    return --primary_users == 0 ? cuDevicePrimaryCtxReset_v2(which) : CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = now_current();
    return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (depth == 8) return CUDA_ERROR_INVALID_CONTEXT;
    current[depth++] = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    *context = current[--depth];
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext context) {
    if (depth) depth--;
    return context ? cuCtxPushCurrent_v2(context) : CUDA_SUCCESS;
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice which) {
    (void)flags;
    (void)which;
    *context = calloc(1, sizeof **context);
    return device ? cuCtxPushCurrent_v2(*context) : CUDA_ERROR_NOT_INITIALIZED;
}

API CUresult cuCtxDestroy_v2(CUcontext context) {
    end_context(context);
    free(context);
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *found) {
    *found = 0;
    return now_current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) { return now_current() ? wait_for(now_current(), NULL) : CUDA_ERROR_INVALID_CONTEXT; }

/* Functions and memory ----------------------------------------------------------------------------------------------------- */

static void *new_function(const char *name, bool is_kernel) {
    struct CUfunc_st *made = calloc(1, sizeof *made);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->is_kernel = is_kernel;
    return made;
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    (void)image;
    *module = NULL;
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name) {
    (void)module;
    *f = new_function(name, false);
    return CUDA_SUCCESS;
}

API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    (void)library;
    *kernel = new_function(name, true);
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetName(const char **name, CUfunction f) {
    *name = f->name;
    return f->is_kernel ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

API CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    CUfunction f = (CUfunction)kernel;
    *name = f->name;
    return f->is_kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
    *at = (CUdeviceptr)(uintptr_t)calloc(1, bytes);
    return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr at) {
    free((void *)(uintptr_t)at);
    return CUDA_SUCCESS;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    const long long *source = from; /* word by word: a kernel that holds may be looking */
    for (size_t i = 0; i < bytes / sizeof *source; i++)
        __atomic_store_n((long long *)(uintptr_t)to + i, source[i], __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    CUresult result = wait_for_stream(CU_STREAM_LEGACY);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return result;
}

/* Streams and events ------------------------------------------------------------------------------------------------------- */

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority;
    if (!now_current()) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    *stream = new_stream(now_current(), NULL, NULL, flags & CU_STREAM_NON_BLOCKING);
    pthread_mutex_unlock(&lock);
    return state_of(now_current());
}

API CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

API CUresult cuStreamDestroy_v2(CUstream stream) {
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    stream->closing = true; /* once its work is done */
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    bool is_default = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    *context = is_default ? now_current() : stream->context;
    return *context ? state_of(*context) : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuStreamSynchronize(CUstream stream) { return wait_for_stream(stream); }
API CUresult cuStreamSynchronize_ptsz(CUstream stream) { return wait_for_stream(stream ? stream : CU_STREAM_PER_THREAD); }

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    (*event)->users = 1;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
    pthread_mutex_lock(&lock);
    release_event(event);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) { return give(stream, (struct op){.kind = RECORD, .event = event}); }

API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    return give(stream, (struct op){.kind = WAIT, .event = event});
}

API CUresult cuEventSynchronize(CUevent event) {
    pthread_mutex_lock(&lock);
    while (event->reached < event->recorded) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Launches and graphs ------------------------------------------------------------------------------------------------------ */

static CUresult launch(CUfunction f, const unsigned sizes[6], CUstream stream, void **parameters) {
    for (int i = 0; i < 6; i++)
        if (sizes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    long long *buffer = (long long *)(uintptr_t)*(CUdeviceptr *)parameters[0];
    return give(stream, (struct op){.kind = KERNEL, .function = f, .buffer = buffer, .value = *(long long *)parameters[1]});
}

#define VARIANTS(name, suffix, or_default)                                                                                \
    API CUresult name##suffix(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                              unsigned shared, CUstream stream, void **parameters EXTRA) {                                \
        (void)shared;                                                                                                     \
        return launch(f, (unsigned[]){gx, gy, gz, bx, by, bz}, stream ? stream : or_default, parameters);                 \
    }
#define EXTRA , void **extra __attribute__((unused))
VARIANTS(cuLaunchKernel, , CU_STREAM_LEGACY)
VARIANTS(cuLaunchKernel, _ptsz, CU_STREAM_PER_THREAD)
#undef EXTRA
#define EXTRA
VARIANTS(cuLaunchCooperativeKernel, , CU_STREAM_LEGACY)
VARIANTS(cuLaunchCooperativeKernel, _ptsz, CU_STREAM_PER_THREAD)

static CUresult launch_ex(const CUlaunchConfig *how, CUfunction f, CUstream or_default, void **parameters) {
    if (!how) return CUDA_ERROR_INVALID_VALUE;
    return launch(f, (unsigned[]){how->gridDimX, how->gridDimY, how->gridDimZ, how->blockDimX, how->blockDimY, how->blockDimZ},
                  how->hStream ? how->hStream : or_default, parameters);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    (void)extra;
    return launch_ex(config, f, CU_STREAM_LEGACY, parameters);
}

API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    (void)extra;
    return launch_ex(config, f, CU_STREAM_PER_THREAD, parameters);
}

API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    return give(stream, (struct op){.kind = HOST, .host = function, .data = data});
}

API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    pthread_mutex_lock(&lock);
    CUstream stream = resolve(handle);
    CUresult result = stream ? stream->context->lost : CUDA_ERROR_INVALID_CONTEXT;
    for (CUstream at = streams; stream && stream->handle == CU_STREAM_LEGACY && at; at = at->next)
        if (at->capture && !at->non_blocking) result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = stream && stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    pthread_mutex_unlock(&lock);
    return result;
}

API CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    (void)mode;
    pthread_mutex_lock(&lock);
    stream->capture = calloc(1, sizeof *stream->capture);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    pthread_mutex_lock(&lock);
    *graph = stream->capture;
    stream->capture = NULL;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    (void)nodes;
    *count = 0;
    for (const struct op *op = graph->first; op; op = op->next) ++*count;
    return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    (void)flags;
    *exec = (CUgraphExec)graph;
    return CUDA_SUCCESS;
}

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    for (const struct op *op = ((CUgraph)exec)->first; op && result == CUDA_SUCCESS; op = op->next) result = give(stream, *op);
    return result;
}

API CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphLaunch(exec, stream ? stream : CU_STREAM_PER_THREAD);
}

/* Entry points ------------------------------------------------------------------------------------------------------------- */

typedef void entry(void);

#define OF(name, base, since, per_thread) {base, since, per_thread, (entry *)name}
static const struct {
    const char *base;
    int since;
    bool per_thread;
    entry *function;
} entries[] = {
    OF(cuInit, "cuInit", 2000, false), OF(cuDeviceGet, "cuDeviceGet", 2000, false),
    OF(cuDeviceGetCount, "cuDeviceGetCount", 2000, false),
    OF(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, false),
    OF(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, false),
    OF(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, false), OF(cuCtxCreate_v2, "cuCtxCreate", 3020, false),
    OF(cuCtxDestroy_v2, "cuCtxDestroy", 4000, false), OF(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, false),
    OF(cuCtxSynchronize, "cuCtxSynchronize", 2000, false), OF(cuModuleLoadData, "cuModuleLoadData", 2000, false),
    OF(cuModuleGetFunction, "cuModuleGetFunction", 2000, false), OF(cuLibraryGetKernel, "cuLibraryGetKernel", 12000, false),
    OF(cuMemAlloc_v2, "cuMemAlloc", 3020, false), OF(cuMemFree_v2, "cuMemFree", 3020, false),
    OF(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, false), OF(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, false),
    OF(cuStreamCreate, "cuStreamCreate", 2000, false), OF(cuStreamDestroy_v2, "cuStreamDestroy", 4000, false),
    OF(cuStreamSynchronize, "cuStreamSynchronize", 2000, false),
    OF(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, true),
    OF(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, false),
    OF(cuStreamEndCapture, "cuStreamEndCapture", 10000, false), OF(cuGraphGetNodes, "cuGraphGetNodes", 10000, false),
    OF(cuGraphInstantiateWithFlags, "cuGraphInstantiate", 12000, false), OF(cuGraphLaunch, "cuGraphLaunch", 10000, false),
    OF(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, true), OF(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, false),
    OF(cuLaunchKernel, "cuLaunchKernel", 4000, false), OF(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, true),
    OF(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, false), OF(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, true),
    OF(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, false),
    OF(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, true),
    OF(cuGetProcAddress, "cuGetProcAddress", 11030, false), OF(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false),
};

API CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    *function = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].base, symbol) == 0 && entries[i].since <= version && (per_thread || !entries[i].per_thread))
            memcpy(function, &entries[i].function, sizeof *function);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
    CUresult result = cuGetProcAddress(symbol, function, version, flags);
    if (status) *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return result;
}
