/* What the two halves of the library share: codes, the caller's structures, a call, and what a handle leads to. */
#ifndef STANDIN_NVML_H
#define STANDIN_NVML_H
#include "world.h"

#define API __attribute__((visibility("default")))

typedef int code;
enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
    KILL = -1,
    NOTHING = -2,
};

/* Numbers of events and counters. */
enum { XID_CRITICAL = 0x8, ALL_OF_THE_GPU = -1 };
enum { CORRECTED, UNCORRECTED };
enum { VOLATILE, AGGREGATE };
enum { DEVICE_MEMORY = 2, SRAM = 7 };
enum { EXCLUSIVE_THREAD = 1, EXCLUSIVE_PROCESS = 3 };

/* What the caller's structures look like. Handles are numbers: nothing is behind them. */
typedef void *handle;
struct memory {
    unsigned long long total, free, used;
};
struct memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct bar1_memory {
    unsigned long long total, free, used;
};
struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, pci_id, subsystem_id;
    char bus_id[32];
};
struct place {
    unsigned start, size;
};
struct instance_profile {
    unsigned id, p2p, slices, count, sms, copies, decoders, encoders, jpegs, ofas;
    unsigned long long mem_mib;
};
struct instance_profile2 {
    unsigned version, id, p2p, slices, count, sms, copies, decoders, encoders, jpegs, ofas;
    unsigned long long mem_mib;
    char name[96];
};
struct instance_info {
    handle device;
    unsigned id, profile;
    struct place place;
};
struct compute_profile {
    unsigned id, slices, count, sms, copies, decoders, encoders, jpegs, ofas;
};
struct compute_profile2 {
    unsigned version;
    struct compute_profile base;
    char name[96];
};
struct compute_info {
    handle device, instance;
    unsigned id, profile;
    struct place place;
};
struct attributes {
    unsigned sms, copies, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
    unsigned long long mem_mib;
};
struct event {
    handle device;
    unsigned long long type, data;
    unsigned gi, ci;
};
struct process_info {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
};
_Static_assert(sizeof(struct instance_profile2) == 0x98, "as nvmlGpuInstanceProfileInfo_v2 says");
_Static_assert(sizeof(struct compute_profile2) == 0x88, "as nvmlComputeInstanceProfileInfo_v2 says");

/* What a model's board is to others than who cuts it. 0: not known. */
enum memory_repair { NO_ECC, PAGE_RETIREMENT, ROW_REMAPPING };
struct board {
    const char *model;
    unsigned pci_id, bar1_mib, cuda_major, cuda_minor, architecture;
    enum memory_repair repair;
};
const struct board *board_of(const struct model *model);
/* What a transcript says of the board of its model, like this one else; of any other model: this one. */
const struct board *replayed_board(const struct model *of, const struct board *like);

/* One call into the library: the world as it is now, locked until the call ends. */
struct call {
    int file, changed;
    code late;
    const char *function;
    struct world world;
};

code enter(struct call *call, const char *function);
code leave(struct call *call, code result);

#define ENTER(call)                         \
    struct call call;                       \
    code entered_ = enter(&call, __func__); \
    if (entered_ != OK) return entered_ == NOTHING ? OK : entered_

/* What a handle says: a kind, the GPU's number, ids of GPU instance and compute instance, the serial of the last. */
enum kind { DEVICE = 1, MIG_DEVICE, INSTANCE, COMPUTE };

struct seen {
    unsigned number;
    struct gpu *gpu;
    const struct model *model;
    struct instance *gi;
    const struct profile *profile;
    struct compute *ci;
};

handle make_handle(enum kind kind, unsigned gpu, unsigned gi, unsigned ci, unsigned serial);
handle instance_handle(const struct seen *seen);
struct instance *instance_with(struct gpu *gpu, unsigned id);
struct compute *compute_with(struct instance *gi, unsigned id);
/* Follow a handle of one of these kinds (a bit mask). One to something that is gone is an invalid argument. */
code see(struct call *call, handle from, unsigned kinds, struct seen *seen);
/* The last user of the library has gone, and with him what he waited for. */
void forget_event_sets(void);
code put_text(char *to, unsigned size, const char *text);
const char *driver_version(void);
/* Whether the driver says what this GPU can be cut into, as it is now. */
int tells_profiles(const struct seen *seen);
/* What GPULOOM_STANDIN_MODES says of this setting of all GPUs; else what it is. */
unsigned mode_named(const char *name, unsigned usual);
/* Whether the caller counts as root. */
int privileged(void);
/* Whether a process runs there, or did until a moment ago; -1 as gi or ci: whatever it is. */
int in_use(const struct call *call, unsigned gpu, int gi, int ci);

enum { ANY_DEVICE = 1 << DEVICE | 1 << MIG_DEVICE };

/* ENTER, the handle, and the caller's right to ask, in one. */
#define SEE(call, seen, from, kinds)             \
    ENTER(call);                                 \
    struct seen seen;                            \
    code seen_ = see(&call, from, kinds, &seen); \
    if (seen_ != OK) return leave(&call, seen_)

#define NEED(call, condition, error)                    \
    do {                                                \
        if (!(condition)) return leave(&call, (error)); \
    } while (0)
#endif
