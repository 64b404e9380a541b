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
        if (entry->id == 0) {
            rarest = entry;
            break;
        }
        if (entry->runs.count < rarest->runs.count) rarest = entry;
    }
    memset(rarest, 0, sizeof *rarest);
    rarest->id = id;
    return rarest;
}

struct learn_place *learn_place(struct learner *learner, uint64_t id) {
    uint64_t key = mix(31 + id) | 1;
    for (uint32_t i = 0; i < LEARN_BEFORE; i++) key = mix(key * 31 + learner->before[i]) | 1;
    uint32_t first = (uint32_t)(key >> 8) % LEARN_PLACES;
    struct learn_place *rarest = &learner->places[first];
    for (uint32_t probe = 0; probe < LEARN_PROBES; probe++) {
        struct learn_place *place = &learner->places[(first + probe) % LEARN_PLACES];
        if (place->key == key) return place;
        if (place->key == 0) {
            rarest = place;
            break;
        }
        if (place->runs.count < rarest->runs.count) rarest = place;
    }
    memset(rarest, 0, sizeof *rarest);
    rarest->key = key;
    return rarest;
}

void learn_launched(struct learner *learner, uint64_t id) {
    memmove(&learner->before[1], &learner->before[0], sizeof learner->before - sizeof learner->before[0]);
    learner->before[0] = id;
}

void learn_ran(struct learn_runs *runs, uint64_t ran_ns) {
    double length = (double)ran_ns;
    if (runs->count < UINT32_MAX) runs->count++;
    double weight = runs->count < 16 ? 1.0 / runs->count : 1.0 / 16;
    if (runs->count == 1) runs->mean_ns = length;
    double far =
        4 * runs->spread_ns + runs->mean_ns / 8; /* once in a while the machine is away: such a run tells little */
    if (runs->count > 8) length = fmax(fmin(length, runs->mean_ns + far), runs->mean_ns - far);
    runs->spread_ns += weight * (fabs(length - runs->mean_ns) - runs->spread_ns);
    runs->mean_ns += weight * (length - runs->mean_ns);
}

void learn_gap(struct learn_place *place, uint64_t gap_ns) {
    uint64_t gap_us = gap_ns / 1000;
    place->gaps_us[place->gap_count % LOOM_GAPS] = gap_us < UINT32_MAX ? (uint32_t)gap_us : UINT32_MAX;
    place->gap_count++;
    if (place->gap_count == 2 * LOOM_GAPS) place->gap_count = LOOM_GAPS; /* the ring is full and stays so */
}

uint64_t learn_length(const struct learn_kernel *kernel, const struct learn_place *place) {
    const struct learn_runs *runs = place->runs.count ? &place->runs : &kernel->runs;
    if (runs->count) return (uint64_t)(runs->mean_ns + runs->spread_ns);
    return kernel->from_profile ? kernel->profile_ns : UNSEEN_NS;
}
