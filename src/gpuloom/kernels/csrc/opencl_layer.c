/* The OpenCL front end: a layer, OpenCL's official way to stand between a program and its runtime (OPENCL_LAYERS=this
 * file).
 *
 * Kernels, tasks and buffer copies ask before they are enqueued, and tell when they have ended. Nothing else is
 * touched, but for profiling: it is switched on for every queue, since only the device knows how long a kernel ran; and
 * hidden again from programs that did not ask for it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_queues.h"

static entry *ours[TABLE];
static atomic_uint waits; /* how often the program has waited for a result; tells replay what a launch depended on */

/* Queues */

static void watch(handle made, handle device, bool hides_profiling, const uint64_t *given, size_t count) {
    struct queue queue = {.hides_profiling = hides_profiling, .references = 1, .given_bytes = count * sizeof *given};
    if (count) memcpy(queue.given, given, queue.given_bytes);
    queue.stream = loom_stream_open(device_key(device), loom_next_priority());
    char name[SHOWN_NAME] = "?";
    if (loom_recording() && CALL(GET_DEVICE_INFO, info_of *, device, DEVICE_NAME, sizeof name, name, NULL) == 0)
        loom_record_device(name);
    remember_queue(made, &queue);
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
    if (at < pairs)
        changed[2 * at + 1] |= PROFILE;
    else
        memcpy(changed + 2 * pairs, (uint64_t[]){QUEUE_PROPERTIES, PROFILE, 0}, 3 * sizeof *changed);
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
    struct queue *known = find_queue(queue);
    if (known) atomic_fetch_add(&known->references, 1);
    return CALL(RETAIN_QUEUE, with_handle *, queue);
}

static status release_queue(handle queue) {
    struct queue *known = find_queue(queue);
    if (known && atomic_fetch_sub(&known->references, 1) == 1) {
        loom_stream_close(known->stream);
        known->stream = NULL;
    }
    return CALL(RELEASE_QUEUE, with_handle *, queue);
}

static status get_queue_info(handle queue, uint32_t what, size_t size, void *value, size_t *size_out) {
    struct queue *known = find_queue(queue);
    bool hides = known && known->hides_profiling;
    if (hides && what == QUEUE_PROPERTIES_ARRAY && CALL(GET_QUEUE_INFO, info_of *, queue, what, 0, NULL, NULL) == 0) {
        if (value && size < known->given_bytes) return INVALID_VALUE;
        if (value) memcpy(value, known->given, known->given_bytes);
        if (size_out) *size_out = known->given_bytes;
        return 0;
    }
    status result = CALL(GET_QUEUE_INFO, info_of *, queue, what, size, value, size_out);
    if (result == 0 && hides && what == QUEUE_PROPERTIES && value) *(uint64_t *)value &= ~(uint64_t)PROFILE;
    return result;
}

static status get_profiling(handle event, uint32_t what, size_t size, void *value, size_t *size_out) {
    handle queue = NULL;
    CALL(GET_EVENT_INFO, info_of *, event, EVENT_QUEUE, sizeof queue, &queue, NULL);
    struct queue *known = queue ? find_queue(queue) : NULL;
    if (known && known->hides_profiling) return PROFILING_NOT_AVAILABLE;
    return CALL(GET_PROFILING, info_of *, event, what, size, value, size_out);
}

/* Launches */

struct launch {
    struct loom_stream *stream;
    uint64_t kernel;
    handle own_event; /* to release: the program did not ask for one */
    /* For a record only: */
    uint64_t launched_ns, grid[3], block[3];
    uint32_t queue, dims;
    bool after_wait, has_block;
    char name[SHOWN_NAME];
};

static _Thread_local bool in_callback; /* of the program: its thread may be the one that would tell us of ends */

/* Wait for our turn. NULL: nobody needs to know of this launch. A kernel is known by `kernel`, or by `name` if it is a
 * copy. */
static struct launch *before(handle key, handle kernel, const char *name, uint32_t dims, const uint64_t *grid,
                             const uint64_t *block) {
    struct queue *queue = find_queue(key);
    if (!queue || (!loom_recording() && !loom_stream_watched(queue->stream))) return NULL;
    struct launch *launch = malloc(sizeof *launch);
    if (!launch) return NULL;
    char own_name[LONGEST_NAME] = "?";
    if (kernel && CALL(GET_KERNEL_INFO, info_of *, kernel, KERNEL_NAME, sizeof own_name, own_name, NULL) != 0)
        strcpy(own_name, "?");
    if (kernel) name = own_name;
    launch->stream = queue->stream;
    launch->kernel = loom_kernel_id(name, dims, grid, block);
    launch->own_event = NULL;
    if (!loom_recording()) {
        (in_callback ? loom_stream_launch_now : loom_stream_launch)(launch->stream, launch->kernel);
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
        loom_record(launch->queue, launch->kernel, launch->name, launch->dims, launch->grid,
                    launch->has_block ? launch->block : NULL, launch->launched_ns, loom_now(), ran_ns,
                    launch->after_wait);
    else
        loom_stream_ended(launch->stream, launch->kernel, ran_ns);
    if (launch->own_event) CALL(RELEASE_EVENT, with_handle *, launch->own_event);
    free(launch);
}

typedef void callback(handle, status, void *);
typedef status set_callback(handle, int32_t, callback *, void *);

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
    if (CALL(SET_EVENT_CALLBACK, set_callback *, event, COMPLETE, on_end, launch) != 0) end(launch, 0);
    CALL(FLUSH, with_handle *, queue);
    return result;
}

/* The one shape of all enqueue functions: their arguments but the event, which we need even if the program does not. */
#define ENQUEUE(index, type, queue, launch_expression, event, ...) \
    struct launch *launch = launch_expression;                     \
    handle own = NULL, *out = launch && !(event) ? &own : (event); \
    status result = CALL(index, type *, __VA_ARGS__, out);         \
    result = after(launch, result, queue, out ? *out : NULL, !(event))

static status enqueue_kernel(handle queue, handle kernel, uint32_t dims, const size_t *offset, const size_t *grid,
                             const size_t *block, uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                           const handle *, handle *);
    bool odd = !grid || dims == 0 || dims > 3; /* the runtime refuses it */
    ENQUEUE(ENQUEUE_KERNEL, enqueue, queue,
            odd ? NULL : before(queue, kernel, NULL, dims, (const uint64_t *)grid, (const uint64_t *)block), event,
            queue, kernel, dims, offset, grid, block, waits_count, wait_list);
    return result;
}

static status enqueue_task(handle queue, handle kernel, uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, const handle *, handle *);
    ENQUEUE(ENQUEUE_TASK, enqueue, queue, before(queue, kernel, NULL, 1, (uint64_t[]){1}, (uint64_t[]){1}), event,
            queue, kernel, waits_count, wait_list);
    return result;
}

static status read_buffer(handle queue, handle buffer, uint32_t blocking, size_t offset, size_t size, void *to,
                          uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, size_t, size_t, void *, uint32_t, const handle *, handle *);
    ENQUEUE(READ_BUFFER, enqueue, queue, before(queue, NULL, "(read)", 1, (uint64_t[]){size}, NULL), event, queue,
            buffer, blocking, offset, size, to, waits_count, wait_list);
    if (blocking) atomic_fetch_add(&waits, 1); /* the program has now waited */
    return result;
}

static status write_buffer(handle queue, handle buffer, uint32_t blocking, size_t offset, size_t size, const void *from,
                           uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, uint32_t, size_t, size_t, const void *, uint32_t, const handle *, handle *);
    ENQUEUE(WRITE_BUFFER, enqueue, queue, before(queue, NULL, "(write)", 1, (uint64_t[]){size}, NULL), event, queue,
            buffer, blocking, offset, size, from, waits_count, wait_list);
    if (blocking) atomic_fetch_add(&waits, 1); /* the program has now waited */
    return result;
}

static status copy_buffer(handle queue, handle from, handle to, size_t from_offset, size_t to_offset, size_t size,
                          uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, handle, size_t, size_t, size_t, uint32_t, const handle *, handle *);
    ENQUEUE(COPY_BUFFER, enqueue, queue, before(queue, NULL, "(copy)", 1, (uint64_t[]){size}, NULL), event, queue, from,
            to, from_offset, to_offset, size, waits_count, wait_list);
    return result;
}

static status fill_buffer(handle queue, handle buffer, const void *pattern, size_t pattern_size, size_t offset,
                          size_t size, uint32_t waits_count, const handle *wait_list, handle *event) {
    typedef status enqueue(handle, handle, const void *, size_t, size_t, size_t, uint32_t, const handle *, handle *);
    ENQUEUE(FILL_BUFFER, enqueue, queue, before(queue, NULL, "(fill)", 1, (uint64_t[]){size}, NULL), event, queue,
            buffer, pattern, pattern_size, offset, size, waits_count, wait_list);
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

/* The program's own callbacks, with a mark on their thread while they run. */
struct called {
    callback *theirs;
    void *data;
};

static void call(handle event, status reached, void *data) {
    struct called called = *(struct called *)data;
    bool outer = in_callback;
    free(data);
    in_callback = true;
    called.theirs(event, reached, called.data);
    in_callback = outer;
}

static status set_event_callback(handle event, int32_t when, callback *theirs, void *data) {
    struct called *called = theirs ? malloc(sizeof *called) : NULL;
    if (!called) return CALL(SET_EVENT_CALLBACK, set_callback *, event, when, theirs, data);
    *called = (struct called){theirs, data};
    status result = CALL(SET_EVENT_CALLBACK, set_callback *, event, when, call, called);
    if (result != 0) free(called);
    return result;
}

/* The layer */

/* For a program that knows us and has tenants of its own: the priority and the profile of one of its queues. */
LOOM_API status gpuloom_queue_priority(handle queue, uint32_t priority);
status gpuloom_queue_priority(handle queue, uint32_t priority) {
    struct queue *known = find_queue(queue);
    if (!known || !known->stream) return INVALID_VALUE;
    loom_stream_priority(known->stream, priority);
    return 0;
}

LOOM_API status gpuloom_queue_profile(handle queue, const char *path);
status gpuloom_queue_profile(handle queue, const char *path) {
    struct queue *known = find_queue(queue);
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

/* Callbacks may come after the program has closed OpenCL: what they call must still be there. */
static void keep_loaded(entry *function) {
    union {
        entry *function;
        void *data;
    } of = {function};
    Dl_info library;
    if (dladdr(of.data, &library)) dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

LOOM_API status clInitLayer(uint32_t count, entry *const *target, uint32_t *count_out, entry *const **layer_out);
status clInitLayer(uint32_t count, entry *const *target, uint32_t *count_out, entry *const **layer_out) {
    if (!target || !count_out || !layer_out || count < NEEDED) return INVALID_VALUE;
    static const struct {
        enum table index;
        entry *function;
    } taken[] = {
        {CREATE_QUEUE, (entry *)create_queue},
        {CREATE_QUEUE_WITH_PROPERTIES, (entry *)create_queue_with},
        {RETAIN_QUEUE, (entry *)retain_queue},
        {RELEASE_QUEUE, (entry *)release_queue},
        {GET_QUEUE_INFO, (entry *)get_queue_info},
        {GET_PROFILING, (entry *)get_profiling},
        {ENQUEUE_KERNEL, (entry *)enqueue_kernel},
        {ENQUEUE_TASK, (entry *)enqueue_task},
        {READ_BUFFER, (entry *)read_buffer},
        {WRITE_BUFFER, (entry *)write_buffer},
        {COPY_BUFFER, (entry *)copy_buffer},
        {FILL_BUFFER, (entry *)fill_buffer},
        {FINISH, (entry *)finish},
        {WAIT_FOR_EVENTS, (entry *)wait_for_events},
        {SET_EVENT_CALLBACK, (entry *)set_event_callback},
    };
    real = target;
    if (loom_wanted()) keep_loaded(target[FLUSH]);
    uint32_t entries = count < TABLE ? count : TABLE;
    memcpy(ours, target, entries * sizeof *ours);
    for (size_t i = 0; loom_wanted() && i < sizeof taken / sizeof *taken; i++)
        if (target[taken[i].index]) ours[taken[i].index] = taken[i].function;
    *count_out = entries;
    *layer_out = ours;
    return 0;
}

/* Newer loaders ignore a layer without these two. */
LOOM_API status clInitLayerWithProperties(uint32_t count, entry *const *target, uint32_t *count_out,
                                          entry *const **layer_out, const void *properties);
status clInitLayerWithProperties(uint32_t count, entry *const *target, uint32_t *count_out, entry *const **layer_out,
                                 const void *properties) {
    (void)properties;
    return clInitLayer(count, target, count_out, layer_out);
}

LOOM_API status clDeinitLayer(void);
status clDeinitLayer(void) { return 0; }
