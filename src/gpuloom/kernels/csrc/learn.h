/* What a queue learns about its own kernels: how long each runs, and how long the queue stays idle after it.
 *
 * Both depend on the place in the sequence, told by the last four kernels: the layers of a network share kernels, with
 * other arguments. A kernel at a place never seen is judged by its runs at all places. */
#ifndef LEARN_H
#define LEARN_H

#include "loom.h"

enum { LEARN_KERNELS = 1024, LEARN_PLACES = 2048, LEARN_PROBES = 8, LEARN_BEFORE = 3 };

struct learn_runs {
    uint32_t count;
    double mean_ns, spread_ns; /* moving mean, moving mean absolute deviation */
};

struct learn_kernel {
    uint64_t id;
    struct learn_runs runs;
    bool from_profile;
    uint64_t profile_ns, profile_gap_ns; /* the profile's means, for LOOM_FIKIT */
};

struct learn_place {
    uint64_t key;
    struct learn_runs runs;
    uint32_t gap_count; /* gaps seen here, the last LOOM_GAPS of them kept */
    uint32_t gaps_us[LOOM_GAPS];
};

struct learner {
    struct learn_kernel kernels[LEARN_KERNELS];
    struct learn_place places[LEARN_PLACES];
    uint64_t before[LEARN_BEFORE]; /* the last kernels launched, the latest first */
};

/* The entry of a kernel, new if it is not known; an old one makes room where its neighbourhood is full. */
struct learn_kernel *learn_kernel(struct learner *learner, uint64_t id);
/* The place of a kernel that is launched now. */
struct learn_place *learn_place(struct learner *learner, uint64_t id);
void learn_launched(struct learner *learner, uint64_t id);
void learn_ran(struct learn_runs *runs, uint64_t ran_ns);
void learn_gap(struct learn_place *place, uint64_t gap_ns);
/* A length that not many runs exceed; a kernel never seen counts as short, so that it can be seen. */
uint64_t learn_length(const struct learn_kernel *kernel, const struct learn_place *place);

#endif
