#include "cuda_streams.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What we ask of the driver ourselves; the last two only newer ones have (names since CUDA 12.3). */
/* clang-format off */
#define NEEDS(NEED)                          \
    NEED(cuCtxGetCurrent)                    \
    NEED(cuCtxGetDevice)                     \
    NEED(cuCtxGetStreamPriorityRange)        \
    NEED(cuCtxPopCurrent_v2)                 \
    NEED(cuCtxPushCurrent_v2)                \
    NEED(cuDeviceGetAttribute)               \
    NEED(cuDeviceGetUuid_v2)                 \
    NEED(cuDevicePrimaryCtxGetState)         \
    NEED(cuEventCreate)                      \
    NEED(cuEventDestroy_v2)                  \
    NEED(cuEventRecord)                      \
    NEED(cuLaunchHostFunc)                   \
    NEED(cuStreamCreateWithPriority)         \
    NEED(cuStreamDestroy_v2)                 \
    NEED(cuStreamGetCtx)                     \
    NEED(cuStreamIsCapturing)                \
    NEED(cuStreamWaitEvent)                  \
    NEED(cuThreadExchangeStreamCaptureMode)  \
    NEED(cuFuncGetName)                      \
    NEED(cuKernelGetName)
/* clang-format on */

#define NEED_NUMBER(name) NEED_##name,
#define NEED_NAME(name) #name,
enum { NEEDS(NEED_NUMBER) NEED_COUNT, NEED_REQUIRED = NEED_cuFuncGetName };
static cuda_entry *driver[NEED_COUNT];

#define CALL(name, ...) (((__typeof__(&name))driver[NEED_##name])(__VA_ARGS__))

/* Streams */

struct cuda_stream {
    struct cuda_stream *next;
    CUstream handle;
    CUcontext context; /* its own; of a default stream, the current one */
    CUdevice device;
    const void *thread; /* of a per-thread default stream */
    struct loom_stream *loom;
    CUstream side; /* where the ends of its kernels are heard of, see cuda_after */
    CUevent event;
    uint32_t number;
    unsigned users; /* the list of streams, each thread that launches, each kernel in flight */
    unsigned waits_seen;
    uint64_t ended_ns;
    struct cuda_launch *pending;
};

struct cuda_launch {
    struct cuda_stream *stream;       /* NULL: nobody waits for it any more */
    struct cuda_launch *next, **link; /* in the stream's list of what is pending */
    uint64_t kernel, launched_ns;
    /* For a record only: */
    uint64_t grid[3], block[3];
    bool after_wait;
    char name[]; /* of C++ kernels, thousands of characters long */
};

/* Guards the streams and what they have pending. Never held while the driver is called: it might wait for a callback of
 * ours. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_stream *streams;
static uint32_t streams_made;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_ends;
static atomic_bool usable;             /* the driver has all that we need */
static _Thread_local char this_thread; /* its address is the thread's name */
static _Thread_local bool inside;      /* a launch that a launch makes is part of it */
static atomic_uint waits;              /* how often the program has waited for a result */

enum by { HANDLE, CONTEXT, DEVICE, THREAD };
static void forget(enum by by, const void *value, CUdevice device, bool context_lives);

static void thread_ended(void *thread) { forget(THREAD, thread, 0, true); }

/* CUDA does not work in the child of a process that has used it; it is only not to hang on a lock of ours. */
static void forget_in_child(void) {
    streams = NULL;
    pthread_mutex_init(&lock, NULL);
}

static void meet_driver(void) {
    static const char *const names[] = {NEEDS(NEED_NAME)};
    for (int i = 0; i < NEED_COUNT; i++) {
        driver[i] = cuda_find(names[i]);
        if (driver[i] || i >= NEED_REQUIRED) continue;
        fprintf(stderr, "gpuloom: kernels run ungated: the CUDA driver has no %s\n", names[i]);
        return;
    }
    usable = pthread_key_create(&thread_ends, thread_ended) == 0 && pthread_atfork(NULL, NULL, forget_in_child) == 0;
}

/* Errors after which a context does nothing any more, and calls no host functions. Older headers do not name them all.
 */
static bool is_deadly(CUresult result) {
    static const int deadly[] = {
        4 /* DEINITIALIZED */,          214 /* ECC_UNCORRECTABLE */,
        220 /* NVLINK_UNCORRECTABLE */, 226 /* CONTAINED */,
        700 /* ILLEGAL_ADDRESS */,      702 /* LAUNCH_TIMEOUT */,
        709 /* CONTEXT_IS_DESTROYED */, 710 /* ASSERT */,
        714 /* HARDWARE_STACK */,       715 /* ILLEGAL_INSTRUCTION */,
        716 /* MISALIGNED_ADDRESS */,   717 /* ADDRESS_SPACE */,
        718 /* INVALID_PC */,           719 /* LAUNCH_FAILED */,
        721 /* TENSOR_MEMORY_LEAK */,   810 /* MPS_TERMINATED */,
        911 /* EXTERNAL_DEVICE */,
    };
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        if ((int)result == deadly[i]) return true;
    return false;
}

/* The same number for the same device in every process, and the same as the OpenCL layer's. A MIG instance has its own.
 */
static uint64_t device_key(CUdevice device) {
    CUuuid uuid;
    char text[17] = {0};
    if (CALL(cuDeviceGetUuid_v2, &uuid, device) != CUDA_SUCCESS) return 0;
    for (int i = 0; i < 16; i++) text[i] = (char)(uuid.bytes[i] | 0x80); /* no end of a string inside */
    return loom_kernel_id(text, 1, (uint64_t[]){0}, NULL);
}

static bool is_default(CUstream handle) { return handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD; }

/* With the lock held. */
static struct cuda_stream *find(CUstream handle, CUcontext context, const void *thread) {
    struct cuda_stream *at = streams;
    while (at && !(at->handle == handle && at->thread == thread && (!context || at->context == context))) at = at->next;
    if (at) at->users++;
    return at;
}

static void drop(struct cuda_stream *stream) {
    pthread_mutex_lock(&lock);
    bool last = --stream->users == 0;
    pthread_mutex_unlock(&lock);
    if (!last) return;
    loom_stream_close(stream->loom);
    free(stream);
}

/* Where the device and the processor cannot use managed memory at once, a program may touch it while no stream of its
 * own is busy; a side stream that still is would make that a crash. */
static bool may_have_side(CUdevice device) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int concurrent = 0;
    CALL(cuDeviceGetAttribute, &concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
    if (!concurrent && !atomic_flag_test_and_set(&said))
        fputs("gpuloom: kernels run ungated: the device has no concurrent access to managed memory\n", stderr);
    return concurrent;
}

/* Nothing that we make or destroy may spoil a capture in another thread. Called again, it undoes itself. */
static void exchange(CUstreamCaptureMode *mode) { CALL(cuThreadExchangeStreamCaptureMode, mode); }

/* The side stream waits for nothing of the program's but what it is told to (NON_BLOCKING), and has the greatest
 * priority because streams of equal priority may share a hardware queue, in which its waiting would hold up the
 * program's kernels. */
static void open_side(struct cuda_stream *stream) {
    int least, greatest;
    CUcontext ignored;
    if ((!stream->context && CALL(cuStreamGetCtx, stream->handle, &stream->context) != CUDA_SUCCESS) ||
        CALL(cuCtxPushCurrent_v2, stream->context) != CUDA_SUCCESS)
        return;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange(&mode);
    if (CALL(cuCtxGetDevice, &stream->device) == CUDA_SUCCESS && may_have_side(stream->device) &&
        CALL(cuCtxGetStreamPriorityRange, &least, &greatest) == CUDA_SUCCESS &&
        CALL(cuEventCreate, &stream->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        CALL(cuStreamCreateWithPriority, &stream->side, CU_STREAM_NON_BLOCKING, greatest) != CUDA_SUCCESS)
        stream->side = NULL;
    exchange(&mode);
    CALL(cuCtxPopCurrent_v2, &ignored);
}

static void close_side(struct cuda_stream *stream) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange(&mode);
    if (stream->side) CALL(cuStreamDestroy_v2, stream->side); /* what is still in it happens all the same */
    if (stream->event) CALL(cuEventDestroy_v2, stream->event);
    exchange(&mode);
}

/* A stream that cannot be watched is remembered as well, without a side stream, so that it is tried once only. */
static struct cuda_stream *remember(CUstream handle, CUcontext context, const void *thread) {
    struct cuda_stream *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->handle = handle;
    made->thread = thread;
    made->context = context;
    open_side(made);
    uint64_t key = made->side ? device_key(made->device) : 0;
    if (thread) pthread_setspecific(thread_ends, thread);
    pthread_mutex_lock(&lock);
    struct cuda_stream *there = find(handle, context, thread); /* another thread may have been faster */
    if (!there) {
        if (key) made->loom = loom_stream_open(key, loom_next_priority());
        made->number = streams_made++;
        made->users = 2;
        made->next = streams;
        streams = made;
    }
    pthread_mutex_unlock(&lock);
    if (!there) return made;
    close_side(made);
    free(made);
    return there;
}

static bool is(const struct cuda_stream *stream, enum by by, const void *value, CUdevice device) {
    switch (by) {
        case HANDLE:
            return stream->handle == value;
        case CONTEXT:
            return stream->context == value;
        case THREAD:
            return stream->thread == value;
        default:
            return stream->device == device;
    }
}

/* Of kernels whose context is gone nothing will be heard, so they do not count any more. Their few bytes are kept for
 * good, for the case that something is. */
static void cancel(struct cuda_stream *stream) {
    static struct cuda_launch *lost;
    for (struct cuda_launch *launch; (launch = stream->pending);) {
        stream->pending = launch->next;
        launch->next = lost;
        lost = launch;
        launch->stream = NULL;
        stream->users--; /* the list has one, so this is not the last */
        if (stream->loom) loom_stream_failed(stream->loom);
    }
}

/* Harmless if wrong: the next launch on a stream that was forgotten too early makes it a new slot. */
static void forget(enum by by, const void *value, CUdevice device, bool context_lives) {
    struct cuda_stream *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct cuda_stream **at = &streams, *stream; (stream = *at);) {
        if (is(stream, by, value, device)) {
            *at = stream->next;
            stream->next = gone;
            gone = stream;
            if (!context_lives) cancel(stream);
        } else
            at = &stream->next;
    }
    pthread_mutex_unlock(&lock);
    for (struct cuda_stream *next; gone; gone = next) {
        next = gone->next;
        if (context_lives) close_side(gone);
        drop(gone); /* the slot lasts until its last kernel has ended */
    }
}

void cuda_stream_goes(CUstream handle) {
    if (usable && handle) forget(HANDLE, handle, 0, true);
}

void cuda_context_gone(CUcontext context) {
    if (usable && context) forget(CONTEXT, context, 0, false);
}

void cuda_primary_released(CUdevice device) {
    unsigned flags;
    int active = 1; /* it may have other users */
    if (usable && CALL(cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_SUCCESS && !active)
        forget(DEVICE, NULL, device, false);
}

/* The context of `stream`, else `context`, else the current one. */
static void if_deadly_forget(CUresult result, CUstream stream, CUcontext context) {
    if (!usable || !is_deadly(result)) return;
    pthread_mutex_lock(&lock);
    for (const struct cuda_stream *at = stream && !is_default(stream) ? streams : NULL; at; at = at->next)
        if (at->handle == stream) context = at->context;
    pthread_mutex_unlock(&lock);
    if (!context) CALL(cuCtxGetCurrent, &context);
    cuda_context_gone(context);
}

/* Launches */

static bool concerns_anybody(const struct cuda_stream *stream) {
    return stream->side && (loom_recording() || loom_stream_watched(stream->loom));
}

struct cuda_stream *cuda_watched(CUstream handle) {
    if (inside || !loom_wanted() || pthread_once(&once, meet_driver) != 0 || !usable) return NULL;
    CUcontext context = NULL;
    const void *thread = handle == CU_STREAM_PER_THREAD ? &this_thread : NULL;
    if (is_default(handle) && (CALL(cuCtxGetCurrent, &context) != CUDA_SUCCESS || !context)) return NULL;
    pthread_mutex_lock(&lock);
    struct cuda_stream *stream = find(handle, context, thread);
    pthread_mutex_unlock(&lock);
    if (stream && !concerns_anybody(stream)) {
        drop(stream);
        return NULL;
    }
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult asked = CALL(cuStreamIsCapturing, handle, &capture);
    bool runs = asked == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE;
    if (!stream && runs) stream = remember(handle, context, thread);
    if (stream && runs && concerns_anybody(stream)) return stream;
    if_deadly_forget(asked, handle, context);
    if (stream) drop(stream);
    return NULL;
}

struct cuda_launch *cuda_before(struct cuda_stream *stream, const char *name, const uint64_t grid[3],
                                const uint64_t block[3]) {
    struct cuda_launch *launch = calloc(1, sizeof *launch + (loom_recording() ? strlen(name) + 1 : 0));
    if (!launch) return NULL;
    launch->stream = stream;
    launch->kernel = loom_kernel_id(name, 3, grid, block);
    if (loom_recording()) {
        memcpy(launch->grid, grid, sizeof launch->grid);
        memcpy(launch->block, block, sizeof launch->block);
        strcpy(launch->name, name);
    } else
        loom_stream_launch(stream->loom, launch->kernel);
    unsigned now = atomic_load(&waits);
    pthread_mutex_lock(&lock);
    stream->users++;
    launch->after_wait = stream->waits_seen != now;
    stream->waits_seen = now;
    launch->launched_ns = loom_now();
    launch->link = &stream->pending;
    launch->next = stream->pending;
    if (launch->next) launch->next->link = &launch->next;
    stream->pending = launch;
    pthread_mutex_unlock(&lock);
    inside = true;
    return launch;
}

/* It is not pending any more. Its stream, or NULL if it was cancelled.
 * The device's clock cannot be asked in a callback: a kernel has run since it was launched, or since the one before it
 * on its stream ended if that was later. Time in which other streams had the device is in it. */
static struct cuda_stream *settle(struct cuda_launch *launch, uint64_t ended_ns, uint64_t *ran_ns) {
    pthread_mutex_lock(&lock);
    struct cuda_stream *stream = launch->stream;
    if (stream) {
        *launch->link = launch->next;
        if (launch->next) launch->next->link = launch->link;
        uint64_t start = launch->launched_ns > stream->ended_ns ? launch->launched_ns : stream->ended_ns;
        *ran_ns = ended_ns > start ? ended_ns - start : 0;
        if (ended_ns) stream->ended_ns = ended_ns;
    }
    pthread_mutex_unlock(&lock);
    return stream;
}

/* `ended_ns` is 0 where it is not known. */
static void end(struct cuda_launch *launch, uint64_t ended_ns) {
    uint64_t ran_ns;
    struct cuda_stream *stream = settle(launch, ended_ns, &ran_ns);
    if (!stream) return;
    if (!loom_recording())
        loom_stream_ended(stream->loom, launch->kernel, ran_ns);
    else if (ended_ns)
        loom_record(stream->number, launch->kernel, launch->name, 3, launch->grid, launch->block, launch->launched_ns,
                    ended_ns, ran_ns, launch->after_wait);
    drop(stream);
    free(launch);
}

static void on_end(void *launch) {
    end(launch, loom_now());
} /* runs in a thread of the driver, and must not call CUDA */

static void fail(struct cuda_launch *launch) {
    uint64_t ignored;
    struct cuda_stream *stream = settle(launch, 0, &ignored);
    if (!stream) return;
    if (!loom_recording()) loom_stream_failed(stream->loom);
    drop(stream);
    free(launch);
}

/* Whatever becomes of the launch, the program gets what the driver said.
 *
 * The end of a kernel is told by a host function. Placed in the program's own stream it would cost most where it must
 * not: the stream's next kernel does not start before the host function has returned (in the legacy default stream,
 * that of no other blocking stream either), so the device would wait for the processor between any two kernels. Hence a
 * stream of our own beside each, which waits for an event after the kernel: the program's stream gets the event only.
 * The price is three calls of the driver instead of one, on the thread that launches. Asking events (cuEventQuery)
 * would need a thread that does nothing else. */
CUresult cuda_after(struct cuda_stream *stream, struct cuda_launch *launch, CUresult result) {
    inside = false;
    CUresult told = result; /* and what our own calls are told: the kernel may already have killed the context */
    if (launch && result != CUDA_SUCCESS)
        fail(launch);
    else if (launch && ((told = CALL(cuEventRecord, stream->event, stream->handle)) != CUDA_SUCCESS ||
                        (told = CALL(cuStreamWaitEvent, stream->side, stream->event, 0)) != CUDA_SUCCESS ||
                        (told = CALL(cuLaunchHostFunc, stream->side, on_end, launch)) != CUDA_SUCCESS))
        end(launch, 0);
    if_deadly_forget(told, NULL, stream->context);
    drop(stream);
    return result;
}

void cuda_waited(CUresult result, CUstream stream, CUcontext context) {
    atomic_fetch_add(&waits, 1);
    if_deadly_forget(result, stream, context);
}

/* Newer drivers take a CUkernel where a CUfunction is asked for. That cuFuncGetName refuses one is an assumption: it is
 * not documented. */
const char *cuda_name(CUfunction function) {
    const char *name = NULL;
    bool known =
        (driver[NEED_cuFuncGetName] && CALL(cuFuncGetName, &name, function) == CUDA_SUCCESS && name) ||
        (driver[NEED_cuKernelGetName] && CALL(cuKernelGetName, &name, (CUkernel)function) == CUDA_SUCCESS && name);
    return known ? name : "?";
}

uint64_t cuda_graph_number(CUgraphExec graph) {
    enum { GRAPHS = 256 };
    static CUgraphExec seen[GRAPHS];
    uint64_t i = 0;
    pthread_mutex_lock(&lock);
    while (i < GRAPHS && seen[i] && seen[i] != graph) i++;
    if (i < GRAPHS) seen[i] = graph;
    pthread_mutex_unlock(&lock);
    return i;
}
