/* What a queue learns about its own kernels: how long each runs, and how long the queue stays idle after each place of the
 * sequence. A place is told by the last four kernels, since the layers of a network share kernels. */
#ifndef LEARN_H
#define LEARN_H

#include "loom.h"

enum { LEARN_KERNELS = 1024, LEARN_PLACES = 2048, LEARN_PROBES = 8, LEARN_BEFORE = 4 };

struct learn_kernel {
    uint64_t id;
    uint32_t runs;
    bool from_profile;
    double mean_ns, spread_ns;               /* of the runs seen: moving mean, moving mean absolute deviation */
    uint64_t profile_ns, profile_gap_ns;     /* the profile's means, for LOOM_FIKIT */
};

struct learn_place {
    uint64_t key;
    uint32_t count;                /* gaps seen here, the last LOOM_GAPS of them kept */
    uint32_t gaps_us[LOOM_GAPS];
};

struct learner {
    struct learn_kernel kernels[LEARN_KERNELS];
    struct learn_place places[LEARN_PLACES];
    uint64_t before[LEARN_BEFORE]; /* the last kernels launched, the latest first */
};

/* The entry of a kernel, new if it is not known; an old one makes room where its neighbourhood is full. */
struct learn_kernel *learn_kernel(struct learner *learner, uint64_t id);
void learn_launch(struct learner *learner, uint64_t id);
void learn_ran(struct learner *learner, uint64_t id, uint64_t ran_ns);
/* The place after the last launch. */
struct learn_place *learn_place(struct learner *learner);
void learn_gap(struct learn_place *place, uint64_t gap_ns);
/* A length that few runs exceed; a kernel never seen counts as short, so that it can be seen. */
uint64_t learn_length(struct learner *learner, uint64_t id);

#endif
