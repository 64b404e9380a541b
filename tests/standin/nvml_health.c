/* How the stand-in's GPUs are: critical errors as events, ECC errors, and memory that is to be set aside. */
#define _GNU_SOURCE
#include "nvml.h"

#include <string.h>
#include <time.h>

/* --- events ---------------------------------------------------------------------------------------------------- */

enum { MAX_EVENT_SETS = 16, LOOK_AGAIN_NS = 5000000 };

/* What somebody waits for: of each GPU, errors after this serial. Touched only while the world is locked. */
struct event_set {
    int used, registered[MAX_GPUS];
    unsigned told[MAX_GPUS];
};
static struct event_set sets[MAX_EVENT_SETS];

void forget_event_sets(void) { memset(sets, 0, sizeof sets); }

static int is_set(const struct event_set *set) {
    for (unsigned i = 0; i < MAX_EVENT_SETS; i++)
        if (set == &sets[i]) return set->used;
    return 0;
}

API code nvmlEventSetCreate(struct event_set **made) {
    ENTER(call);
    NEED(call, made, INVALID_ARGUMENT);
    for (unsigned i = 0; i < MAX_EVENT_SETS; i++) {
        if (sets[i].used) continue;
        sets[i] = (struct event_set){.used = 1};
        *made = &sets[i];
        return leave(&call, OK);
    }
    return leave(&call, INSUFFICIENT_RESOURCES);
}

API code nvmlEventSetFree(struct event_set *set) {
    ENTER(call);
    NEED(call, is_set(set), INVALID_ARGUMENT);
    set->used = 0;
    return leave(&call, OK);
}

API code nvmlDeviceGetSupportedEventTypes(handle device, unsigned long long *types) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, types, INVALID_ARGUMENT);
    *types = XID_CRITICAL;
    return leave(&call, OK);
}

/* What happened before is not told. */
API code nvmlDeviceRegisterEvents(handle device, unsigned long long types, struct event_set *set) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, is_set(set), INVALID_ARGUMENT);
    NEED(call, !(types & ~(unsigned long long)XID_CRITICAL), NOT_SUPPORTED);
    if (!types || set->registered[seen.number]) return leave(&call, OK);
    set->registered[seen.number] = 1;
    set->told[seen.number] = call.world.serial;
    return leave(&call, OK);
}

/* The oldest that the set has not been told of. When there is none, a GPU that is lost is an answer too. */
static code next_event(const struct world *world, struct event_set *set, struct event *event) {
    const struct xid *next = NULL;
    code nothing = TIMEOUT;
    for (unsigned i = 0; i < MAX_XIDS; i++) {
        const struct xid *xid = &world->xids[i];
        if (!xid->serial || !set->registered[xid->gpu] || xid->serial <= set->told[xid->gpu]) continue;
        if (!next || xid->serial < next->serial) next = xid;
    }
    for (unsigned g = 0; g < world->gpu_count; g++)
        if (set->registered[g] && world->gpus[g].lost) nothing = GPU_IS_LOST;
    if (!next) return nothing;
    set->told[next->gpu] = next->serial;
    *event = (struct event){.device = make_handle(DEVICE, next->gpu, 0, 0, 0),
                            .type = XID_CRITICAL,
                            .data = next->code,
                            .gi = (unsigned)ALL_OF_THE_GPU,
                            .ci = (unsigned)ALL_OF_THE_GPU};
    return OK;
}

API code nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned timeout_ms) {
    unsigned long long end = now_ns() + timeout_ms * 1000000ull;
    ENTER(call);
    NEED(call, is_set(set) && event, INVALID_ARGUMENT);
    code found = next_event(&call.world, set, event), left = leave(&call, found == TIMEOUT ? OK : found);
    if (found != TIMEOUT || left != OK) return left;
    while (found == TIMEOUT && now_ns() < end) {
        nanosleep(&(struct timespec){0, LOOK_AGAIN_NS}, NULL);
        int file = world_open(&call.world);
        if (file < 0) return UNKNOWN;
        found = is_set(set) ? next_event(&call.world, set, event) : INVALID_ARGUMENT;
        world_close(file);
    }
    return found;
}

API code nvmlEventSetWait(struct event_set *set, struct event *event, unsigned timeout_ms) {
    return nvmlEventSetWait_v2(set, event, timeout_ms);
}

/* --- ECC ------------------------------------------------------------------------------------------------------- */

static int has_ecc(const struct seen *seen) { return board_of(seen->model)->repair != NO_ECC; }

API code nvmlDeviceGetEccMode(handle device, unsigned *current, unsigned *pending) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, current && pending, INVALID_ARGUMENT);
    NEED(call, has_ecc(&seen), NOT_SUPPORTED);
    *current = *pending = 1;
    return leave(&call, OK);
}

/* All errors are uncorrected ones in the device's memory. */
static unsigned long long total_errors(const struct gpu *gpu, unsigned severity, unsigned since) {
    if (severity == CORRECTED) return 0;
    return since == VOLATILE ? gpu->ecc_errors : gpu->ecc_errors_ever;
}

API code nvmlDeviceGetTotalEccErrors(handle device, unsigned severity, unsigned since, unsigned long long *count) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, count && severity <= UNCORRECTED && since <= AGGREGATE, INVALID_ARGUMENT);
    NEED(call, has_ecc(&seen) && !seen.ci, NOT_SUPPORTED);
    *count = total_errors(seen.gpu, severity, since);
    return leave(&call, OK);
}

/* On a GPU in MIG mode volatile ones are not told of the whole, and of a MIG device only those outside of the device's
 * memory, as NVML has it. */
API code nvmlDeviceGetMemoryErrorCounter(handle device, unsigned severity, unsigned since, unsigned where,
                                         unsigned long long *count) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, count && severity <= UNCORRECTED && since <= AGGREGATE && where <= SRAM, INVALID_ARGUMENT);
    int told = seen.ci ? severity == UNCORRECTED && since == VOLATILE && where == SRAM
                       : (where == DEVICE_MEMORY || where == SRAM) && !(seen.gpu->mig && since == VOLATILE);
    NEED(call, has_ecc(&seen) && told, NOT_SUPPORTED);
    *count = where == DEVICE_MEMORY ? total_errors(seen.gpu, severity, since) : 0;
    return leave(&call, OK);
}

/* --- memory that is set aside: by pages until Turing, by rows from Ampere on -------------------------------------- */

API code nvmlDeviceGetRetiredPagesPendingStatus(handle device, unsigned *pending) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, pending, INVALID_ARGUMENT);
    NEED(call, board_of(seen.model)->repair == PAGE_RETIREMENT, NOT_SUPPORTED);
    *pending = seen.gpu->repair_pending;
    return leave(&call, OK);
}

/* Not while there are instances, as NVML has it. */
API code nvmlDeviceGetRemappedRows(handle device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                   unsigned *failed) {
    SEE(call, seen, device, 1 << DEVICE);
    int instances = 0;
    for (unsigned i = 0; i < MAX_INSTANCES; i++) instances |= seen.gpu->instances[i].used;
    NEED(call, corrected && uncorrected && pending && failed, INVALID_ARGUMENT);
    NEED(call, board_of(seen.model)->repair == ROW_REMAPPING && !instances, NOT_SUPPORTED);
    *corrected = *failed = 0;
    *uncorrected = *pending = seen.gpu->repair_pending;
    return leave(&call, OK);
}
