/* The device and the streams of the stand-in: see libcuda.c for what it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin_streams.h"

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all of it: the stand-in need not be fast */
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
CUstream streams;
struct CUctx_st primary;
unsigned primary_users;
static unsigned long operations;
pthread_mutex_t *device;
_Thread_local CUcontext current[8];
_Thread_local int depth;
static _Thread_local char this_thread;

/* The device */

CUresult open_device(void) {
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

void lose(CUcontext context) {
    const char *error = getenv("STANDIN_CUDA_FAULT");
    pthread_mutex_lock(&lock);
    context->lost = error ? (CUresult)atoi(error) : CUDA_ERROR_LAUNCH_FAILED;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void run(CUcontext context, const struct op *op) {
    if (pthread_mutex_lock(device) == EOWNERDEAD)
        pthread_mutex_consistent(device); /* a process was killed in its kernel */
    const char *name = op->function->name, *length = strchr(name, '_');
    struct timespec rest = {0, length ? atol(length + 1) * 1000 : 0};
    nanosleep(&rest, NULL);
    if (strncmp(name, "fault", 5) == 0)
        lose(context);
    else
        op->buffer[0] = (long long)(31 * (unsigned long long)op->buffer[0] + (unsigned long long)op->value);
    while (strncmp(name, "hold", 4) == 0 && __atomic_load_n(&op->buffer[1], __ATOMIC_ACQUIRE) == 0) sched_yield();
    pthread_mutex_unlock(device);
}

/* Streams */

void release_event(CUevent event) {
    if (event && --event->users == 0) free(event);
}

/* The legacy default stream and the blocking streams wait for what was given to the other before. */
static bool may_start(CUstream stream) {
    const struct op *op = stream->first;
    if (op->kind == WAIT && op->event->reached < op->event_number && !stream->context->lost) return false;
    for (CUstream other = streams; other; other = other->next) {
        bool ordered = other != stream && other->context == stream->context && !other->non_blocking &&
                       !stream->non_blocking &&
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

CUstream new_stream(CUcontext context, CUstream handle, const void *thread, bool non_blocking) {
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

CUresult state_of(CUcontext context) {
    pthread_mutex_lock(&lock);
    CUresult lost = context->lost;
    pthread_mutex_unlock(&lock);
    return lost;
}

CUcontext now_current(void) { return depth ? current[depth - 1] : NULL; }

CUstream resolve(CUstream handle) {
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

CUresult give(CUstream handle, struct op op) {
    pthread_mutex_lock(&lock);
    CUstream stream = resolve(handle);
    CUresult result = !stream ? CUDA_ERROR_INVALID_CONTEXT : stream->context->lost;
    if (result == CUDA_SUCCESS && stream->capture)
        append(&stream->capture->first, &stream->capture->last, &op);
    else if (result == CUDA_SUCCESS)
        enqueue(stream, op);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult wait_for(CUcontext context, CUstream only) {
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

CUresult wait_for_stream(CUstream handle) {
    pthread_mutex_lock(&lock);
    CUstream stream = resolve(handle);
    pthread_mutex_unlock(&lock);
    return stream ? wait_for(stream->context, stream) : CUDA_ERROR_INVALID_CONTEXT;
}

/* With all its streams, and as if a program could not have forgotten any. */
void end_context(CUcontext context) {
    wait_for(context, NULL);
    pthread_mutex_lock(&lock);
    for (CUstream at = streams; at; at = at->next)
        if (at->context == context) at->closing = true;
    pthread_cond_broadcast(&changed);
    for (CUstream at = streams; at;
         at = at->context == context ? (pthread_cond_wait(&changed, &lock), streams) : at->next) {
    }
    pthread_mutex_unlock(&lock);
    if (now_current() == context) depth--;
}
