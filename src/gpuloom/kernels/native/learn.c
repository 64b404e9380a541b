#include "learn.h"

#include <math.h>
#include <string.h>

#define UNSEEN_NS 100000u

static uint64_t mix(uint64_t value) {
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    value ^= value >> 32;
    return value;
}

struct learn_kernel *learn_kernel(struct learner *learner, uint64_t id) {
    uint32_t first = (uint32_t)mix(id) % LEARN_KERNELS;
    struct learn_kernel *rarest = &learner->kernels[first];
    for (uint32_t probe = 0; probe < LEARN_PROBES; probe++) {
        struct learn_kernel *entry = &learner->kernels[(first + probe) % LEARN_KERNELS];
        if (entry->id == id) return entry;
        if (entry->runs < rarest->runs) rarest = entry;
        if (entry->id == 0) {
            rarest = entry;
            break;
        }
    }
    memset(rarest, 0, sizeof *rarest);
    rarest->id = id;
    return rarest;
}

void learn_launch(struct learner *learner, uint64_t id) {
    memmove(&learner->before[1], &learner->before[0], sizeof learner->before - sizeof learner->before[0]);
    learner->before[0] = id;
}

void learn_ran(struct learner *learner, uint64_t id, uint64_t ran_ns) {
    struct learn_kernel *kernel = learn_kernel(learner, id);
    double length = (double)ran_ns;
    if (kernel->runs < UINT32_MAX) kernel->runs++;
    double weight = kernel->runs < 16 ? 1.0 / kernel->runs : 1.0 / 16;
    if (kernel->runs == 1) kernel->mean_ns = length;
    kernel->spread_ns += weight * (fabs(length - kernel->mean_ns) - kernel->spread_ns);
    kernel->mean_ns += weight * (length - kernel->mean_ns);
}

struct learn_place *learn_place(struct learner *learner) {
    uint64_t key = 1;
    for (uint32_t i = 0; i < LEARN_BEFORE; i++) key = mix(key * 31 + learner->before[i]) | 1;
    uint32_t first = (uint32_t)(key >> 8) % LEARN_PLACES;
    struct learn_place *rarest = &learner->places[first];
    for (uint32_t probe = 0; probe < LEARN_PROBES; probe++) {
        struct learn_place *place = &learner->places[(first + probe) % LEARN_PLACES];
        if (place->key == key) return place;
        if (place->count < rarest->count) rarest = place;
        if (place->key == 0) {
            rarest = place;
            break;
        }
    }
    memset(rarest, 0, sizeof *rarest);
    rarest->key = key;
    return rarest;
}

void learn_gap(struct learn_place *place, uint64_t gap_ns) {
    uint64_t gap_us = gap_ns / 1000;
    place->gaps_us[place->count % LOOM_GAPS] = gap_us < UINT32_MAX ? (uint32_t)gap_us : UINT32_MAX;
    place->count++;
    if (place->count == 2 * LOOM_GAPS) place->count = LOOM_GAPS; /* the ring is full and stays so */
}

uint64_t learn_length(struct learner *learner, uint64_t id) {
    struct learn_kernel *kernel = learn_kernel(learner, id);
    if (kernel->runs == 0) return kernel->from_profile ? kernel->profile_ns : UNSEEN_NS;
    return (uint64_t)(kernel->mean_ns + 2 * kernel->spread_ns);
}
