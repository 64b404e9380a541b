/* The OpenCL front end: a layer, OpenCL's official way to stand between a program and its runtime (OPENCL_LAYERS=this file).
 *
 * Kernels, tasks and buffer copies ask before they are enqueued, and tell when they have ended. Nothing else is touched, but for
 * profiling: it is switched on for every queue, since only the device knows how long a kernel ran; and hidden again from
 * programs that did not ask for it.
 *
 * The dispatch table's order is part of the binary interface, so its entries are numbers here and no OpenCL header is needed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

typedef void *handle;
typedef int32_t status;
typedef void entry(void);

enum table {
    GET_PLATFORM_INFO = 1, GET_DEVICE_IDS = 2, GET_DEVICE_INFO = 3, CREATE_QUEUE = 9, RETAIN_QUEUE = 10, RELEASE_QUEUE = 11, GET_QUEUE_INFO = 12,
    GET_KERNEL_INFO = 39, WAIT_FOR_EVENTS = 41, GET_EVENT_INFO = 42, RELEASE_EVENT = 44, GET_PROFILING = 45, FLUSH = 46,
    FINISH = 47, READ_BUFFER = 48, WRITE_BUFFER = 49, COPY_BUFFER = 50, ENQUEUE_KERNEL = 59, ENQUEUE_TASK = 60,
    SET_EVENT_CALLBACK = 81, FILL_BUFFER = 102, CREATE_QUEUE_WITH_PROPERTIES = 123, NEEDED = 124, TABLE = 256
};

enum {
    COMPLETE = 0, OUT_OF_HOST_MEMORY = -6, PROFILING_NOT_AVAILABLE = -7, INVALID_VALUE = -30,
    PLATFORM_NAME = 0x0902, DEVICE_NAME = 0x102B, DEVICE_PLATFORM = 0x1031, DEVICE_PARENT = 0x1042, DEVICE_UUID = 0x106A,
    QUEUE_PROPERTIES = 0x1093, QUEUE_PROPERTIES_ARRAY = 0x1098, KERNEL_NAME = 0x1190,
    EVENT_QUEUE = 0x11D0, PROFILING_START = 0x1282, PROFILING_END = 0x1283, LAYER_API = 0x4240, LAYER_NAME = 0x4241
};
#define PROFILE 2u /* bit of a queue's properties */
#define ANY_DEVICE 0xFFFFFFFFu

static entry *const *real;           /* the runtime below us */
static entry *ours[TABLE];
static atomic_uint waits;            /* how often the program has waited for a result; tells replay what a launch depended on */

#define CALL(index, type, ...) (((type)real[index])(__VA_ARGS__))
typedef status info_of(handle, uint32_t, size_t, void *, size_t *);
typedef status with_handle(handle);

/* Queues --------------------------------------------------------------------------------------------------------------------- */

enum { QUEUES = 1024, PROPERTIES = 32 };

struct queue {
    struct loom_stream *stream;
    uint32_t number;
    bool hides_profiling;
    atomic_uint waits_seen, references;
    uint64_t given[PROPERTIES]; /* what the program asked for, as it asked */
    size_t given_bytes;
};

/* Looked up at each launch without a lock: entries appear once complete, and a program that launches on a queue keeps it. */
static struct {
    _Atomic(handle) key;
    struct queue *_Atomic queue;
} queues[QUEUES];
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static char gone; /* marks an entry whose queue was released */
static uint32_t queues_made;

static uint32_t first_place(handle key) { return (uint32_t)(((uintptr_t)key >> 4) * 2654435761u) % QUEUES; }

static struct queue *find(handle key) {
    for (uint32_t i = 0, at = first_place(key); i < QUEUES; i++, at = (at + 1) % QUEUES) {
        handle there = atomic_load_explicit(&queues[at].key, memory_order_acquire);
        if (there == key) return atomic_load_explicit(&queues[at].queue, memory_order_acquire);
        if (!there) return NULL;
    }
    return NULL;
}

static void remember(handle key, struct queue *queue) {
    pthread_mutex_lock(&queues_lock);
    queue->number = queues_made++;
    for (uint32_t i = 0, at = first_place(key); i < QUEUES; i++, at = (at + 1) % QUEUES) {
        handle there = atomic_load(&queues[at].key);
        if (there && there != &gone) continue;
        atomic_store(&queues[at].queue, queue);
        atomic_store_explicit(&queues[at].key, key, memory_order_release);
        pthread_mutex_unlock(&queues_lock);
        return;
    }
    pthread_mutex_unlock(&queues_lock);
    loom_stream_close(queue->stream);
    free(queue);
}

static void forget(handle key) {
    struct queue *queue = NULL;
    pthread_mutex_lock(&queues_lock);
    for (uint32_t i = 0, at = first_place(key); i < QUEUES; i++, at = (at + 1) % QUEUES) {
        handle there = atomic_load(&queues[at].key);
        if (!there) break;
        if (there != key) continue;
        queue = atomic_exchange(&queues[at].queue, NULL);
        atomic_store(&queues[at].key, &gone);
        break;
    }
    pthread_mutex_unlock(&queues_lock);
    if (queue) loom_stream_close(queue->stream);
    free(queue);
}

/* The same number for the same device in every process: its UUID, else its names and its place among its platform's devices. */
static uint64_t device_key(handle device) {
    unsigned char text[512] = {0};
    handle parent = NULL, platform = NULL, all[64];
    while (CALL(GET_DEVICE_INFO, info_of *, device, DEVICE_PARENT, sizeof parent, &parent, NULL) == 0 && parent) device = parent;
    uint64_t place = 0;
    if (CALL(GET_DEVICE_INFO, info_of *, device, DEVICE_UUID, 16, text, NULL) != 0) {
        uint32_t count = 0;
        CALL(GET_DEVICE_INFO, info_of *, device, DEVICE_PLATFORM, sizeof platform, &platform, NULL);
        CALL(GET_DEVICE_INFO, info_of *, device, DEVICE_NAME, 255, text, NULL);
        CALL(GET_PLATFORM_INFO, info_of *, platform, PLATFORM_NAME, 255, text + strlen((char *)text), NULL);
        typedef status get_ids(handle, uint64_t, uint32_t, handle *, uint32_t *);
        CALL(GET_DEVICE_IDS, get_ids *, platform, ANY_DEVICE, 64, all, &count);
        while (place < count && place < 64 && all[place] != device) place++;
    } else
        for (int i = 0; i < 16; i++) text[i] = (unsigned char)(text[i] | 0x80); /* no end of a string inside */
    return loom_kernel_id((char *)text, 1, &place, NULL);
}

static void watch(handle made, handle device, bool hides_profiling, const uint64_t *given, size_t count) {
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue) return;
    queue->hides_profiling = hides_profiling;
    queue->references = 1;
    queue->given_bytes = count * sizeof *given;
    if (count) memcpy(queue->given, given, queue->given_bytes);
    queue->stream = loom_stream_open(device_key(device), loom_next_priority());
    remember(made, queue);
}

static handle create_queue(handle context, handle device, uint64_t properties, status *error) {
    typedef handle create(handle, handle, uint64_t, status *);
    handle made = CALL(CREATE_QUEUE, create *, context, device, properties | PROFILE, error);
    bool hides = made && !(properties & PROFILE);
    if (!made) made = CALL(CREATE_QUEUE, create *, context, device, properties, error);
    if (made) watch(made, device, hides, NULL, 0);
    return made;
}

static handle create_queue_with(handle context, handle device, const uint64_t *properties, status *error) {
    typedef handle create(handle, handle, const uint64_t *, status *);
    uint64_t changed[PROPERTIES + 2] = {QUEUE_PROPERTIES, PROFILE, 0};
    size_t pairs = 0;
    while (properties && properties[2 * pairs] && 2 * pairs < PROPERTIES - 2) pairs++;
    size_t at = 0;
    while (at < pairs && properties[2 * at] != QUEUE_PROPERTIES) at++;
    bool asked = at < pairs && (properties[2 * at + 1] & PROFILE);
    if (pairs) memcpy(changed, properties, 2 * pairs * sizeof *changed);
    if (at < pairs) changed[2 * at + 1] |= PROFILE;
    else memcpy(changed + 2 * pairs, (uint64_t[]){QUEUE_PROPERTIES, PROFILE, 0}, 3 * sizeof *changed);
    bool complete = !properties || properties[2 * pairs] == 0; /* we saw its end: it can be changed */
    if (at < pairs) changed[2 * pairs] = 0;
    handle made = complete ? CALL(CREATE_QUEUE_WITH_PROPERTIES, create *, context, device, changed, error) : NULL;
    bool hides = made && !asked;
    if (!made) made = CALL(CREATE_QUEUE_WITH_PROPERTIES, create *, context, device, properties, error);
    if (made) watch(made, device, hides, properties, properties ? 2 * pairs + 1 : 0);
    return made;
}

/* Counted here, since a runtime's own count includes what it holds itself. */
static status retain_queue(handle queue) {
    struct queue *known = find(queue);
    if (known) atomic_fetch_add(&known->references, 1);
    return CALL(RETAIN_QUEUE, with_handle *, queue);
}

static status release_queue(handle queue) {
    struct queue *known = find(queue);
    if (known && atomic_fetch_sub(&known->references, 1) == 1) forget(queue);
    return CALL(RELEASE_QUEUE, with_handle *, queue);
}

static status get_queue_info(handle queue, uint32_t what, size_t size, void *value, size_t *size_out) {
    struct queue *known = find(queue);
    if (known && known->hides_profiling && what == QUEUE_PROPERTIES_ARRAY) {
        if (value && size < known->given_bytes) return INVALID_VALUE;
        if (value) memcpy(value, known->given, known->given_bytes);
        if (size_out) *size_out = known->given_bytes;
        return 0;
    }
    status result = CALL(GET_QUEUE_INFO, info_of *, queue, what, size, value, size_out);
    if (result == 0 && known && known->hides_profiling && what == QUEUE_PROPERTIES && value) *(uint64_t *)value &= ~(uint64_t)PROFILE;
    return result;
}

static status get_profiling(handle event, uint32_t what, size_t size, void *value, size_t *size_out) {
    handle queue = NULL;
    CALL(GET_EVENT_INFO, info_of *, event, EVENT_QUEUE, sizeof queue, &queue, NULL);
    struct queue *known = queue ? find(queue) : NULL;
    if (known && known->hides_profiling) return PROFILING_NOT_AVAILABLE;
    return CALL(GET_PROFILING, info_of *, event, what, size, value, size_out);
}

/* Launches ------------------------------------------------------------------------------------------------------------------- */

struct launch {
    struct loom_stream *stream;
    uint64_t kernel;
    handle own_event; /* to release: the program did not ask for one */
    /* For a record only: */
    uint64_t launched_ns, grid[3], block[3];
    uint32_t queue, dims;
    bool after_wait, has_block;
    char name[192];
};

/* Wait for our turn. NULL: nobody needs to know of this launch. */
static struct launch *before(handle key, const char *name, uint32_t dims, const uint64_t *grid, const uint64_t *block) {
    struct queue *queue = find(key);
    if (!queue || (!loom_recording() && !loom_stream_watched(queue->stream))) return NULL;
    struct launch *launch = malloc(sizeof *launch);
    if (!launch) return NULL;
    launch->stream = queue->stream;
    launch->kernel = loom_kernel_id(name, dims, grid, block);
    launch->own_event = NULL;
    if (!loom_recording()) {
        loom_stream_launch(launch->stream, launch->kernel);
        return launch;
    }
    unsigned now = atomic_load(&waits);
    launch->after_wait = atomic_exchange(&queue->waits_seen, now) != now;
    launch->queue = queue->number;
    launch->dims = dims < 3 ? dims : 3;
    launch->has_block = block != NULL;
    memcpy(launch->grid, grid, launch->dims * sizeof *grid);
    if (block) memcpy(launch->block, block, launch->dims * sizeof *block);
    strncpy(launch->name, name, sizeof launch->name - 1);
    launch->name[sizeof launch->name - 1] = 0;
    launch->launched_ns = loom_now();
    return launch;
}

static void end(struct launch *launch, uint64_t ran_ns) {
    if (loom_recording())
        loom_record(launch->queue, launch->kernel, launch->name, launch->dims, launch->grid, launch->has_block ? launch->block : NULL,
                    launch->launched_ns, loom_now(), ran_ns, launch->after_wait);
    else
        loom_stream_ended(launch->stream, launch->kernel, ran_ns);
    if (launch->own_event) CALL(RELEASE_EVENT, with_handle *, launch->own_event);
    free(launch);
}

static void on_end(handle event, status reached, void *data) {
    uint64_t start = 0, finish = 0;
    bool timed = reached == COMPLETE && CALL(GET_PROFILING, info_of *, event, PROFILING_START, 8, &start, NULL) == 0 &&
                 CALL(GET_PROFILING, info_of *, event, PROFILING_END, 8, &finish, NULL) == 0;
    end(data, timed && finish > start ? finish - start : 0);
}

/* Wherever the launch went, the program gets what the runtime said. */
static status after(struct launch *launch, status result, handle queue, handle event, bool own) {
    if (!launch) return result;
    if (result != 0) {
        if (!loom_recording()) loom_stream_failed(launch->stream);
        free(launch);
        return result;
    }
    if (own) launch->own_event = event;
    typedef status set_callback(handle, int32_t, void (*)(handle, status, void *), void *);
    if (CALL(SET_EVENT_CALLBACK, set_callback *, event, COMPLETE, on_end, launch) != 0) end(launch, 0);
    CALL(FLUSH, with_handle *, queue);
    return result;
}

/* The one shape of all enqueue functions: their arguments but the event, which we need even if the program does not. */
#define ENQUEUE(index, type, queue, launch_expression, event, ...)                                            \
    struct launch *launch = launch_expression;                                                                \
    handle own = NULL, *out = launch && !(event) ? &own : (event);                                            \
    status result = CALL(index, type *, __VA_ARGS__, out);                                                    \
    result = after(launch, result, queue, out ? *out : NULL, !(event))

static const char *name_of(handle kernel, char name[192]) {
    if (CALL(GET_KERNEL_INFO, info_of *, kernel, KERNEL_NAME, 192, name, NULL) != 0) strcpy(name, "?");
    return name;
}

static status enqueue_kernel(handle queue, handle kernel, uint32_t dims, const size_t *offset, const size_t *grid, const size_t *block,
                             uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t, const handle *, handle *);
    char name[192];
    bool odd = !grid || dims == 0 || dims > 3; /* the runtime refuses it */
    ENQUEUE(ENQUEUE_KERNEL, enqueue, queue, odd ? NULL : before(queue, name_of(kernel, name), dims, (const uint64_t *)grid, (const uint64_t *)block),
            event, queue, kernel, dims, offset, grid, block, waits_count, wait_list);
    return result;
}

static status enqueue_task(handle queue, handle kernel, uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, const handle *, handle *);
    char name[192];
    ENQUEUE(ENQUEUE_TASK, enqueue, queue, before(queue, name_of(kernel, name), 1, (uint64_t[]){1}, (uint64_t[]){1}), event, queue, kernel,
            waits_count, wait_list);
    return result;
}

static status read_buffer(handle queue, handle buffer, uint32_t blocking, size_t offset, size_t size, void *to, uint32_t waits_count,
                          const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, size_t, size_t, void *, uint32_t, const handle *, handle *);
    ENQUEUE(READ_BUFFER, enqueue, queue, before(queue, "(read)", 1, (uint64_t[]){size}, NULL), event, queue, buffer, blocking, offset, size, to, waits_count, wait_list);
    if (blocking) atomic_fetch_add(&waits, 1); /* the program has now waited */
    return result;
}

static status write_buffer(handle queue, handle buffer, uint32_t blocking, size_t offset, size_t size, const void *from, uint32_t waits_count,
                           const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, size_t, size_t, const void *, uint32_t, const handle *, handle *);
    ENQUEUE(WRITE_BUFFER, enqueue, queue, before(queue, "(write)", 1, (uint64_t[]){size}, NULL), event, queue, buffer, blocking, offset, size, from, waits_count, wait_list);
    if (blocking) atomic_fetch_add(&waits, 1); /* the program has now waited */
    return result;
}

static status copy_buffer(handle queue, handle from, handle to, size_t from_offset, size_t to_offset, size_t size, uint32_t waits_count,
                          const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, handle, size_t, size_t, size_t, uint32_t, const handle *, handle *);
    ENQUEUE(COPY_BUFFER, enqueue, queue, before(queue, "(copy)", 1, (uint64_t[]){size}, NULL), event, queue, from, to, from_offset, to_offset,
            size, waits_count, wait_list);
    return result;
}

static status fill_buffer(handle queue, handle buffer, const void *pattern, size_t pattern_size, size_t offset, size_t size,
                          uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, const void *, size_t, size_t, size_t, uint32_t, const handle *, handle *);
    ENQUEUE(FILL_BUFFER, enqueue, queue, before(queue, "(fill)", 1, (uint64_t[]){size}, NULL), event, queue, buffer, pattern, pattern_size,
            offset, size, waits_count, wait_list);
    return result;
}

static status finish(handle queue) {
    status result = CALL(FINISH, with_handle *, queue);
    atomic_fetch_add(&waits, 1);
    return result;
}

static status wait_for_events(uint32_t count, const handle *events) {
    typedef status wait(uint32_t, const handle *);
    status result = CALL(WAIT_FOR_EVENTS, wait *, count, events);
    atomic_fetch_add(&waits, 1);
    return result;
}

/* The layer ------------------------------------------------------------------------------------------------------------------- */

/* For a program that knows us and has tenants of its own: the priority and the profile of one of its queues. */
LOOM_API status gpuloom_queue_priority(handle queue, uint32_t priority);
status gpuloom_queue_priority(handle queue, uint32_t priority) {
    struct queue *known = find(queue);
    if (!known || !known->stream) return INVALID_VALUE;
    loom_stream_priority(known->stream, priority);
    return 0;
}

LOOM_API status gpuloom_queue_profile(handle queue, const char *path);
status gpuloom_queue_profile(handle queue, const char *path) {
    struct queue *known = find(queue);
    return known && known->stream && loom_stream_profile(known->stream, path) ? 0 : INVALID_VALUE;
}

LOOM_API status clGetLayerInfo(uint32_t what, size_t size, void *value, size_t *size_out);
status clGetLayerInfo(uint32_t what, size_t size, void *value, size_t *size_out) {
    static const uint32_t version = 100;
    static const char name[] = "gpuloom";
    if (what != LAYER_API && what != LAYER_NAME) return INVALID_VALUE;
    const void *answer = what == LAYER_API ? (const void *)&version : name;
    size_t bytes = what == LAYER_API ? sizeof version : sizeof name;
    if (value && size < bytes) return INVALID_VALUE;
    if (value) memcpy(value, answer, bytes);
    if (size_out) *size_out = bytes;
    return 0;
}

LOOM_API status clInitLayer(uint32_t count, entry *const *target, uint32_t *count_out, entry *const **layer_out);
status clInitLayer(uint32_t count, entry *const *target, uint32_t *count_out, entry *const **layer_out) {
    if (!target || !count_out || !layer_out || count < NEEDED) return INVALID_VALUE;
    static const struct {
        enum table index;
        entry *function;
    } taken[] = {
        {CREATE_QUEUE, (entry *)create_queue}, {CREATE_QUEUE_WITH_PROPERTIES, (entry *)create_queue_with},
        {RETAIN_QUEUE, (entry *)retain_queue}, {RELEASE_QUEUE, (entry *)release_queue}, {GET_QUEUE_INFO, (entry *)get_queue_info}, {GET_PROFILING, (entry *)get_profiling},
        {ENQUEUE_KERNEL, (entry *)enqueue_kernel}, {ENQUEUE_TASK, (entry *)enqueue_task}, {READ_BUFFER, (entry *)read_buffer},
        {WRITE_BUFFER, (entry *)write_buffer}, {COPY_BUFFER, (entry *)copy_buffer}, {FILL_BUFFER, (entry *)fill_buffer},
        {FINISH, (entry *)finish}, {WAIT_FOR_EVENTS, (entry *)wait_for_events},
    };
    real = target;
    uint32_t entries = count < TABLE ? count : TABLE;
    memcpy(ours, target, entries * sizeof *ours);
    for (size_t i = 0; loom_wanted() && i < sizeof taken / sizeof *taken; i++)
        if (target[taken[i].index]) ours[taken[i].index] = taken[i].function;
    *count_out = entries;
    *layer_out = ours;
    return 0;
}

/* Newer loaders ignore a layer without these two. */
LOOM_API status clInitLayerWithProperties(uint32_t count, entry *const *target, uint32_t *count_out, entry *const **layer_out, const void *properties);
status clInitLayerWithProperties(uint32_t count, entry *const *target, uint32_t *count_out, entry *const **layer_out, const void *properties) {
    (void)properties;
    return clInitLayer(count, target, count_out, layer_out);
}

LOOM_API status clDeinitLayer(void);
status clDeinitLayer(void) { return 0; }
