/* A stand-in for libcuda.so.1: as much of CUDA's driver as the tests of the hook need, on the processor.
 *
 * It is for the correctness of the hook: which functions a program reaches, what is counted, what runs before what.
 * Nothing about its speed says anything about a GPU, and no figure may be taken on it.
 *
 * One device. Each stream is a queue with a thread of its own that takes its operations in order. The device runs one
 * kernel at a time, whichever process it is of: a robust mutex in the file $STANDIN_CUDA_DEVICE sees to that. Kernels
 * are known by name:
 *   add..., spin_<n>us   x = 31 * x + value, to the first number of the buffer (so that the order shows), for n
 *                        microseconds
 *   hold...              the same, and then runs until the second number of the buffer is not 0
 *   fault...             kills the context, as a wrong address would; "fault at once" does so before its launch
 *                        returns; the error is $STANDIN_CUDA_FAULT, or CUDA_ERROR_LAUNCH_FAILED
 * Parameters: the buffer (CUdeviceptr), the value (long long). Device memory is the process' own.
 *
 * $STANDIN_CUDA_IS says what is unusual about the driver: "unmanaged" (no concurrent access to managed memory), "green"
 * (the default streams are said to be of another context than the current one) or "eager" (asked for functions with a
 * default stream for each thread, cuGetProcAddress gives them for versions of CUDA that did not have them yet). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin_streams.h"

#define API __attribute__((visibility("default")))

static bool is_unusual(const char *how) {
    const char *is = getenv("STANDIN_CUDA_IS");
    return is && strcmp(is, how) == 0;
}

/* Devices and contexts */

API CUresult cuInit(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    CUresult result = device ? CUDA_SUCCESS : open_device();
    pthread_mutex_unlock(&lock);
    return result;
}

enum { DRIVER_VERSION = 13000 };

API CUresult cuDriverGetVersion(int *version) {
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
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

API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice which) {
    (void)which;
    *value = attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS && !is_unusual("unmanaged");
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

API CUresult cuCtxSynchronize(void) {
    return now_current() ? wait_for(now_current(), NULL) : CUDA_ERROR_INVALID_CONTEXT;
}

/* Functions and memory */

static void *new_function(const char *name, bool is_kernel) {
    struct CUfunc_st *made = calloc(1, sizeof *made);
    made->name = strdup(name);
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

/* Streams and events */

static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* With the lock held. The driver forbids some calls while anybody captures. Here they are all those that make or
 * destroy. */
static void spoil_captures(void) {
    for (CUstream at = streams; at && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED; at = at->next)
        if (at->capture) at->capture->spoiled = true;
}

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority;
    if (!now_current()) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    spoil_captures();
    *stream = new_stream(now_current(), NULL, NULL, flags & CU_STREAM_NON_BLOCKING);
    pthread_mutex_unlock(&lock);
    return state_of(now_current());
}

API CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

API CUresult cuStreamDestroy_v2(CUstream stream) {
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    spoil_captures();
    stream->closing = true; /* once its work is done */
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    bool is_default = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    *context = !is_default ? stream->context : is_unusual("green") ? &primary : now_current();
    return *context ? state_of(*context) : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuStreamSynchronize(CUstream stream) { return wait_for_stream(stream); }
API CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return wait_for_stream(stream ? stream : CU_STREAM_PER_THREAD);
}

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    (*event)->users = 1;
    pthread_mutex_lock(&lock);
    spoil_captures();
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
    pthread_mutex_lock(&lock);
    spoil_captures();
    release_event(event);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
    return give(stream, (struct op){.kind = RECORD, .event = event});
}

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

/* Launches and graphs */

static CUresult launch(CUfunction f, const unsigned sizes[6], CUstream stream, void **parameters) {
    for (int i = 0; i < 6; i++)
        if (sizes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    long long *buffer = (long long *)(uintptr_t)*(CUdeviceptr *)parameters[0];
    struct op kernel = {.kind = KERNEL, .function = f, .buffer = buffer, .value = *(long long *)parameters[1]};
    CUresult result = give(stream, kernel);
    if (strcmp(f->name, "fault at once") == 0) lose(now_current());
    return result;
}

#define VARIANTS(name, suffix, or_default)                                                                   \
    API CUresult name##suffix(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
                              unsigned bz, unsigned shared, CUstream stream, void **parameters EXTRA) {      \
        (void)shared;                                                                                        \
        return launch(f, (unsigned[]){gx, gy, gz, bx, by, bz}, stream ? stream : or_default, parameters);    \
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
    return launch(
        f, (unsigned[]){how->gridDimX, how->gridDimY, how->gridDimZ, how->blockDimX, how->blockDimY, how->blockDimZ},
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
    return (*graph)->spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
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
    for (const struct op *op = ((CUgraph)exec)->first; op && result == CUDA_SUCCESS; op = op->next)
        result = give(stream, *op);
    return result;
}

API CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphLaunch(exec, stream ? stream : CU_STREAM_PER_THREAD);
}

/* Entry points */

typedef void entry(void);

#define OF(name, base, since, per_thread) {base, since, per_thread, (entry *)name}
static const struct {
    const char *base;
    int since;
    bool per_thread;
    entry *function;
} entries[] = {
    OF(cuInit, "cuInit", 2000, false),
    OF(cuDriverGetVersion, "cuDriverGetVersion", 2020, false),
    OF(cuDeviceGet, "cuDeviceGet", 2000, false),
    OF(cuDeviceGetCount, "cuDeviceGetCount", 2000, false),
    OF(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, false),
    OF(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, false),
    OF(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, false),
    OF(cuCtxCreate_v2, "cuCtxCreate", 3020, false),
    OF(cuCtxDestroy_v2, "cuCtxDestroy", 4000, false),
    OF(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, false),
    OF(cuCtxSynchronize, "cuCtxSynchronize", 2000, false),
    OF(cuModuleLoadData, "cuModuleLoadData", 2000, false),
    OF(cuModuleGetFunction, "cuModuleGetFunction", 2000, false),
    OF(cuLibraryGetKernel, "cuLibraryGetKernel", 12000, false),
    OF(cuMemAlloc_v2, "cuMemAlloc", 3020, false),
    OF(cuMemFree_v2, "cuMemFree", 3020, false),
    OF(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, false),
    OF(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, false),
    OF(cuStreamCreate, "cuStreamCreate", 2000, false),
    OF(cuStreamDestroy_v2, "cuStreamDestroy", 4000, false),
    OF(cuStreamSynchronize, "cuStreamSynchronize", 2000, false),
    OF(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, true),
    OF(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, false),
    OF(cuStreamEndCapture, "cuStreamEndCapture", 10000, false),
    OF(cuGraphGetNodes, "cuGraphGetNodes", 10000, false),
    OF(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, false),
    OF(cuGraphLaunch, "cuGraphLaunch", 10000, false),
    OF(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, true),
    OF(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, false),
    OF(cuLaunchKernel, "cuLaunchKernel", 4000, false),
    OF(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, true),
    OF(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, false),
    OF(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, true),
    OF(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, false),
    OF(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, true),
    OF(cuGetProcAddress, "cuGetProcAddress", 11030, false),
    OF(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false),
};

static CUdriverProcAddressQueryResult find_entry(const char *symbol, void **function, int version, cuuint64_t flags) {
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, known = false;
    *function = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (strcmp(entries[i].base, symbol) != 0 || (entries[i].per_thread && !per_thread)) continue;
        known = true;
        if (entries[i].since <= version || (entries[i].per_thread && is_unusual("eager")))
            memcpy(function, &entries[i].function, sizeof *function);
    }
    if (*function) return CU_GET_PROC_ADDRESS_SUCCESS;
    return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    return find_entry(symbol, function, version, flags) == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS
                                                                                       : CUDA_ERROR_NOT_FOUND;
}

/* Unlike the first version it calls not finding something a success. */
API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
    if (version > DRIVER_VERSION) return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = find_entry(symbol, function, version, flags);
    if (status) *status = found;
    return CUDA_SUCCESS;
}
