#include "slots.h"

#include <string.h>

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

bool loom_take(struct loom_region *region, uint32_t index, uint32_t owner, uint32_t pid, uint64_t device,
               uint32_t priority, const char *name) {
    uint32_t place;
    struct loom_slot *slot = &region->slots[index];
    if (index >= LOOM_SLOTS || atomic_load(&slot->owner) != 0 || !find_device(region, device ? device : 1, &place))
        return false;
    for (size_t i = sizeof slot->owner; i < sizeof *slot; i++) /* others may still be looking at who had it before */
        atomic_store_explicit((_Atomic unsigned char *)slot + i, 0, memory_order_relaxed);
    strncpy(slot->name, name, LOOM_NAME - 1);
    slot->pid = pid;
    slot->device = place;
    slot->priority = priority;
    slot->slowdown_ppm = LOOM_SLOWDOWN_PPM;
    slot->floor_ppm = LOOM_FLOOR_PPM;
    uint32_t used = atomic_load(&region->used);
    while (used <= index && !atomic_compare_exchange_weak(&region->used, &used, index + 1)) {
    }
    atomic_store(&slot->owner, owner);
    return true;
}

void release_token(struct loom_region *region, uint32_t index) {
    uint32_t device = LOAD(region->slots[index].device), mine = index + 1;
    if (device < LOOM_DEVICES && LOAD(region->devices[device].filler) == mine)
        atomic_compare_exchange_strong(&region->devices[device].filler, &mine, 0);
}

void loom_give_back(struct loom_region *region, uint32_t index) {
    release_token(region, index);
    atomic_store(&region->slots[index].owner, 0);
}

uint32_t loom_company(const struct loom_region *region, uint32_t index) {
    uint32_t others = 0;
    for (uint32_t i = 0; i < used_slots(region); i++) others += shares_device(&region->slots[index], &region->slots[i]);
    return others;
}
