/* A stand-in for NVIDIA's libnvidia-ml.so.1: the functions that gpuloom uses, with the driver's rules, on a world in a
 * file; those that others use besides are in nvml_board.c, and the rest, which do nothing, in nvml_names.c. Names, codes and structures are those of the public interface, as nvidia-ml-py calls it; no code is NVIDIA's.
 *
 * GPULOOM_STANDIN_STATE names the world's file. GPULOOM_STANDIN_USER=nobody calls without privileges.
 * GPULOOM_STANDIN_FAULTS=function:n:ERROR,… makes a process's n-th call of a function fail.
 * GPULOOM_STANDIN_FIRED names a file that gets a line for each such failure.
 *   n+ instead of n: that call and all later ones. * as the function: any call, whichever it is.
 *   KILL as the error: the process dies there. NOTHING: the call does nothing and reports success.
 *   A fourth field, late: the call does its work and then fails.
 *   The function "activation" is the moment at which a change of MIG mode would take effect.
 * GPULOOM_STANDIN_SLOW=function:ms,… makes every call of a function take so long; * as the function: of any.
 * GPULOOM_STANDIN_LINGER_S=seconds: what a process used stays in use for so long after it has gone, though it is not
 * listed any more. It counts from the first call, of whichever process, that finds it gone.
 */
#define _GNU_SOURCE
#include "nvml.h"

#include "clients.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    code value;
    const char *name, *text;
} ERRORS[] = {
    {OK, "SUCCESS", "Success"},
    {UNINITIALIZED, "UNINITIALIZED", "Uninitialized"},
    {INVALID_ARGUMENT, "INVALID_ARGUMENT", "Invalid Argument"},
    {NOT_SUPPORTED, "NOT_SUPPORTED", "Not Supported"},
    {NO_PERMISSION, "NO_PERMISSION", "Insufficient Permissions"},
    {NOT_FOUND, "NOT_FOUND", "Not Found"},
    {INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {TIMEOUT, "TIMEOUT", "Timeout"},
    {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {GPU_IS_LOST, "GPU_IS_LOST", "GPU is lost"},
    {RESET_REQUIRED, "RESET_REQUIRED", "GPU requires reset"},
    {IN_USE, "IN_USE", "In use by another client"},
    {INSUFFICIENT_RESOURCES, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {VERSION_MISMATCH, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {UNKNOWN, "UNKNOWN", "Unknown Error"},
    {KILL, "KILL", "the process is killed"},
    {NOTHING, "NOTHING", "nothing is done"},
};
enum { ERROR_COUNT = sizeof ERRORS / sizeof ERRORS[0] };

enum { MAX_FAULTS = 8 };
static unsigned opened, calls, counts[MAX_FAULTS]; /* only touched while the world is locked */

static code error_named(const char *name) {
    for (unsigned i = 0; i < ERROR_COUNT; i++)
        if (strcmp(ERRORS[i].name, name) == 0) return ERRORS[i].value;
    return UNKNOWN;
}

/* Whoever injects faults wants to know which of them came to pass. */
static void log_fault(const char *function) {
    const char *path = getenv("GPULOOM_STANDIN_FIRED");
    FILE *fired = path ? fopen(path, "ae") : NULL;
    if (fired) {
        fprintf(fired, "%s\n", function);
        fclose(fired);
    }
}

/* The fault that this call is to meet, or OK. */
static code fault(const char *function, int *late) {
    const char *rest = getenv("GPULOOM_STANDIN_FAULTS");
    code found = OK;
    for (unsigned i = 0; rest && *rest && i < MAX_FAULTS; i++) {
        char name[64], error[32], more[8] = "", plus = ':';
        unsigned at = 0;
        int length = 0, fields = sscanf(rest, "%63[^:]:%u%c%n", name, &at, &plus, &length);
        if (fields < 3 || (plus == '+' && rest[length++] != ':')) return UNKNOWN;
        if (sscanf(rest + length, "%31[^:,]:%7[^,]", error, more) < 1) return UNKNOWN;
        int any = strcmp(name, "*") == 0 && strcmp(function, "activation") != 0;
        if (any || strcmp(name, function) == 0) {
            counts[i]++;
            if (counts[i] == at || (plus == '+' && counts[i] > at)) {
                found = error_named(error);
                *late = strcmp(more, "late") == 0;
            }
        }
        rest = strchr(rest, ',');
        rest = rest ? rest + 1 : NULL;
    }
    if (found != OK) log_fault(function);
    return found;
}

/* Before the world is locked: others are not held up by a call that is slow. */
static void take_time(const char *function) {
    const char *rest = getenv("GPULOOM_STANDIN_SLOW");
    char name[64];
    unsigned ms;
    for (; rest && sscanf(rest, "%63[^:]:%u", name, &ms) == 2;
         rest = strchr(rest, ',') ? strchr(rest, ',') + 1 : NULL) {
        if (strcmp(name, "*") != 0 && strcmp(name, function) != 0) continue;
        struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
        while (nanosleep(&left, &left) != 0 && errno == EINTR);
        return;
    }
}

code enter(struct call *call, const char *function) {
    int late = 0;
    take_time(function);
    call->changed = 0;
    call->late = OK;
    call->function = function;
    call->file = world_open(&call->world);
    if (call->file < 0) return opened ? UNKNOWN : DRIVER_NOT_LOADED;
    calls++;
    code error = opened ? fault(function, &late) : UNINITIALIZED;
    if (error == KILL) raise(SIGKILL);
    if (error != OK && late) {
        call->late = error;
        error = OK;
    }
    if (error != OK) world_close(call->file);
    return error;
}

code leave(struct call *call, code result) {
    if (result == OK && call->changed && world_save(call->file, &call->world) != 0) result = UNKNOWN;
    world_close(call->file);
    return result == OK ? call->late : result;
}

handle make_handle(enum kind kind, unsigned gpu, unsigned gi, unsigned ci, unsigned serial) {
    uint64_t bits = (uint64_t)kind << 56 | (uint64_t)gpu << 48 | (uint64_t)gi << 40 | (uint64_t)ci << 32 | serial;
    return (handle)(uintptr_t)bits;
}

struct instance *instance_with(struct gpu *gpu, unsigned id) {
    for (unsigned i = 0; i < MAX_INSTANCES; i++)
        if (gpu->instances[i].used && gpu->instances[i].id == id) return &gpu->instances[i];
    return NULL;
}

struct compute *compute_with(struct instance *gi, unsigned id) {
    for (unsigned i = 0; gi && i < MAX_COMPUTES; i++)
        if (gi->computes[i].used && gi->computes[i].id == id) return &gi->computes[i];
    return NULL;
}

code see(struct call *call, handle from, unsigned kinds, struct seen *seen) {
    uint64_t bits = (uint64_t)(uintptr_t)from;
    unsigned kind = bits >> 56 & 0xFF, serial = bits & 0xFFFFFFFF;
    memset(seen, 0, sizeof *seen);
    seen->number = bits >> 48 & 0xFF;
    if (kind > COMPUTE || !(kinds >> kind & 1) || seen->number >= call->world.gpu_count) return INVALID_ARGUMENT;
    seen->gpu = &call->world.gpus[seen->number];
    seen->model = find_model(seen->gpu->model);
    if (seen->gpu->lost || handles_died(seen->number)) return GPU_IS_LOST;
    code told = replayed_code(seen->model, call->function, seen->gpu->mig);
    if (told != OK) return told;
    if (kind == DEVICE) return OK;
    seen->gi = instance_with(seen->gpu, bits >> 40 & 0xFF);
    seen->profile = seen->gi ? &seen->model->profiles[seen->gi->profile] : NULL;
    if (kind == INSTANCE) return seen->gi && seen->gi->serial == serial ? OK : INVALID_ARGUMENT;
    seen->ci = compute_with(seen->gi, bits >> 32 & 0xFF);
    return seen->ci && seen->ci->serial == serial ? OK : INVALID_ARGUMENT;
}

handle instance_handle(const struct seen *seen) {
    return make_handle(INSTANCE, seen->number, seen->gi->id, 0, seen->gi->serial);
}

int privileged(void) {
    const char *user = getenv("GPULOOM_STANDIN_USER");
    return !user || strcmp(user, "nobody") != 0;
}

int in_use(const struct call *call, unsigned gpu, int gi, int ci) {
    for (unsigned p = 0; p < MAX_PROCESSES; p++) {
        const struct process *process = &call->world.processes[p];
        if (process->gpu == (int)gpu && (gi < 0 || process->gi == gi) && (ci < 0 || process->ci == ci) &&
            (process_lives(process) || process_lingers(process)))
            return 1;
    }
    return 0;
}

code put_text(char *to, unsigned size, const char *text) {
    if (!to) return INVALID_ARGUMENT;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return OK;
}

/* --- the library and the system -------------------------------------------------------------------------------- */

API code nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (opened++ == 0) client_opens();
    struct call call;
    code error = enter(&call, "nvmlInitWithFlags");
    if (error == OK) return leave(&call, OK);
    if (--opened == 0) client_closes();
    return call.file < 0 ? DRIVER_NOT_LOADED : error;
}

API code nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API code nvmlShutdown(void) {
    if (!opened) return UNINITIALIZED;
    if (--opened == 0) {
        forget_event_sets();
        client_closes();
    }
    return OK;
}

API const char *nvmlErrorString(code error) {
    for (unsigned i = 0; i < ERROR_COUNT; i++)
        if (ERRORS[i].value == error) return ERRORS[i].text;
    return "unknown error";
}

API code nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER(call);
    NEED(call, version, INVALID_ARGUMENT);
    *version = 13000;
    return leave(&call, OK);
}

/* --- devices: whole GPUs and MIG devices ----------------------------------------------------------------------- */

API code nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(call);
    NEED(call, count, INVALID_ARGUMENT);
    *count = call.world.gpu_count;
    return leave(&call, OK);
}

API code nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device) {
    ENTER(call);
    NEED(call, device && index < call.world.gpu_count, INVALID_ARGUMENT);
    NEED(call, !call.world.gpus[index].lost, GPU_IS_LOST);
    *device = make_handle(DEVICE, index, 0, 0, 0);
    return leave(&call, OK);
}

static void uuid_of(const struct seen *seen, char *text) {
    if (seen->ci)
        mig_uuid(text, seen->number, seen->gi->id, seen->ci->id);
    else
        gpu_uuid(text, seen->number);
}

API code nvmlDeviceGetUUID(handle device, char *text, unsigned size) {
    SEE(call, seen, device, ANY_DEVICE);
    char uuid[UUID_LENGTH];
    uuid_of(&seen, uuid);
    return leave(&call, put_text(text, size, uuid));
}

API code nvmlDeviceGetName(handle device, char *text, unsigned size) {
    SEE(call, seen, device, ANY_DEVICE);
    char name[128];
    const char *slice = seen.ci ? seen.profile->name : "";
    snprintf(name, sizeof name, "%s%s%s", seen.model->product, seen.ci ? " MIG " : "", slice);
    return leave(&call, put_text(text, size, name));
}

/* Processes on this device; on a GPU in MIG mode, those of all its instances. */
static code list_processes(struct call *call, const struct seen *seen, unsigned *count, struct process_info *found) {
    unsigned number = 0;
    if (!count) return INVALID_ARGUMENT;
    for (unsigned p = 0; p < MAX_PROCESSES; p++) {
        const struct process *process = &call->world.processes[p];
        if (process->gpu != (int)seen->number || !process_lives(process)) continue;
        if (seen->ci && (process->gi != (int)seen->gi->id || process->ci != (int)seen->ci->id)) continue;
        if (found && number < *count) {
            memset(&found[number], 0, sizeof found[number]);
            found[number] = (struct process_info){.pid = (unsigned)process->pid,
                                                  .used = 1 << 20,
                                                  .gi = (unsigned)process->gi,
                                                  .ci = (unsigned)process->ci};
        }
        number++;
    }
    code result = number > *count ? INSUFFICIENT_SIZE : OK;
    *count = number;
    return result;
}

API code nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct process_info *found) {
    SEE(call, seen, device, ANY_DEVICE);
    return leave(&call, list_processes(&call, &seen, count, found));
}

API code nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, unsigned *count, struct process_info *found) {
    SEE(call, seen, device, ANY_DEVICE);
    (void)found;
    NEED(call, count, INVALID_ARGUMENT);
    *count = 0;
    return leave(&call, OK);
}

/* --- MIG mode -------------------------------------------------------------------------------------------------- */

API code nvmlDeviceGetMigMode(handle device, unsigned *current, unsigned *pending) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, current && pending, INVALID_ARGUMENT);
    NEED(call, seen.model->units, NOT_SUPPORTED);
    *current = seen.gpu->mig;
    *pending = seen.gpu->mig_pending;
    return leave(&call, OK);
}

/* The call itself succeeds; whether the mode is in force already is in the activation status. */
API code nvmlDeviceSetMigMode(handle device, unsigned mode, code *activation) {
    SEE(call, seen, device, 1 << DEVICE);
    int instances = 0, late = 0;
    NEED(call, activation && mode <= 1, INVALID_ARGUMENT);
    NEED(call, seen.model->units, NOT_SUPPORTED);
    NEED(call, privileged(), NO_PERMISSION);
    for (unsigned i = 0; i < MAX_INSTANCES; i++) instances |= seen.gpu->instances[i].used;
    call.changed = 1;
    seen.gpu->mig_pending = mode;
    *activation = seen.gpu->mig == mode ? OK : fault("activation", &late);
    if (*activation == OK && seen.gpu->mig != mode) {
        if (instances || in_use(&call, seen.number, -1, -1))
            *activation = IN_USE;
        else if (!seen.gpu->resets_itself)
            *activation = RESET_REQUIRED;
        else if (!seen.model->resets_itself && other_client())
            *activation = IN_USE; /* it would reset itself, which nobody can while another has it open */
        else
            seen.gpu->mig = mode;
    }
    return leave(&call, OK);
}

/* Not NVML: how many calls there have been, so that a test can make each of them fail in turn. */
API unsigned standinCalls(void) { return calls; }

/* Not NVML: count from here on. */
API void standinBegin(void) {
    memset(counts, 0, sizeof counts);
    calls = 0;
}
