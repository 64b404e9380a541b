/* Many streams in many threads and processes, for the sanitizers and for counting: stress FILE PROCESSES THREADS
 * LAUNCHES
 *
 * The device is a mutex that all processes share, with a counter behind it: a kernel adds one. Every stream has a
 * worker of its own that runs its kernels in order and reports their end, as a runtime's callback thread does. Policies
 * and priorities change all the while, some launches fail. At the end every count must be what was launched, and
 * nothing may be left. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region_file.h"
#include "runtime.h"

struct device {
    pthread_mutex_t lock;
    long ran;
};

struct tenant {
    struct device *device;
    struct loom_stream *stream;
    unsigned seed;
    int launches;
    long expected;
    /* The stream's queue: kernels launched, run by the worker in order. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int queued, done;
    bool closed;
};

static void *work(void *data) {
    struct tenant *tenant = data;
    for (;;) {
        pthread_mutex_lock(&tenant->lock);
        while (tenant->queued == tenant->done && !tenant->closed) pthread_cond_wait(&tenant->changed, &tenant->lock);
        bool over = tenant->queued == tenant->done;
        pthread_mutex_unlock(&tenant->lock);
        if (over) return NULL;
        pthread_mutex_lock(&tenant->device->lock);
        uint64_t start = loom_now();
        tenant->device->ran++;
        while (loom_now() - start < 3000) {
        }
        pthread_mutex_unlock(&tenant->device->lock);
        loom_stream_ended(tenant->stream, (uint64_t)(tenant->done % 5 + 1), loom_now() - start);
        pthread_mutex_lock(&tenant->lock);
        tenant->done++;
        pthread_cond_broadcast(&tenant->changed);
        pthread_mutex_unlock(&tenant->lock);
    }
}

static void *launch(void *data) {
    struct tenant *tenant = data;
    pthread_t worker;
    pthread_create(&worker, NULL, work, tenant);
    for (int i = 0; i < tenant->launches; i++) {
        int dice = rand_r(&tenant->seed) % 100;
        if (dice == 0) loom_stream_priority(tenant->stream, (uint32_t)(rand_r(&tenant->seed) % 10));
        loom_stream_launch(tenant->stream, (uint64_t)(i % 5 + 1));
        if (dice < 5) {
            loom_stream_failed(tenant->stream);
            continue;
        }
        tenant->expected++;
        pthread_mutex_lock(&tenant->lock);
        tenant->queued++;
        pthread_cond_broadcast(&tenant->changed);
        while (dice < 20 && tenant->done < tenant->queued) pthread_cond_wait(&tenant->changed, &tenant->lock);
        pthread_mutex_unlock(&tenant->lock);
    }
    pthread_mutex_lock(&tenant->lock);
    tenant->closed = true;
    pthread_cond_broadcast(&tenant->changed);
    pthread_mutex_unlock(&tenant->lock);
    pthread_join(worker, NULL);
    loom_stream_close(tenant->stream);
    return NULL;
}

static long participate(struct device *device, int threads, int launches, unsigned seed) {
    struct tenant tenants[threads];
    pthread_t hosts[threads];
    memset(tenants, 0, sizeof tenants);
    for (int i = 0; i < threads; i++) {
        struct tenant *tenant = &tenants[i];
        tenant->device = device;
        tenant->seed = seed * 100 + (unsigned)i;
        tenant->launches = launches;
        pthread_mutex_init(&tenant->lock, NULL);
        pthread_cond_init(&tenant->changed, NULL);
        tenant->stream = loom_stream_open(1, (int)((seed + (unsigned)i * 3) % 10));
        if (!tenant->stream) return -1;
        pthread_create(&hosts[i], NULL, launch, tenant);
    }
    long expected = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(hosts[i], NULL);
        expected += tenants[i].expected;
    }
    return expected;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    setenv("GPULOOM_KERNELS_REGION", argv[1], 1);
    int processes = atoi(argv[2]), threads = atoi(argv[3]), launches = atoi(argv[4]);
    struct device *device = mmap(NULL, sizeof *device, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long *expected =
        mmap(NULL, sizeof *expected * (size_t)processes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&device->lock, &shared);
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            expected[i] = participate(device, threads, launches, (unsigned)i);
            exit(expected[i] < 0);
        }
    char why[200];
    struct loom_region *region = loom_region_open(argv[1], why, sizeof why);
    if (!region) return fprintf(stderr, "%s\n", why), 1;
    int running = processes, status, failed = 0;
    unsigned policy = 0;
    while (running > 0) {
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            running--;
            failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        }
        atomic_store(&region->policy, policy++ % 4);
        loom_ring(region);
        usleep(2000);
    }
    long all = 0;
    for (int i = 0; i < processes; i++) all += expected[i];
    int left = 0;
    for (int i = 0; i < LOOM_SLOTS; i++) left += region->slots[i].owner != 0;
    loom_region_leave(region);
    printf("%ld launched, %ld ran, %d slots left, %d failed, file %s\n", all, device->ran, left, failed,
           access(argv[1], F_OK) == 0 ? "left" : "gone");
    return all != device->ran || left || failed || access(argv[1], F_OK) == 0;
}
