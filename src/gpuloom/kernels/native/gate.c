/* Who may launch next.
 *
 * LOOM_FILL is one inequality. A kernel of `length` may start when, for every higher priority on the device, which must be idle,
 *
 *     expected delay to it  <=  price * length
 *
 * The expected delay comes from the gaps that the higher slot saw before at this place of its kernel sequence, given how
 * long it has been idle by now. The price is the larger of two:
 *   - what the higher slot can afford. It may be slowed down by a stated part; that part of the time it runs goes into its budget,
 *     every delay that it really meets is taken out. A full budget is a price of one, an empty one of zero: only
 *     kernels that fit surely. So wrong guesses make the next guesses careful, and good ones bold.
 *     A slot that has been idle for longer than ever may be gone for good, so then it always pays a little.
 *   - what the waiting slot is owed. It has a floor, a part of the device that is its own; the longer it has been below
 *     the floor, the worse a gap it takes. Long kernels, which fit nowhere, thereby start where they harm least.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn.h"
#include "loom.h"

#define BUDGET_WINDOW_NS 50000000.0  /* a full budget: the allowed part of this much running time */
#define OWED_NS 50000000.0           /* so long below its floor, a slot takes any gap */
#define GONE_PRICE 0.05              /* of a slot that is idle for longer than ever, whatever its budget */
#define AHEAD_NS 300000u             /* work that a filler keeps in flight, so that its wake-ups do not show */
#define LONGEST_WAIT_NS 1000000000u  /* nobody waits longer, whatever the policy: a higher queue may be waiting for us */
#define FIKIT_EPSILON_NS 10000u      /* smaller gaps are not worth filling */
/* The top priority wakes nobody: that would cost it, just when its answer is ready. Who waits for its end looks by himself. */
#define LOOK_MIN_NS 150000u
#define LOOK_MAX_NS 2000000u
#define RECHECK_MIN_NS 200000u
#define RECHECK_MAX_NS 10000000u

enum { FLYING = 64 };

struct loom_queue {
    struct loom_region *region;
    struct loom_slot *slot;
    uint32_t index, in_flight;
    uint64_t begun, done;       /* kernels, ever */
    struct {
        uint64_t kernel, place;     /* ids: an entry of the learner may have made room meanwhile */
        struct learn_place *at;
        uint64_t length_ns;         /* expected */
    } flying[FLYING];           /* those in flight, by number; of more than that nobody needs to foresee the end */
    struct learn_place *place;  /* where the queue became idle */
    double credit_ns;           /* what the floor owes; negative: has had more */
    uint64_t credited_at;
    struct learner learner;
};

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)
/* Counters have one writer: an addition without a locked instruction. */
#define COUNT(field, more) STORE(field, LOAD(field) + (more))

uint64_t loom_region_bytes(void) { return sizeof(struct loom_region); }

void loom_region_init(struct loom_region *region) {
    memset(region, 0, sizeof *region);
    region->version = LOOM_VERSION;
    region->size = sizeof *region;
    region->policy = LOOM_FILL;
    atomic_store(&region->magic, LOOM_MAGIC);
}

uint64_t loom_kernel_id(const char *name, uint32_t dims, const uint64_t *grid, const uint64_t *block) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    for (uint32_t i = 0; i < dims && i < 3; i++) {
        hash = (hash ^ grid[i]) * 0x100000001b3u;
        hash = (hash ^ (block ? block[i] : 0)) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

/* Slots ------------------------------------------------------------------------------------------------------------------- */

static bool find_device(struct loom_region *region, uint64_t key, uint32_t *index) {
    for (uint32_t i = 0; i < LOOM_DEVICES; i++) {
        uint64_t free_key = 0;
        if (atomic_load(&region->devices[i].key) == key ||
            atomic_compare_exchange_strong(&region->devices[i].key, &free_key, key) || free_key == key) {
            *index = i;
            return true;
        }
    }
    return false;
}

bool loom_take(struct loom_region *region, uint32_t index, uint32_t owner, uint32_t pid, uint64_t device, uint32_t priority,
               const char *name) {
    uint32_t place;
    struct loom_slot *slot = &region->slots[index];
    if (index >= LOOM_SLOTS || atomic_load(&slot->owner) != 0 || !find_device(region, device ? device : 1, &place)) return false;
    memset((char *)slot + sizeof slot->owner, 0, sizeof *slot - sizeof slot->owner);
    strncpy(slot->name, name, LOOM_NAME - 1);
    slot->pid = pid;
    slot->device = place;
    slot->priority = priority;
    slot->slowdown_ppm = 100000;
    slot->floor_ppm = 100000;
    uint32_t used = atomic_load(&region->used);
    while (used <= index && !atomic_compare_exchange_weak(&region->used, &used, index + 1)) {}
    atomic_store(&slot->owner, owner);
    return true;
}

static void release_token(struct loom_region *region, uint32_t index) {
    uint32_t device = LOAD(region->slots[index].device), mine = index + 1;
    if (device < LOOM_DEVICES) atomic_compare_exchange_strong(&region->devices[device].filler, &mine, 0);
}

void loom_give_back(struct loom_region *region, uint32_t index) {
    release_token(region, index);
    atomic_store(&region->slots[index].owner, 0);
}

static uint32_t used_slots(const struct loom_region *region) {
    uint32_t used = LOAD(region->used);
    return used < LOOM_SLOTS ? used : LOOM_SLOTS;
}

static bool shares_device(const struct loom_slot *slot, const struct loom_slot *other) {
    return slot != other && atomic_load_explicit(&other->owner, memory_order_acquire) != 0 &&
           LOAD(slot->device) == LOAD(other->device);
}

uint32_t loom_company(const struct loom_region *region, uint32_t index) {
    uint32_t others = 0;
    for (uint32_t i = 0; i < used_slots(region); i++) others += shares_device(&region->slots[index], &region->slots[i]);
    return others;
}

struct loom_queue *loom_queue_new(struct loom_region *region, uint32_t index) {
    struct loom_queue *queue = calloc(1, sizeof *queue);
    if (!queue) return NULL;
    queue->region = region;
    queue->index = index;
    queue->slot = &region->slots[index];
    return queue;
}

void loom_queue_free(struct loom_queue *queue) { free(queue); }

void loom_expect(struct loom_queue *queue, uint64_t id, uint64_t mean_ns, uint64_t mean_gap_ns) {
    struct learn_kernel *kernel = learn_kernel(&queue->learner, id);
    kernel->from_profile = true;
    kernel->profile_ns = mean_ns;
    kernel->profile_gap_ns = mean_gap_ns;
}

/* The decision ------------------------------------------------------------------------------------------------------------- */

/* How many of the gaps are longer than the queue has been idle, and by how much the kernel would outlast them, on average. */
static uint32_t longer_gaps(const uint32_t *gaps_us, uint32_t count, double elapsed_ns, double length_ns, double *delay_ns) {
    uint32_t longer = 0;
    *delay_ns = 0;
    for (uint32_t i = 0; i < count && i < LOOM_GAPS; i++) {
        double rest = gaps_us[i] * 1000.0 - elapsed_ns;
        if (rest <= 0) continue;
        longer++;
        if (rest < length_ns) *delay_ns += length_ns - rest;
    }
    if (longer) *delay_ns /= longer;
    return longer;
}

double loom_expected_delay(const uint32_t *gaps_us, uint32_t count, double elapsed_ns, double length_ns) {
    double delay;
    if (longer_gaps(gaps_us, count, elapsed_ns, length_ns, &delay)) return delay;
    /* Idle for longer than ever before: what has lasted long lasts long, P(rest > r) = elapsed / (elapsed + r). */
    if (elapsed_ns <= 0) return length_ns;
    return length_ns - elapsed_ns * log1p(length_ns / elapsed_ns);
}

struct wish {
    const struct loom_slot *slot;
    double length_ns, in_flight_ns, owed; /* of the kernel; of what its queue has in flight; price that its floor pays */
    bool length_known;
};

static double clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

/* Look again that much later, or earlier if there is another reason to. */
static void look_again(uint64_t *again, uint64_t now, double later_ns, double least_ns, double most_ns) {
    uint64_t then = now + (uint64_t)clamp(later_ns, least_ns, most_ns);
    if (then < *again) *again = then;
}

static bool fill_allows(const struct loom_slot *higher, const struct wish *wish, double idle_ns) {
    double capacity = LOAD(higher->slowdown_ppm) / 1e6 * BUDGET_WINDOW_NS;
    double budget = (double)LOAD(higher->budget_ns);
    double price = capacity > 0 ? clamp(budget / capacity, 0, 1) : 0;
    if (wish->owed > price) price = wish->owed;
    uint32_t gaps_us[LOOM_GAPS], count = LOAD(higher->gap_count);
    if (count > LOOM_GAPS) count = LOOM_GAPS;
    for (uint32_t i = 0; i < count; i++) gaps_us[i] = LOAD(higher->gaps_us[i]);
    double ignored;
    bool may_be_gone = longer_gaps(gaps_us, count, idle_ns, 0, &ignored) == 0;
    if (may_be_gone && price < GONE_PRICE) price = GONE_PRICE; /* no budget grows while nobody runs */
    else if (budget < -capacity && price <= 0) return false; /* kernels that should fit do not: stop guessing for a while */
    double with = loom_expected_delay(gaps_us, count, idle_ns, wish->in_flight_ns + wish->length_ns);
    double without = loom_expected_delay(gaps_us, count, idle_ns, wish->in_flight_ns);
    return with - without <= price * wish->length_ns;
}

static bool fikit_allows(const struct loom_slot *higher, const struct wish *wish, double idle_ns) {
    double gap = (double)LOAD(higher->fikit_gap_ns);
    if (idle_ns >= gap) return idle_ns >= FIKIT_EPSILON_NS && wish->in_flight_ns <= 0; /* over, and nothing came */
    return gap >= FIKIT_EPSILON_NS && wish->length_known && wish->in_flight_ns + wish->length_ns <= gap - idle_ns;
}

/* Would the kernel fit, as far as the higher priorities on its device go? Also when to look again, if time alone changes it. */
static bool fits(const struct loom_region *region, enum loom_policy policy, const struct wish *wish, uint64_t now,
                 uint64_t *again) {
    for (uint32_t i = 0; i < used_slots(region); i++) {
        const struct loom_slot *other = &region->slots[i];
        if (!shares_device(wish->slot, other) || LOAD(other->priority) >= LOAD(wish->slot->priority)) continue;
        if (atomic_load_explicit(&other->in_flight, memory_order_acquire) != 0) {
            if (policy == LOOM_FILL && wish->owed >= 1) continue; /* there was no gap for too long */
            uint64_t until = LOAD(other->busy_until);
            double left = until > now ? 0.8 * (double)(until - now) : 0; /* nearer and nearer */
            look_again(again, now, left, LOOK_MIN_NS, LOOK_MAX_NS);
            return false;
        }
        uint64_t since = LOAD(other->idle_since);
        if (since == 0) continue; /* has never launched anything */
        double idle_ns = now > since ? (double)(now - since) : 0;
        if ((policy == LOOM_STRICT && wish->in_flight_ns > 0) || (policy == LOOM_FIKIT && !fikit_allows(other, wish, idle_ns)) ||
            (policy == LOOM_FILL && !fill_allows(other, wish, idle_ns))) {
            double later = policy == LOOM_FIKIT ? (double)LOAD(other->fikit_gap_ns) - idle_ns : idle_ns / 4;
            look_again(again, now, later, RECHECK_MIN_NS, RECHECK_MAX_NS);
            return false;
        }
    }
    return true;
}

/* Is there somebody of higher priority, or of the same and waiting for longer, who waits and could go? */
static bool others_first(const struct loom_region *region, enum loom_policy policy, const struct loom_slot *slot, uint64_t now,
                         uint64_t asked_at) {
    uint64_t ignored = UINT64_MAX;
    for (uint32_t i = 0; i < used_slots(region); i++) {
        const struct loom_slot *other = &region->slots[i];
        uint64_t since = LOAD(other->waiting_since);
        uint32_t theirs = LOAD(other->priority), mine = LOAD(slot->priority);
        if (since == 0 || theirs > mine || !shares_device(slot, other)) continue;
        if (theirs == mine && (since > asked_at || (since == asked_at && other > slot))) continue;
        struct wish wish = {other, (double)LOAD(other->pending_ns), 0, 0, true};
        if (LOAD(other->in_flight) == 0 && fits(region, policy, &wish, now, &ignored)) return true;
    }
    return false;
}

static bool is_top(const struct loom_region *region, const struct loom_slot *slot) {
    for (uint32_t i = 0; i < used_slots(region); i++)
        if (shares_device(slot, &region->slots[i]) && LOAD(region->slots[i].priority) < LOAD(slot->priority)) return false;
    return true;
}

static bool take_token(struct loom_queue *queue) {
    uint32_t nobody = 0, device = LOAD(queue->slot->device);
    if (device >= LOOM_DEVICES) return true; /* nonsense in the shared memory: nobody is to hang on it */
    return atomic_compare_exchange_strong(&queue->region->devices[device].filler, &nobody, queue->index + 1) ||
           nobody == queue->index + 1;
}

static double floor_of(const struct loom_queue *queue) { return LOAD(queue->slot->floor_ppm) / 1e6; }

/* The floor pays for time in which the queue waits or runs, not for time in which its host has nothing to launch. */
static void settle_credit(struct loom_queue *queue, uint64_t now) {
    bool wants = queue->in_flight != 0 || LOAD(queue->slot->waiting_since) != 0;
    if (wants && now > queue->credited_at) queue->credit_ns += floor_of(queue) * (double)(now - queue->credited_at);
    if (queue->credit_ns > floor_of(queue) * OWED_NS) queue->credit_ns = floor_of(queue) * OWED_NS;
    queue->credited_at = now;
}

static uint32_t kept_gaps(const struct learn_place *place) {
    return place->gap_count < LOOM_GAPS ? place->gap_count : LOOM_GAPS;
}

/* The queue launches a kernel: what it expects of it, and what its arrival tells about the gap that it ends. */
static void begin(struct loom_queue *queue, uint64_t kernel, uint64_t length, uint64_t now, uint64_t asked_at) {
    struct loom_slot *slot = queue->slot;
    uint64_t idle_since = LOAD(slot->idle_since);
    if (queue->in_flight == 0 && queue->place && asked_at >= idle_since) {
        uint32_t shortest = UINT32_MAX, kept = kept_gaps(queue->place);
        for (uint32_t i = 0; i < kept; i++)
            if (queue->place->gaps_us[i] < shortest) shortest = queue->place->gaps_us[i];
        COUNT(slot->gaps, 1);
        if (kept && (asked_at - idle_since) / 1000 < shortest) COUNT(slot->gaps_early, 1);
        learn_gap(queue->place, asked_at - idle_since);
        queue->place = NULL;
    }
    if (queue->in_flight == 0) STORE(slot->busy_since, now);
    uint64_t busy_until = LOAD(slot->busy_until);
    STORE(slot->busy_until, (queue->in_flight && busy_until > now ? busy_until : now) + length);
    struct learn_place *place = learn_place(&queue->learner, kernel);
    uint64_t number = queue->begun++ % FLYING;
    queue->flying[number].kernel = kernel;
    queue->flying[number].place = place->key;
    queue->flying[number].at = place;
    queue->flying[number].length_ns = length;
    STORE(slot->waiting_since, 0);
    COUNT(slot->waited_ns, now - asked_at);
    COUNT(slot->launches, 1);
    learn_launched(&queue->learner, kernel);
    queue->in_flight++;
    atomic_store(&slot->in_flight, queue->in_flight);
}

bool loom_ask(struct loom_queue *queue, uint64_t kernel, uint64_t now, uint64_t *again) {
    struct loom_region *region = queue->region;
    struct loom_slot *slot = queue->slot;
    enum loom_policy policy = (enum loom_policy)LOAD(region->policy);
    uint64_t asked_at = LOAD(slot->waiting_since);
    if (asked_at == 0 || asked_at > now) asked_at = now;
    settle_credit(queue, now);
    const struct learn_kernel *known = learn_kernel(&queue->learner, kernel);
    uint64_t length = policy == LOOM_FIKIT ? known->profile_ns : learn_length(known, learn_place(&queue->learner, kernel));
    *again = UINT64_MAX;
    if (policy == LOOM_SHARE || policy > LOOM_FILL || is_top(region, slot)) {
        begin(queue, kernel, length, now, asked_at);
        return true;
    }
    uint64_t busy_until = LOAD(slot->busy_until);
    struct wish wish = {slot, (double)length, 0, 0, known->from_profile};
    if (queue->in_flight) wish.in_flight_ns = busy_until > now ? (double)(busy_until - now) : 1;
    if (policy == LOOM_FILL && floor_of(queue) > 0) wish.owed = clamp(queue->credit_ns / (floor_of(queue) * OWED_NS), 0, 1);
    bool overdue = now - asked_at >= LONGEST_WAIT_NS;
    uint64_t lead_ns = AHEAD_NS + length / 2; /* the longer the kernels, the less sure is their end */
    bool ahead = policy == LOOM_FILL && wish.in_flight_ns > (double)lead_ns;
    if (ahead) *again = busy_until - lead_ns;
    if (overdue || (!ahead && fits(region, policy, &wish, now, again) && !others_first(region, policy, slot, now, asked_at) &&
                    take_token(queue))) {
        COUNT(slot->fills, 1);
        if (wish.owed > 0) COUNT(slot->floors, 1);
        begin(queue, kernel, length, now, asked_at);
        return true;
    }
    STORE(slot->pending_ns, length);
    atomic_store(&slot->waiting_since, asked_at);
    if (*again > asked_at + LONGEST_WAIT_NS) *again = asked_at + LONGEST_WAIT_NS;
    return false;
}

/* One less in flight. What the others still need, from now on: guesses do not add up, they start afresh with each end. */
static void land(struct loom_queue *queue, bool failed, uint64_t now) {
    queue->in_flight--;
    if (failed) queue->begun--; /* the latest */
    else queue->done++;
    uint64_t rest_ns = 0;
    for (uint64_t i = queue->done; i < queue->begun && i < queue->done + FLYING; i++) rest_ns += queue->flying[i % FLYING].length_ns;
    STORE(queue->slot->busy_until, now + rest_ns);
}

static void became_idle(struct loom_queue *queue, uint64_t now) {
    struct loom_slot *slot = queue->slot;
    queue->place = queue->flying[(queue->begun - 1) % FLYING].at; /* the last one launched: nothing came after it */
    uint32_t kept = kept_gaps(queue->place);
    for (uint32_t i = 0; i < kept; i++) STORE(slot->gaps_us[i], queue->place->gaps_us[i]);
    STORE(slot->gap_count, kept);
    STORE(slot->fikit_gap_ns, learn_kernel(&queue->learner, queue->learner.before[0])->profile_gap_ns);
    STORE(slot->idle_since, now);
}

bool loom_failed(struct loom_queue *queue, uint64_t now) {
    if (queue->in_flight == 0) return false;
    settle_credit(queue, now);
    land(queue, true, now);
    if (queue->in_flight == 0) release_token(queue->region, queue->index);
    atomic_store(&queue->slot->in_flight, queue->in_flight);
    return queue->in_flight == 0;
}

/* A kernel ended after running for `ran_ns`: who of higher priority had to wait for it, and how long? That is no guess any more. */
static void charge(struct loom_region *region, const struct loom_slot *slot, uint64_t ran_ns, uint64_t now) {
    for (uint32_t i = 0; i < used_slots(region); i++) {
        struct loom_slot *other = &region->slots[i];
        if (!shares_device(slot, other) || LOAD(other->priority) >= LOAD(slot->priority) || !LOAD(other->in_flight)) continue;
        uint64_t since = LOAD(other->busy_since), delay = now > since ? now - since : 0;
        if (delay > ran_ns) delay = ran_ns;
        if (delay == 0) continue;
        atomic_fetch_add(&other->overruns, 1);
        atomic_fetch_add(&other->overrun_ns, delay);
        if (LOAD(region->policy) == LOOM_FILL) atomic_fetch_sub(&other->budget_ns, (int64_t)delay);
    }
}

bool loom_ended(struct loom_queue *queue, uint64_t kernel, uint64_t ran_ns, uint64_t now) {
    struct loom_slot *slot = queue->slot;
    if (queue->in_flight == 0) return false;
    settle_credit(queue, now);
    if (ran_ns) {
        learn_ran(&learn_kernel(&queue->learner, kernel)->runs, ran_ns);
        uint64_t number = queue->done % FLYING; /* the oldest; not so in a queue without order, nor if there are too many */
        struct learn_place *at = queue->flying[number].at;
        if (queue->begun - queue->done <= FLYING && queue->flying[number].kernel == kernel && at && at->key == queue->flying[number].place)
            learn_ran(&at->runs, ran_ns);
        COUNT(slot->ran_ns, ran_ns);
        double deepest = -(double)ran_ns - floor_of(queue) * OWED_NS; /* what it got for nothing is not held against it long */
        queue->credit_ns = fmax(queue->credit_ns - (double)ran_ns, deepest);
        charge(queue->region, slot, ran_ns, now);
        double allowed = LOAD(slot->slowdown_ppm) / 1e6, full = allowed * BUDGET_WINDOW_NS;
        double budget = (double)LOAD(slot->budget_ns), wanted = clamp(budget + allowed * (double)ran_ns, -2 * full, full);
        atomic_fetch_add(&slot->budget_ns, (int64_t)(wanted - budget));
    }
    land(queue, false, now);
    if (queue->in_flight == 0) {
        became_idle(queue, now);
        release_token(queue->region, queue->index);
    }
    atomic_store(&slot->in_flight, queue->in_flight);
    return queue->in_flight == 0 && !is_top(queue->region, slot);
}
