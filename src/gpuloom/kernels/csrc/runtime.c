#define _GNU_SOURCE
#include "runtime.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "region_file.h"

#define LOOK_FOR_DEAD_NS 50000000u

struct loom_stream {
    pthread_mutex_t lock;
    struct loom_queue *queue;
    struct loom_slot *slot;
    int index;
    atomic_uint users;  /* the front end, and each kernel in flight */
    atomic_bool missed; /* launches that nobody needed to know of */
};

static struct {
    const char *region, *priorities, *profile, *record;
    double slowdown, floor;
} set;
static struct loom_region *region;
static FILE *recorded;
static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint streams_opened;

uint64_t loom_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Each kind of trouble once. */
static void say(atomic_flag *said, const char *what, const char *why) {
    if (!atomic_flag_test_and_set(said)) fprintf(stderr, "gpuloom: %s: %s\n", what, why);
}
static atomic_flag said_ungated = ATOMIC_FLAG_INIT, said_profile = ATOMIC_FLAG_INIT, said_priority = ATOMIC_FLAG_INIT;

/* A share between 0 and 1; `otherwise` where it is not set or not one. */
static double share_of(const char *name, double otherwise) {
    const char *text = getenv(name);
    char *end;
    double value = text ? strtod(text, &end) : otherwise;
    return text && (end == text || *end || !(value >= 0 && value <= 1)) ? otherwise : value;
}

static void stop_in_child(void) {
    region = NULL;
    if (recorded) __fpurge(recorded); /* or the child would write our lines once more */
    recorded = NULL;
}

/* GPULOOM_KERNELS_REGION    file of the shared memory; without it nothing is gated
 * GPULOOM_KERNELS_PRIORITY  0 (highest) to 9; with commas: of the first queue, the second, ...; the last for the rest
 * GPULOOM_KERNELS_PROFILE   a profile of this program's kernels
 * GPULOOM_KERNELS_SLOWDOWN  how much lower priorities may slow this program down (0.1: 10 %)
 * GPULOOM_KERNELS_FLOOR     part of the device that higher priorities leave to this program
 * GPULOOM_KERNELS_RECORD    measure: append every kernel to this file, with the process number */
static void settings(void) {
    set.region = getenv("GPULOOM_KERNELS_REGION");
    set.priorities = getenv("GPULOOM_KERNELS_PRIORITY");
    set.profile = getenv("GPULOOM_KERNELS_PROFILE");
    set.record = getenv("GPULOOM_KERNELS_RECORD");
    set.slowdown = share_of("GPULOOM_KERNELS_SLOWDOWN", LOOM_SLOWDOWN_PPM / 1e6);
    set.floor = share_of("GPULOOM_KERNELS_FLOOR", LOOM_FLOOR_PPM / 1e6);
    char text[512];
    if (set.record && *set.record) {
        snprintf(text, sizeof text, "%s.%d", set.record, (int)getpid());
        recorded = fopen(text, "ae");
        if (!recorded) fprintf(stderr, "gpuloom: nothing is measured: %s: %s\n", text, strerror(errno));
    } else if (set.region && *set.region) {
        region = loom_region_open(set.region, text, sizeof text);
        if (!region) say(&said_ungated, "kernels run ungated", text);
    }
    if (recorded || region) pthread_atfork(NULL, NULL, stop_in_child);
}

bool loom_wanted(void) {
    pthread_once(&once, settings);
    return region || recorded;
}

int loom_next_priority(void) {
    unsigned number = atomic_fetch_add(&streams_opened, 1);
    const char *at = set.priorities ? set.priorities : "0";
    for (const char *comma; number > 0 && (comma = strchr(at, ',')); number--) at = comma + 1;
    char *end;
    long priority = strtol(at, &end, 10);
    if (end != at && (*end == 0 || *end == ',') && priority >= 0 && priority <= LOOM_LOWEST) return (int)priority;
    say(&said_priority, "GPULOOM_KERNELS_PRIORITY taken as 9", "expected numbers from 0 to 9, with commas");
    return LOOM_LOWEST;
}

/* Of a profile only its kernels are needed here: kernel, id, launches, mean ns, mean gap ns, ... (see
 * kernels/profile.py). */
bool loom_stream_profile(struct loom_stream *stream, const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) {
        say(&said_profile, path, strerror(errno));
        return false;
    }
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        unsigned long long id, mean_ns, gap_ns;
        if (sscanf(line, "kernel\t%llx\t%*u\t%llu\t%llu", &id, &mean_ns, &gap_ns) != 3) continue;
        pthread_mutex_lock(&stream->lock);
        loom_expect(stream->queue, id, mean_ns, gap_ns);
        pthread_mutex_unlock(&stream->lock);
    }
    free(line);
    fclose(file);
    return true;
}

struct loom_stream *loom_stream_open(uint64_t device, int priority) {
    if (!loom_wanted() || !region) return NULL;
    struct loom_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return NULL;
    char name[LOOM_NAME] = "";
    snprintf(name, sizeof name, "%s", program_invocation_short_name);
    stream->index = loom_claim(region, device, (uint32_t)priority, name);
    if (stream->index < 0 && loom_reap(region)) stream->index = loom_claim(region, device, (uint32_t)priority, name);
    stream->queue = stream->index >= 0 ? loom_queue_new(region, (uint32_t)stream->index) : NULL;
    if (!stream->queue) {
        say(&said_ungated, "kernels run ungated", "more queues or devices than there are slots");
        if (stream->index >= 0) loom_unclaim(region, stream->index);
        free(stream);
        return NULL;
    }
    pthread_mutex_init(&stream->lock, NULL);
    stream->slot = &region->slots[stream->index];
    stream->users = 1;
    atomic_store(&stream->slot->slowdown_ppm, (uint32_t)(set.slowdown * 1e6));
    atomic_store(&stream->slot->floor_ppm, (uint32_t)(set.floor * 1e6));
    if (set.profile && *set.profile) loom_stream_profile(stream, set.profile);
    return stream;
}

static void drop(struct loom_stream *stream) {
    if (atomic_fetch_sub(&stream->users, 1) != 1) return;
    if (region) loom_unclaim(region, stream->index);
    loom_queue_free(stream->queue);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

void loom_stream_close(struct loom_stream *stream) {
    if (stream) drop(stream);
}

void loom_stream_priority(struct loom_stream *stream, uint32_t priority) {
    atomic_store(&stream->slot->priority, priority <= LOOM_LOWEST ? priority : LOOM_LOWEST);
    if (region) loom_ring(region);
}

bool loom_stream_watched(struct loom_stream *stream) {
    if (!stream || !region) return false;
    bool gates = atomic_load_explicit(&region->policy, memory_order_relaxed) != LOOM_SHARE;
    if (gates && loom_company(region, (uint32_t)stream->index) > 0) return true;
    atomic_store_explicit(&stream->missed, true, memory_order_relaxed);
    return false;
}

/* Somebody must look for those who died while nobody waited for them: they still count as company, and as higher. */
static void reap_now_and_then(struct loom_region *shared, uint64_t now) {
    static _Atomic uint64_t next;
    uint64_t due = atomic_load_explicit(&next, memory_order_relaxed);
    if (now >= due && atomic_compare_exchange_strong(&next, &due, now + LOOK_FOR_DEAD_NS)) loom_reap(shared);
}

/* Until the bell rings, until `again`, or until it is time to look for the dead. */
static void sleep_until(struct loom_region *shared, uint32_t bell, uint64_t now, uint64_t again) {
    uint64_t rest = again > now ? again - now : 0;
    if (rest > LOOK_FOR_DEAD_NS) rest = LOOK_FOR_DEAD_NS;
    struct timespec time = {(time_t)(rest / 1000000000u), (long)(rest % 1000000000u)};
    syscall(SYS_futex, &shared->bell, FUTEX_WAIT, bell, &time, NULL, 0);
}

void loom_stream_launch(struct loom_stream *stream, uint64_t kernel) {
    struct loom_region *shared = region;
    uint64_t again, now = loom_now();
    atomic_fetch_add(&stream->users, 1);
    if (shared) reap_now_and_then(shared, now);
    pthread_mutex_lock(&stream->lock);
    if (atomic_load_explicit(&stream->missed, memory_order_relaxed)) {
        atomic_store_explicit(&stream->missed, false, memory_order_relaxed);
        loom_missed(stream->queue);
    }
    bool go = loom_ask(stream->queue, kernel, now, &again);
    while (!go && shared) {
        uint32_t bell = atomic_load(&shared->bell);
        atomic_store(&shared->sleepers, 1); /* before asking: what changes after the answer will ring */
        now = loom_now();
        go = loom_ask(stream->queue, kernel, now, &again);
        if (go) break;
        pthread_mutex_unlock(&stream->lock);
        reap_now_and_then(shared, now);
        sleep_until(shared, bell, now, again);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
}

void loom_stream_launch_now(struct loom_stream *stream, uint64_t kernel) {
    atomic_fetch_add(&stream->users, 1);
    pthread_mutex_lock(&stream->lock);
    loom_go(stream->queue, kernel, loom_now());
    pthread_mutex_unlock(&stream->lock);
}

void loom_stream_failed(struct loom_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    bool wake = loom_failed(stream->queue, loom_now());
    pthread_mutex_unlock(&stream->lock);
    if (wake && region) loom_ring(region);
    drop(stream);
}

void loom_stream_ended(struct loom_stream *stream, uint64_t kernel, uint64_t ran_ns) {
    pthread_mutex_lock(&stream->lock);
    bool wake = loom_ended(stream->queue, kernel, ran_ns, loom_now());
    pthread_mutex_unlock(&stream->lock);
    if (wake && region) loom_ring(region);
    drop(stream);
}

bool loom_recording(void) { return recorded != NULL; }

void loom_record_device(const char *name) {
    pthread_mutex_lock(&record_lock);
    if (recorded) fprintf(recorded, "device\t%s\n", name);
    pthread_mutex_unlock(&record_lock);
}

void loom_record(uint32_t queue, uint64_t kernel, const char *name, uint32_t dims, const uint64_t *grid,
                 const uint64_t *block, uint64_t launched_ns, uint64_t ended_ns, uint64_t ran_ns, bool after_wait) {
    char sizes[2][80] = {"", ""};
    for (uint32_t i = 0, at[2] = {0, 0}; i < dims && i < 3; i++) {
        at[0] += (uint32_t)snprintf(sizes[0] + at[0], sizeof sizes[0] - at[0], "%s%llu", i ? "x" : "",
                                    (unsigned long long)grid[i]);
        if (block)
            at[1] += (uint32_t)snprintf(sizes[1] + at[1], sizeof sizes[1] - at[1], "%s%llu", i ? "x" : "",
                                        (unsigned long long)block[i]);
    }
    pthread_mutex_lock(&record_lock);
    if (recorded)
        fprintf(recorded, "%u\t%016llx\t%llu\t%llu\t%llu\t%d\t%s\t%s\t%s\n", queue, (unsigned long long)kernel,
                (unsigned long long)launched_ns, (unsigned long long)ended_ns, (unsigned long long)ran_ns, after_wait,
                *sizes[0] ? sizes[0] : "-", *sizes[1] ? sizes[1] : "-", name);
    pthread_mutex_unlock(&record_lock);
}
