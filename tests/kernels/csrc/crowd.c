/* Many tenants of all priorities on one busy device: crowd FILE PROCESSES EACH SECONDS POLICY
 *
 * PROCESSES processes with EACH tenants; a tenant is a host, which launches requests of a few kernels and pauses after
 * each, and a worker, which runs them in order. All want the same, an eighth of the device, so sixteen want it twice
 * over. The device runs one kernel at a time, first come first served, and sleeps meanwhile: it is not the processor.
 * Prints JSON.
 *
 * The order is judged at each decision and without a clock: the linker puts __wrap_loom_ask around the core's (see
 * crowd.py), which looks at all slots before and after it. What held at both looks, and cannot have changed in between,
 * held when the core looked. So a loaded machine makes fewer decisions that can be judged, and never a wrong judgement.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "region_file.h"
#include "runtime.h"

#define LONGEST_WAIT_NS 1000000000u /* the core's promise: after so long anybody may go */
#define PAUSE_NS 5400000u           /* of the host after each request: seven times what its kernels take */
enum { BURST = 4, LOOK_US = 100000, DEADLOCKED = 50 /* looks */ };

struct tenant {
    uint32_t priority;
    uint64_t length_ns[BURST];
    _Atomic long launches, ran;                             /* the watchdog looks at them */
    uint64_t gate_ns, longest_gate_ns, start_ns, device_ns; /* waited at the gate, until the start, ran; the sums */
    /* Launches below the top. Of them: a higher one was running; one that comes first waited and could have gone; may
     * break the order, having waited for too long; or as their floor paid. Refusals: for one of the first two reasons;
     * beyond the bound. */
    long judged, over_running, over_waiting, overdue, by_floor, held_back, too_long;
};

struct crowd {
    _Atomic uint32_t go, next_ticket, turn;
    int tenants;
    uint64_t until;
    struct tenant tenant[LOOM_SLOTS];
};

static const uint64_t LENGTHS_NS[BURST] = {20000, 100000, 250000,
                                           400000}; /* of a request; tenants begin at different ones */
static struct crowd *crowd;
static _Thread_local struct tenant *me;
static _Thread_local const struct loom_region *shared;
static _Thread_local uint32_t my_slot;

/* The judge */

struct seen {
    uint32_t owner, priority, in_flight;
    uint64_t waiting_since, pending_ns, idle_since, busy_until, launches, floors;
    int64_t budget_ns;
};

static void look(struct seen *seen) {
    memset(seen, 0, sizeof *seen * LOOM_SLOTS);
    for (uint32_t i = 0; i < atomic_load(&shared->used); i++) {
        const struct loom_slot *slot = &shared->slots[i];
        seen[i].owner = atomic_load(&slot->owner);
        if (seen[i].owner == 0) continue;
        seen[i].priority = atomic_load(&slot->priority);
        seen[i].waiting_since = atomic_load(&slot->waiting_since);
        seen[i].in_flight = atomic_load(&slot->in_flight);
        seen[i].pending_ns = atomic_load(&slot->pending_ns);
        seen[i].idle_since = atomic_load(&slot->idle_since);
        seen[i].busy_until = atomic_load(&slot->busy_until);
        seen[i].launches = atomic_load(&slot->launches);
        seen[i].floors = atomic_load(&slot->floors);
        seen[i].budget_ns = atomic_load(&slot->budget_ns);
    }
}

static bool too_long_ago(uint64_t then, uint64_t now) { return now > then && now - then >= LONGEST_WAIT_NS; }

/* Had kernels in flight all the while: without a new launch there can only be fewer and fewer. The core gives up those
 * that are still not over long after they should be. */
static bool stayed_busy(const struct seen *was, const struct seen *is, uint64_t now) {
    if (too_long_ago(was->busy_until, now) || too_long_ago(is->busy_until, now)) return false;
    return was->owner == is->owner && was->launches == is->launches && was->in_flight && is->in_flight;
}

/* Had none all the while, and its price is the same: the end of one would show. */
static bool stayed_idle(const struct seen *was, const struct seen *is) {
    return was->idle_since == is->idle_since && !was->in_flight && !is->in_flight && was->budget_ns == is->budget_ns;
}

/* Slot `i` waited all the while, and whoever is above it was idle: so it could have gone, unless its kernel is longer
 * than the one launched. A shorter kernel fits wherever a longer one does, as the expected delay is convex in the
 * length. */
static bool could_go(const struct seen *was, const struct seen *is, int i, uint64_t length_ns, uint64_t now) {
    if (too_long_ago(was[i].waiting_since, now)) return false; /* and those who do not ask when they may */
    if (was[i].waiting_since == 0 || was[i].waiting_since != is[i].waiting_since || was[i].in_flight) return false;
    if (was[i].pending_ns != is[i].pending_ns) return false;
    if (shared->policy == LOOM_FILL && was[i].pending_ns > length_ns) return false;
    for (int j = 0; j < LOOM_SLOTS; j++) {
        if (was[j].owner != is[j].owner) return false;
        if (is[j].owner && is[j].priority < is[i].priority && !stayed_idle(&was[j], &is[j])) return false;
    }
    return true;
}

/* Before me: of higher priority, or of the same and waiting for longer. */
static bool comes_first(const struct seen *other, uint64_t asked_at) {
    return other->priority < me->priority || (other->priority == me->priority && other->waiting_since < asked_at);
}

/* What the core expects of the kernel that I ask for. */
static uint64_t expected_ns(const struct seen *was, const struct seen *is, bool granted, uint64_t now) {
    if (!granted) return is->pending_ns;
    return is->busy_until - (was->in_flight && was->busy_until > now ? was->busy_until : now);
}

static void judge(const struct seen *was, const struct seen *is, bool granted, uint64_t now, uint64_t again) {
    uint64_t asked_at = was[my_slot].waiting_since ? was[my_slot].waiting_since : now;
    uint64_t length_ns = expected_ns(&was[my_slot], &is[my_slot], granted, now);
    bool running = false, waiting = false, top = true;
    for (int i = 0; i < LOOM_SLOTS; i++) {
        if (i == (int)my_slot || was[i].owner == 0 || was[i].owner != is[i].owner) continue;
        bool higher = is[i].priority < me->priority;
        if (higher) top = false;
        running |= higher && stayed_busy(&was[i], &is[i], now);
        waiting |= comes_first(&was[i], asked_at) && could_go(was, is, i, length_ns, now);
    }
    if (top) return; /* never waits, also for equals; they may have become so while asleep */
    me->judged += granted;
    if (!granted) {
        me->held_back += running || waiting;
        me->too_long += too_long_ago(asked_at, now) || again > asked_at + LONGEST_WAIT_NS;
    } else if (too_long_ago(asked_at, now))
        me->overdue++;
    else if (is[my_slot].floors != was[my_slot].floors)
        me->by_floor++;
    else {
        me->over_running += running;
        me->over_waiting += waiting;
    }
}

bool __real_loom_ask(struct loom_queue *queue, uint64_t kernel, uint64_t now, uint64_t *again);
bool __wrap_loom_ask(struct loom_queue *queue, uint64_t kernel, uint64_t now, uint64_t *again);
bool __wrap_loom_ask(struct loom_queue *queue, uint64_t kernel, uint64_t now, uint64_t *again) {
    struct seen was[LOOM_SLOTS], is[LOOM_SLOTS];
    look(was);
    bool granted = __real_loom_ask(queue, kernel, now, again);
    look(is);
    judge(was, is, granted, now, *again);
    return granted;
}

/* Tells the host, which opens its stream itself, what slot it has. */
struct loom_queue *__real_loom_queue_new(struct loom_region *region, uint32_t index);
struct loom_queue *__wrap_loom_queue_new(struct loom_region *region, uint32_t index);
struct loom_queue *__wrap_loom_queue_new(struct loom_region *region, uint32_t index) {
    shared = region;
    my_slot = index;
    return __real_loom_queue_new(region, index);
}

/* Tenants */

struct launched {
    uint32_t ticket; /* its turn on the device */
    uint64_t asked_at, length_ns;
};

struct stream { /* of kernels launched, run by the worker in order */
    struct tenant *tenant;
    struct loom_stream *loom;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct launched kernel[BURST];
    long queued, done;
    bool closed;
};

static void sleep_for(uint64_t ns) {
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static void sleep_while(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void publish(_Atomic uint32_t *word, uint32_t value) {
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static uint64_t run_on_device(struct tenant *tenant, const struct launched *kernel) {
    for (uint32_t turn; (turn = atomic_load(&crowd->turn)) != kernel->ticket;) sleep_while(&crowd->turn, turn);
    uint64_t start = loom_now();
    sleep_for(kernel->length_ns);
    uint64_t ran_ns = loom_now() - start;
    tenant->start_ns += start - kernel->asked_at;
    tenant->device_ns += ran_ns;
    publish(&crowd->turn, kernel->ticket + 1);
    return ran_ns;
}

static void *work(void *data) {
    struct stream *stream = data;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (stream->queued == stream->done && !stream->closed) pthread_cond_wait(&stream->changed, &stream->lock);
        long number = stream->done % BURST;
        bool over = stream->queued == stream->done;
        pthread_mutex_unlock(&stream->lock);
        if (over) return NULL;
        uint64_t ran_ns = run_on_device(stream->tenant, &stream->kernel[number]);
        loom_stream_ended(stream->loom, (uint64_t)number + 1, ran_ns);
        atomic_fetch_add(&stream->tenant->ran, 1);
        pthread_mutex_lock(&stream->lock);
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
    }
}

static void launch(struct stream *stream, int number) {
    uint64_t asked_at = loom_now();
    loom_stream_launch(stream->loom, (uint64_t)number + 1);
    uint64_t waited_ns = loom_now() - asked_at;
    stream->kernel[number] =
        (struct launched){atomic_fetch_add(&crowd->next_ticket, 1), asked_at, me->length_ns[number]};
    me->gate_ns += waited_ns;
    if (waited_ns > me->longest_gate_ns) me->longest_gate_ns = waited_ns;
    atomic_fetch_add(&me->launches, 1);
    pthread_mutex_lock(&stream->lock);
    stream->queued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void *host(void *data) {
    me = data;
    struct stream stream = {.tenant = me, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    stream.loom = loom_stream_open(1, (int)me->priority);
    if (!stream.loom) exit(1);
    pthread_t worker;
    pthread_create(&worker, NULL, work, &stream);
    while (loom_now() < crowd->until) {
        for (int i = 0; i < BURST; i++) launch(&stream, i);
        pthread_mutex_lock(&stream.lock);
        while (stream.done < stream.queued) pthread_cond_wait(&stream.changed, &stream.lock);
        pthread_mutex_unlock(&stream.lock);
        sleep_for(PAUSE_NS);
    }
    pthread_mutex_lock(&stream.lock);
    stream.closed = true;
    pthread_cond_broadcast(&stream.changed);
    pthread_mutex_unlock(&stream.lock);
    pthread_join(worker, NULL);
    loom_stream_close(stream.loom);
    return NULL;
}

static int participate(int first, int each) {
    pthread_t hosts[LOOM_SLOTS];
    prctl(PR_SET_TIMERSLACK, 1000);
    while (atomic_load(&crowd->go) == 0) sleep_while(&crowd->go, 0);
    for (int i = 0; i < each; i++) pthread_create(&hosts[i], NULL, host, &crowd->tenant[first + i]);
    for (int i = 0; i < each; i++) pthread_join(hosts[i], NULL);
    return 0;
}

/* The parent */

/* How many of the children failed. Looks are counted, not seconds: if the machine stands still, so does the watchdog.
 */
static int watch(const pid_t *children, int processes, int each) {
    int running = processes, failed = 0, status, idle[LOOM_SLOTS] = {0};
    long before[LOOM_SLOTS] = {0};
    bool ended[LOOM_SLOTS] = {false};
    while (running > 0) {
        usleep(LOOK_US);
        for (int i = 0; i < processes; i++) {
            if (ended[i] || waitpid(children[i], &status, WNOHANG) != children[i]) continue;
            ended[i] = true;
            running--;
            failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        }
        for (int i = 0; i < crowd->tenants; i++) {
            long progress = crowd->tenant[i].launches + crowd->tenant[i].ran;
            idle[i] = progress != before[i] || ended[i / each] ? 0 : idle[i] + 1;
            before[i] = progress;
            if (idle[i] < DEADLOCKED) continue;
            fprintf(stderr, "deadlock: tenant %d of priority %u stands still after %ld launches, %ld ended\n", i,
                    crowd->tenant[i].priority, crowd->tenant[i].launches, crowd->tenant[i].ran);
            for (int j = 0; j < processes; j++)
                if (!ended[j]) kill(children[j], SIGKILL);
            exit(3);
        }
    }
    return failed;
}

static void print_tenant(const struct tenant *tenant, const char *after) {
    double kernels = tenant->ran ? (double)tenant->ran : 1;
    printf(
        "{\"priority\": %u, \"launches\": %ld, \"ran\": %ld, \"mean_wait_ms\": %.3f, \"mean_gate_wait_ms\": %.3f, "
        "\"longest_gate_wait_ms\": %.3f, \"device_ms\": %.1f, ",
        tenant->priority, tenant->launches, tenant->ran, (double)tenant->start_ns / 1e6 / kernels,
        (double)tenant->gate_ns / 1e6 / kernels, (double)tenant->longest_gate_ns / 1e6,
        (double)tenant->device_ns / 1e6);
    printf(
        "\"judged\": %ld, \"over_running\": %ld, \"over_waiting\": %ld, \"overdue\": %ld, \"by_floor\": %ld, "
        "\"held_back\": %ld, \"too_long\": %ld}%s\n",
        tenant->judged, tenant->over_running, tenant->over_waiting, tenant->overdue, tenant->by_floor,
        tenant->held_back, tenant->too_long, after);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"share", "strict", "fikit", "fill"};
    if (argc != 6) return 2;
    int processes = atoi(argv[2]), each = atoi(argv[3]), policy = 0;
    while (policy < 3 && strcmp(names[policy], argv[5]) != 0) policy++;
    if (processes < 1 || each < 1 || processes * each > LOOM_SLOTS) return 2;
    setenv("GPULOOM_KERNELS_REGION", argv[1], 1);
    crowd = mmap(NULL, sizeof *crowd, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (crowd == MAP_FAILED) return 1;
    crowd->tenants = processes * each;
    for (int i = 0; i < crowd->tenants; i++) {
        crowd->tenant[i].priority = (uint32_t)(i * (LOOM_LOWEST + 1) / crowd->tenants);
        for (int j = 0; j < BURST; j++) crowd->tenant[i].length_ns[j] = LENGTHS_NS[(i + j) % BURST];
    }
    pid_t children[LOOM_SLOTS];
    for (int i = 0; i < processes; i++)
        if ((children[i] = fork()) == 0) exit(participate(i * each, each));
    char why[200];
    struct loom_region *region = loom_region_open(argv[1], why, sizeof why);
    if (!region) return fprintf(stderr, "%s\n", why), 1;
    atomic_store(&region->policy, (uint32_t)policy);
    crowd->until = loom_now() + (uint64_t)(atof(argv[4]) * 1e9);
    publish(&crowd->go, 1);
    int failed = watch(children, processes, each), left = 0;
    for (int i = 0; i < LOOM_SLOTS; i++) left += region->slots[i].owner != 0;
    loom_region_leave(region);
    printf("{\"policy\": \"%s\", \"processes\": %d, \"failed\": %d, \"device_ran\": %u, ", names[policy], processes,
           failed, crowd->turn);
    printf("\"slots_left\": %d, \"file_left\": %s, \"tenants\": [\n", left,
           access(argv[1], F_OK) == 0 ? "true" : "false");
    for (int i = 0; i < crowd->tenants; i++) print_tenant(&crowd->tenant[i], i + 1 < crowd->tenants ? "," : "]}");
    return failed != 0;
}
