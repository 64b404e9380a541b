/* Slots of the shared memory: reading them, and who is higher than whom. For the files of the core only. */
#ifndef SLOTS_H
#define SLOTS_H

#include "loom.h"

/* Nobody waits longer, whatever the policy: a higher queue may be waiting for us. */
#define LONGEST_WAIT_NS 1000000000u

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)
/* Counters have one writer: an addition without a locked instruction. */
#define COUNT(field, more) STORE(field, LOAD(field) + (more))

static inline uint32_t used_slots(const struct loom_region *region) {
    uint32_t used = LOAD(region->used);
    return used < LOOM_SLOTS ? used : LOOM_SLOTS;
}

static inline bool shares_device(const struct loom_slot *slot, const struct loom_slot *other) {
    return slot != other && atomic_load_explicit(&other->owner, memory_order_acquire) != 0 &&
           LOAD(slot->device) == LOAD(other->device);
}

static inline bool is_top(const struct loom_region *region, const struct loom_slot *slot) {
    for (uint32_t i = 0; i < used_slots(region); i++)
        if (shares_device(slot, &region->slots[i]) && LOAD(region->slots[i].priority) < LOAD(slot->priority))
            return false;
    return true;
}

/* Says that it is busy, but long after that should be over: it was stopped, its kernel failed unheard, or waits for the
 * host. */
static inline bool stuck(const struct loom_slot *slot, uint64_t now) {
    uint64_t until = LOAD(slot->busy_until);
    return now > until && now - until > LONGEST_WAIT_NS;
}

/* Nobody fills any more, if it was this slot. */
void release_token(struct loom_region *region, uint32_t index);

#endif
