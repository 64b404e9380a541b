#include "opencl_queues.h"

#include <pthread.h>
#include <string.h>

entry *const *real;
enum { QUEUES = 1024 };

/* Looked up at each launch without a lock: entries appear once complete and stay. One whose queue was released still
 * answers for its events, until its place is needed. */
static struct {
    _Atomic(handle) key;
    struct queue queue;
} queues[QUEUES];
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t queues_made;

static uint32_t first_place(handle key) { return (uint32_t)(((uintptr_t)key >> 4) * 2654435761u) % QUEUES; }

struct queue *find_queue(handle key) {
    for (uint32_t i = 0, at = first_place(key); i < QUEUES; i++, at = (at + 1) % QUEUES) {
        handle there = atomic_load_explicit(&queues[at].key, memory_order_acquire);
        if (there == key) return &queues[at].queue;
        if (!there) return NULL;
    }
    return NULL;
}

/* A place for a queue: its own, if its number was another queue's before; a free one; a released one. */
static int place_for(handle key) {
    int released = -1;
    for (uint32_t i = 0, at = first_place(key); i < QUEUES; i++, at = (at + 1) % QUEUES) {
        handle there = atomic_load(&queues[at].key);
        if (!there || there == key) return (int)at;
        if (released < 0 && atomic_load(&queues[at].queue.references) == 0) released = (int)at;
    }
    return released;
}

void remember_queue(handle key, struct queue *made) {
    pthread_mutex_lock(&queues_lock);
    made->number = queues_made++;
    int at = place_for(key);
    if (at >= 0) {
        queues[at].queue = *made;
        atomic_store_explicit(&queues[at].key, key, memory_order_release);
    }
    pthread_mutex_unlock(&queues_lock);
    if (at < 0) loom_stream_close(made->stream);
}

/* The same number for the same device in every process: its UUID, else its names and its place among its platform's
 * devices. */
uint64_t device_key(handle device) {
    unsigned char text[512] = {0};
    handle parent = NULL, platform = NULL, all[64];
    while (CALL(GET_DEVICE_INFO, info_of *, device, DEVICE_PARENT, sizeof parent, &parent, NULL) == 0 && parent)
        device = parent;
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
