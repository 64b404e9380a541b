/* Who may launch next.
 *
 * LOOM_FILL is one inequality. A kernel of `length` may start when, for every higher priority on the device, which must
 * be idle,
 *
 *     expected delay to it  <=  price * length
 *
 * The expected delay comes from the gaps that the higher slot saw before at this place of its kernel sequence, given
 * how long it has been idle by now. The price is the larger of two:
 *   - what the higher slot can afford. It may be slowed down by a stated part; that part of the time it runs goes into
 * its budget, every delay that it really meets is taken out. A full budget is a price of one, an empty one of zero:
 * only kernels that fit surely, and the deeper in debt, the more surely. So wrong guesses make the next ones careful.
 *     A slot that has been idle for longer than ever may be gone for good, so then it always pays a little.
 *   - what the waiting slot is owed. It has a floor, a part of the device that is its own; the longer it has been below
 *     the floor, the worse a gap it takes. Long kernels, which fit nowhere, thereby start where they harm least.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn.h"
#include "slots.h"

#define BUDGET_WINDOW_NS 50000000.0 /* a full budget: the allowed part of this much running time */
#define DEEPEST_DEBT 2.0            /* so many full budgets can be lacking */
#define LEAST_REPAID 0.01           /* who allows no slowdown at all still forgives, at this part of its running time */
#define MOST_FLOORS 0.5             /* of a device, all floors together */
#define OWED_NS 50000000.0          /* so long below its floor, a slot takes any gap */
#define MOST_OWED_NS 75000000.0     /* more is forgotten; above OWED_NS, so that waking up late loses nothing */
#define GONE_PRICE 0.05             /* of a slot that is idle for longer than ever, whatever its budget */
#define AHEAD_NS 300000u            /* work that a filler keeps in flight, so that its wake-ups do not show */
#define FIKIT_EPSILON_NS 10000u     /* smaller gaps are not worth filling */
/* The top priority wakes nobody: that would cost it, just when its answer is ready. Who waits for its end looks by
 * himself. */
#define LOOK_MIN_NS 150000u
#define LOOK_MAX_NS 2000000u
#define RECHECK_MIN_NS 200000u
#define RECHECK_MAX_NS 10000000u

#define UNKNOWN_NS UINT64_MAX

enum { FLYING = 64 };

struct loom_queue {
    struct loom_region *region;
    struct loom_slot *slot;
    uint32_t index, in_flight;
    uint64_t begun, done; /* kernels, ever */
    struct {
        uint64_t kernel, place; /* ids: an entry of the learner may have made room meanwhile */
        struct learn_place *at;
        uint64_t length_ns;    /* expected */
    } flying[FLYING];          /* those in flight, by number; of more than that nobody needs to foresee the end */
    struct learn_place *place; /* where the queue became idle */
    double floor, credit_ns;   /* its floor, and what that owes; negative: has had more */
    uint64_t credited_at;
    struct learner learner;
};

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

/* The decision */

/* How many of the gaps are longer than the queue has been idle, and by how much the kernel would outlast them, on
 * average. */
static uint32_t longer_gaps(const uint32_t *gaps_us, uint32_t count, double elapsed_ns, double length_ns,
                            double *delay_ns) {
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
    if (elapsed_ns < 1) return length_ns;
    return length_ns - elapsed_ns * log1p(length_ns / elapsed_ns);
}

struct wish {
    const struct loom_slot *slot;
    double length_ns;    /* of the kernel */
    double in_flight_ns; /* what its queue has in flight */
    double owed;         /* the price that its floor pays */
    bool length_known;
};

static double clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

/* Look again that much later, or earlier if there is another reason to. */
static void look_again(uint64_t *again, uint64_t now, double later_ns, double least_ns, double most_ns) {
    uint64_t then = now + (uint64_t)clamp(later_ns, least_ns, most_ns);
    if (then < *again) *again = then;
}

/* The part of its running time that flows into a slot's budget. */
static double repaid(const struct loom_slot *slot) { return fmax(LOAD(slot->slowdown_ppm) / 1e6, LEAST_REPAID); }

static bool fill_allows(const struct loom_slot *higher, const struct wish *wish, double idle_ns) {
    double full = repaid(higher) * BUDGET_WINDOW_NS;
    double fullness = (double)LOAD(higher->budget_ns) / full; /* below 0: a debt */
    double price = clamp(fullness, 0, 1);
    if (wish->owed > price) price = wish->owed;
    uint32_t gaps_us[LOOM_GAPS], count = LOAD(higher->gap_count);
    if (count > LOOM_GAPS) count = LOOM_GAPS;
    for (uint32_t i = 0; i < count; i++) gaps_us[i] = LOAD(higher->gaps_us[i]);
    double ignored;
    bool may_be_gone = longer_gaps(gaps_us, count, idle_ns, 0, &ignored) == 0;
    if (may_be_gone && price < GONE_PRICE) price = GONE_PRICE; /* no budget grows while nobody runs */
    double length_ns = wish->length_ns;
    if (price <= 0) length_ns *= 1 + clamp(-fullness, 0, DEEPEST_DEBT); /* what should fit did not: more room */
    double with = loom_expected_delay(gaps_us, count, idle_ns, wish->in_flight_ns + length_ns);
    double without = loom_expected_delay(gaps_us, count, idle_ns, wish->in_flight_ns);
    return with - without <= price * wish->length_ns;
}

static bool fikit_allows(const struct loom_slot *higher, const struct wish *wish, double idle_ns) {
    double gap = (double)LOAD(higher->fikit_gap_ns);
    if (idle_ns >= gap) return idle_ns >= FIKIT_EPSILON_NS && wish->in_flight_ns <= 0; /* over, and nothing came */
    return gap >= FIKIT_EPSILON_NS && wish->length_known && wish->in_flight_ns + wish->length_ns <= gap - idle_ns;
}

/* Would the kernel fit, as far as the higher priorities on its device go? Also when to look again, if time alone
 * changes it. */
static bool fits(const struct loom_region *region, enum loom_policy policy, const struct wish *wish, uint64_t now,
                 uint64_t *again) {
    for (uint32_t i = 0; i < used_slots(region); i++) {
        const struct loom_slot *other = &region->slots[i];
        if (!shares_device(wish->slot, other) || LOAD(other->priority) >= LOAD(wish->slot->priority)) continue;
        if (atomic_load_explicit(&other->in_flight, memory_order_acquire) != 0) {
            if (stuck(other, now)) continue;
            if (policy == LOOM_FILL && wish->owed >= 1) continue; /* there was no gap for too long */
            uint64_t until = LOAD(other->busy_until);
            double left = until > now ? 0.8 * (double)(until - now) : 0; /* nearer and nearer */
            look_again(again, now, left, LOOK_MIN_NS, LOOK_MAX_NS);
            return false;
        }
        uint64_t since = LOAD(other->idle_since); /* 0: it has never launched anything, so there is no gap to foresee */
        double idle_ns = now > since ? (double)(now - since) : 0;
        bool one_at_a_time = policy == LOOM_STRICT || (policy == LOOM_FIKIT && since == 0);
        if ((one_at_a_time && wish->in_flight_ns > 0) ||
            (policy == LOOM_FIKIT && since != 0 && !fikit_allows(other, wish, idle_ns)) ||
            (policy == LOOM_FILL && since != 0 && !fill_allows(other, wish, idle_ns))) {
            double later = policy == LOOM_FIKIT ? (double)LOAD(other->fikit_gap_ns) - idle_ns : idle_ns / 4;
            look_again(again, now, later, RECHECK_MIN_NS, RECHECK_MAX_NS);
            return false;
        }
    }
    return true;
}

/* Is there somebody of higher priority, or of the same and waiting for longer, who waits and could go? */
static bool others_first(const struct loom_region *region, enum loom_policy policy, const struct loom_slot *slot,
                         uint64_t now, uint64_t asked_at) {
    uint64_t ignored = UINT64_MAX;
    for (uint32_t i = 0; i < used_slots(region); i++) {
        const struct loom_slot *other = &region->slots[i];
        uint64_t since = LOAD(other->waiting_since);
        uint32_t theirs = LOAD(other->priority), mine = LOAD(slot->priority);
        if (!shares_device(slot, other) || since == 0 || theirs > mine) continue;
        if (now > since && now - since > LONGEST_WAIT_NS) continue; /* it was stopped while it waited */
        if (theirs == mine && (since > asked_at || (since == asked_at && other > slot))) continue;
        uint64_t pending_ns = LOAD(other->pending_ns);
        struct wish wish = {other, (double)pending_ns, 0, 0, pending_ns != UNKNOWN_NS};
        if (LOAD(other->in_flight) == 0 && fits(region, policy, &wish, now, &ignored)) return true;
    }
    return false;
}

static bool take_token(struct loom_queue *queue, uint64_t now) {
    uint32_t holder = 0, mine = queue->index + 1, device = LOAD(queue->slot->device);
    if (device >= LOOM_DEVICES) return true; /* nonsense in the shared memory: nobody is to hang on it */
    _Atomic uint32_t *filler = &queue->region->devices[device].filler;
    if (atomic_compare_exchange_strong(filler, &holder, mine) || holder == mine) return true;
    bool lost = holder > LOOM_SLOTS || stuck(&queue->region->slots[holder - 1], now);
    return lost && atomic_compare_exchange_strong(filler, &holder, mine);
}

/* Its floor. Floors of one device that add up to too much are all cut: the top priority must not lose the device to
 * them. */
static double floor_of(const struct loom_region *region, const struct loom_slot *slot) {
    uint32_t top = LOAD(slot->priority);
    double own = LOAD(slot->floor_ppm) / 1e6, all = own;
    for (uint32_t i = 0; i < used_slots(region); i++)
        if (shares_device(slot, &region->slots[i]) && LOAD(region->slots[i].priority) < top)
            top = LOAD(region->slots[i].priority);
    for (uint32_t i = 0; i < used_slots(region); i++)
        if (shares_device(slot, &region->slots[i]) && LOAD(region->slots[i].priority) > top)
            all += LOAD(region->slots[i].floor_ppm) / 1e6;
    return own * (all > MOST_FLOORS ? MOST_FLOORS / all : 1);
}

/* The floor pays for time in which the queue waits or runs, not for time in which its host has nothing to launch. */
static void settle_credit(struct loom_queue *queue, uint64_t now) {
    bool wants = queue->in_flight != 0 || LOAD(queue->slot->waiting_since) != 0;
    queue->floor = floor_of(queue->region, queue->slot);
    if (wants && now > queue->credited_at) queue->credit_ns += queue->floor * (double)(now - queue->credited_at);
    queue->credit_ns = fmin(queue->credit_ns, queue->floor * MOST_OWED_NS);
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
        uint64_t gap_ns = asked_at - idle_since, sum_us = 0;
        uint32_t kept = kept_gaps(queue->place);
        for (uint32_t i = 0; i < kept; i++) sum_us += queue->place->gaps_us[i];
        COUNT(slot->gaps, 1);
        if (kept) {
            uint64_t expected_ns = sum_us * 1000 / kept;
            COUNT(slot->gaps_ns, gap_ns);
            COUNT(slot->gap_error_ns, gap_ns > expected_ns ? gap_ns - expected_ns : expected_ns - gap_ns);
        }
        learn_gap(queue->place, gap_ns);
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

/* What the queue has in flight, in time. What is behind the oldest kernel does not shrink before that one has ended,
 * however late it is: else one long kernel that counts as short would let all the others follow. */
static double unfinished_ns(const struct loom_queue *queue, uint64_t now) {
    uint64_t until = LOAD(queue->slot->busy_until), behind = 0;
    if (queue->in_flight == 0 || stuck(queue->slot, now)) return 0;
    for (uint64_t i = queue->done + 1; i < queue->begun && i < queue->done + FLYING; i++)
        behind += queue->flying[i % FLYING].length_ns;
    return fmax(until > now ? (double)(until - now) : 1, (double)behind);
}

void loom_missed(struct loom_queue *queue) { queue->place = NULL; }

void loom_go(struct loom_queue *queue, uint64_t kernel, uint64_t now) {
    const struct learn_kernel *known = learn_kernel(&queue->learner, kernel);
    settle_credit(queue, now);
    begin(queue, kernel, learn_length(known, learn_place(&queue->learner, kernel)), now, now);
}

bool loom_ask(struct loom_queue *queue, uint64_t kernel, uint64_t now, uint64_t *again) {
    struct loom_region *region = queue->region;
    struct loom_slot *slot = queue->slot;
    enum loom_policy policy = (enum loom_policy)LOAD(region->policy);
    uint64_t asked_at = LOAD(slot->waiting_since);
    if (asked_at == 0 || asked_at > now) asked_at = now;
    settle_credit(queue, now);
    const struct learn_kernel *known = learn_kernel(&queue->learner, kernel);
    uint64_t length =
        policy == LOOM_FIKIT ? known->profile_ns : learn_length(known, learn_place(&queue->learner, kernel));
    *again = UINT64_MAX;
    if (policy == LOOM_SHARE || policy > LOOM_FILL || is_top(region, slot)) {
        release_token(region, queue->index); /* it may have been a filler before */
        begin(queue, kernel, length, now, asked_at);
        return true;
    }
    struct wish wish = {slot, (double)length, unfinished_ns(queue, now), 0, known->from_profile};
    if (policy == LOOM_FILL && queue->floor > 0) wish.owed = clamp(queue->credit_ns / (queue->floor * OWED_NS), 0, 1);
    bool overdue = now - asked_at >= LONGEST_WAIT_NS;
    bool due = wish.owed >= 1;                      /* its floor is not the others' to give */
    double lead_ns = AHEAD_NS + (double)length / 2; /* the longer the kernels, the less sure is their end */
    if (due) lead_ns = fmax(lead_ns, queue->floor * OWED_NS);
    if (!known->runs.count && !known->from_profile) lead_ns = 0; /* nobody knows how long: not behind another one */
    bool ahead = policy == LOOM_FILL && wish.in_flight_ns > lead_ns;
    if (ahead) look_again(again, now, wish.in_flight_ns - lead_ns, LOOK_MIN_NS, LOOK_MAX_NS);
    if (overdue || (!ahead && fits(region, policy, &wish, now, again) &&
                    (due || (!others_first(region, policy, slot, now, asked_at) && take_token(queue, now))))) {
        COUNT(slot->fills, 1);
        if (wish.owed > 0) COUNT(slot->floors, 1);
        begin(queue, kernel, length, now, asked_at);
        return true;
    }
    STORE(slot->pending_ns, policy == LOOM_FIKIT && !known->from_profile ? UNKNOWN_NS : length);
    atomic_store(&slot->waiting_since, asked_at);
    if (*again > asked_at + LONGEST_WAIT_NS) *again = asked_at + LONGEST_WAIT_NS;
    return false;
}

/* One less in flight. What the others still need, from now on: guesses do not add up, they start afresh with each end.
 */
static void land(struct loom_queue *queue, bool failed, uint64_t now) {
    queue->in_flight--;
    if (failed)
        queue->begun--; /* the latest */
    else
        queue->done++;
    uint64_t rest_ns = 0;
    for (uint64_t i = queue->done; i < queue->begun && i < queue->done + FLYING; i++)
        rest_ns += queue->flying[i % FLYING].length_ns;
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

/* A kernel ended after running for `ran_ns`: who of higher priority had to wait for it, and how long? That is no guess
 * any more. */
static void charge(struct loom_region *region, const struct loom_slot *slot, uint64_t ran_ns, uint64_t now) {
    for (uint32_t i = 0; i < used_slots(region); i++) {
        struct loom_slot *other = &region->slots[i];
        if (!shares_device(slot, other) || LOAD(other->priority) >= LOAD(slot->priority) || !LOAD(other->in_flight))
            continue;
        uint64_t since = LOAD(other->busy_since), delay = now > since ? now - since : 0;
        if (delay > ran_ns) delay = ran_ns;
        if (delay == 0) continue;
        atomic_fetch_add(&other->overruns, 1);
        atomic_fetch_add(&other->overrun_ns, delay);
        if (LOAD(region->policy) == LOOM_FILL) atomic_fetch_sub(&other->budget_ns, (int64_t)delay);
    }
}

static void repay(struct loom_slot *slot, uint64_t ran_ns) {
    double full = repaid(slot) * BUDGET_WINDOW_NS, most = LOAD(slot->slowdown_ppm) ? full : 0;
    double budget = (double)LOAD(slot->budget_ns);
    double wanted = clamp(budget + repaid(slot) * (double)ran_ns, -DEEPEST_DEBT * full, most);
    atomic_fetch_add(&slot->budget_ns, (int64_t)(wanted - budget));
}

bool loom_ended(struct loom_queue *queue, uint64_t kernel, uint64_t ran_ns, uint64_t now) {
    struct loom_slot *slot = queue->slot;
    if (queue->in_flight == 0) return false;
    settle_credit(queue, now);
    if (ran_ns) {
        learn_ran(&learn_kernel(&queue->learner, kernel)->runs, ran_ns);
        uint64_t number =
            queue->done % FLYING; /* the oldest; not so in a queue without order, nor if there are too many */
        struct learn_place *at = queue->flying[number].at;
        if (queue->begun - queue->done <= FLYING && queue->flying[number].kernel == kernel && at &&
            at->key == queue->flying[number].place)
            learn_ran(&at->runs, ran_ns);
        COUNT(slot->ran_ns, ran_ns);
        double deepest =
            -(double)ran_ns - queue->floor * OWED_NS; /* what it got for nothing is not held against it long */
        queue->credit_ns = fmax(queue->credit_ns - (double)ran_ns, deepest);
        charge(queue->region, slot, ran_ns, now);
        repay(slot, ran_ns);
    }
    land(queue, false, now);
    if (queue->in_flight == 0) {
        became_idle(queue, now);
        release_token(queue->region, queue->index);
    }
    atomic_store(&slot->in_flight, queue->in_flight);
    return queue->in_flight == 0 && !is_top(queue->region, slot);
}
