/* The core of kernel-level sharing: what the processes of one machine share, and the decision who may launch next.
 *
 * Nothing here reads a clock, waits, or knows OpenCL or CUDA: every function takes the time (CLOCK_MONOTONIC, ns) as an
 * argument. The front ends (opencl_layer.c, cuda_hook.c) call it through runtime.h with the real clock; the replay in
 * Python calls it with a simulated one. So the two cannot drift apart.
 *
 * One slot for each command queue or stream. A slot of the top priority never waits. The others ask before each launch.
 */
#ifndef LOOM_H
#define LOOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOOM_API __attribute__((visibility("default")))

enum { LOOM_VERSION = 1, LOOM_SLOTS = 64, LOOM_DEVICES = 16, LOOM_GAPS = 32, LOOM_NAME = 24, LOOM_LOWEST = 9 };
/* Of a slot that does not say; kernels/__init__.py has the same. */
enum { LOOM_SLOWDOWN_PPM = 100000, LOOM_FLOOR_PPM = 100000 };
#define LOOM_MAGIC 0x6d6f6f6c75706721u /* "!gpuloom", little endian */

enum loom_policy {
    LOOM_SHARE,  /* no gate: what the runtime does by itself */
    LOOM_STRICT, /* launch while nothing higher is in flight, one kernel at a time */
    LOOM_FIKIT,  /* the published BestPrioFit: one mean gap and one mean length for each kernel, from a profile */
    LOOM_FILL    /* ours: see gate.c */
};

/* Everything that others may read is atomic. Only the owner writes, but for what lower priorities charge to its budget,
 * and for `owner` itself, which is cleared for the dead. */
struct loom_slot {
    _Alignas(64) _Atomic uint32_t owner; /* a random number of the process, 0: the slot is free */
    _Atomic uint32_t pid;                /* to show */
    _Atomic uint32_t device;             /* index into loom_region.devices */
    _Atomic uint32_t priority;           /* 0 is the highest */
    _Atomic uint32_t in_flight;          /* launched and not complete */
    _Atomic uint32_t slowdown_ppm;       /* how much lower priorities may slow this slot down */
    _Atomic uint32_t floor_ppm;          /* share of the device that higher priorities leave to this slot */
    _Atomic uint64_t waiting_since;      /* 0: does not wait */
    _Atomic uint64_t pending_ns;         /* expected length of the kernel that waits */
    _Atomic uint64_t busy_since;         /* when it launched the first of what is in flight */
    _Atomic uint64_t idle_since;         /* when its last kernel ended; 0: none has */
    _Atomic uint64_t busy_until;         /* when what it has in flight is expected to end */
    _Atomic int64_t budget_ns;           /* delay that it can still take, see LOOM_FILL */
    _Atomic uint64_t fikit_gap_ns;       /* the profile's mean gap after its last kernel */
    _Atomic uint32_t gap_count;          /* gaps seen before at this place of its kernel sequence */
    _Atomic uint32_t gaps_us[LOOM_GAPS];
    /* Counters, for `gpuloom kernels top`; of the gaps also how long they were, and how far from what was expected. */
    _Atomic uint64_t launches, fills, floors, overruns, overrun_ns, waited_ns, ran_ns, gaps, gaps_ns, gap_error_ns;
    char name[LOOM_NAME];
};

struct loom_device {
    _Atomic uint64_t key;    /* what the front end calls the device, 0: free */
    _Atomic uint32_t filler; /* slot + 1 of the one that may fill, 0: nobody */
};

struct loom_region {
    _Atomic uint64_t magic;
    _Atomic uint32_t version, size;
    _Atomic uint32_t policy;
    _Atomic uint32_t used;           /* no slot at or above this index was ever taken */
    _Atomic uint32_t bell, sleepers; /* futex word; set by who is about to sleep, taken by who rings */
    struct loom_device devices[LOOM_DEVICES];
    struct loom_slot slots[LOOM_SLOTS];
};

/* The owner's side of a slot: what it has learnt about its own kernels, and its accounts. Not shared; guard it with a
 * lock. */
struct loom_queue;

LOOM_API void loom_region_init(struct loom_region *region);
LOOM_API uint64_t loom_region_bytes(void);

/* A slot at `index` for `owner`; false where another has it or there are too many devices. */
LOOM_API bool loom_take(struct loom_region *region, uint32_t index, uint32_t owner, uint32_t pid, uint64_t device,
                        uint32_t priority, const char *name);
LOOM_API void loom_give_back(struct loom_region *region, uint32_t index);

LOOM_API struct loom_queue *loom_queue_new(struct loom_region *region, uint32_t index);
LOOM_API void loom_queue_free(struct loom_queue *queue);

/* What a profile tells before the first launch. */
LOOM_API void loom_expect(struct loom_queue *queue, uint64_t kernel, uint64_t mean_ns, uint64_t mean_gap_ns);

/* Others on the same device: 0 means that nobody needs to know what this slot does. */
LOOM_API uint32_t loom_company(const struct loom_region *region, uint32_t index);

/* May this kernel start now? True: it counts as in flight, launch it. False: ask again when the bell rings or at
 * *again_ns. */
LOOM_API bool loom_ask(struct loom_queue *queue, uint64_t kernel, uint64_t now_ns, uint64_t *again_ns);
/* Launches went by untold: the gap that ends with the next one is not known. */
LOOM_API void loom_missed(struct loom_queue *queue);
/* This kernel starts now, whoever minds: its host must not wait. */
LOOM_API void loom_go(struct loom_queue *queue, uint64_t kernel, uint64_t now_ns);
/* The launch failed: it is not in flight any more. True: wake those who wait. */
LOOM_API bool loom_failed(struct loom_queue *queue, uint64_t now_ns);
/* It ended, after running for `ran_ns` (0: not known). True: wake those who wait. */
LOOM_API bool loom_ended(struct loom_queue *queue, uint64_t kernel, uint64_t ran_ns, uint64_t now_ns);

/* The parts of the decision that stand for themselves, for tests. */
LOOM_API double loom_expected_delay(const uint32_t *gaps_us, uint32_t count, double elapsed_ns, double length_ns);
LOOM_API uint64_t loom_kernel_id(const char *name, uint32_t dims, const uint64_t *grid, const uint64_t *block);

#endif
