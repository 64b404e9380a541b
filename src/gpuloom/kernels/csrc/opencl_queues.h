/* OpenCL as a layer sees it: the dispatch table by number (its order is part of the binary interface, so no header is
 * needed), and what we know of each command queue. */
#ifndef OPENCL_QUEUES_H
#define OPENCL_QUEUES_H

#include <stddef.h>

#include "runtime.h"

typedef void *handle;
typedef int32_t status;
typedef void entry(void);

enum table {
    GET_PLATFORM_INFO = 1,
    GET_DEVICE_IDS = 2,
    GET_DEVICE_INFO = 3,
    CREATE_QUEUE = 9,
    RETAIN_QUEUE = 10,
    RELEASE_QUEUE = 11,
    GET_QUEUE_INFO = 12,
    GET_KERNEL_INFO = 39,
    WAIT_FOR_EVENTS = 41,
    GET_EVENT_INFO = 42,
    RELEASE_EVENT = 44,
    GET_PROFILING = 45,
    FLUSH = 46,
    FINISH = 47,
    READ_BUFFER = 48,
    WRITE_BUFFER = 49,
    COPY_BUFFER = 50,
    ENQUEUE_KERNEL = 59,
    ENQUEUE_TASK = 60,
    SET_EVENT_CALLBACK = 81,
    FILL_BUFFER = 102,
    CREATE_QUEUE_WITH_PROPERTIES = 123,
    NEEDED = 124,
    TABLE = 256
};

enum {
    COMPLETE = 0,
    OUT_OF_HOST_MEMORY = -6,
    PROFILING_NOT_AVAILABLE = -7,
    INVALID_VALUE = -30,
    PLATFORM_NAME = 0x0902,
    DEVICE_NAME = 0x102B,
    DEVICE_PLATFORM = 0x1031,
    DEVICE_PARENT = 0x1042,
    DEVICE_UUID = 0x106A,
    QUEUE_PROPERTIES = 0x1093,
    QUEUE_PROPERTIES_ARRAY = 0x1098,
    KERNEL_NAME = 0x1190,
    EVENT_QUEUE = 0x11D0,
    PROFILING_START = 0x1282,
    PROFILING_END = 0x1283,
    LAYER_API = 0x4240,
    LAYER_NAME = 0x4241
};
#define PROFILE 2u /* bit of a queue's properties */
#define ANY_DEVICE 0xFFFFFFFFu

extern entry *const *real; /* the runtime below us */

#define CALL(index, type, ...) (((type)real[index])(__VA_ARGS__))
typedef status info_of(handle, uint32_t, size_t, void *, size_t *);
typedef status with_handle(handle);

enum { PROPERTIES = 32, LONGEST_NAME = 4096, SHOWN_NAME = 256 };

struct queue {
    struct loom_stream *stream; /* NULL: runs ungated, or released */
    uint32_t number;
    bool hides_profiling;
    atomic_uint waits_seen, references;
    uint64_t given[PROPERTIES]; /* what the program asked for, as it asked */
    size_t given_bytes;
};

/* NULL: a queue that was made before us, or more than we can know. */
struct queue *find_queue(handle key);
void remember_queue(handle key, struct queue *made);
/* The same number for the same device in every process. */
uint64_t device_key(handle device);

#endif
