/* Drives the stand-in from C, for the sanitizers: a whole life of a GPU, then calls with arguments that are wrong. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IS(expected, expression)                                                                   \
    do {                                                                                           \
        code got_ = (expression);                                                                  \
        if (got_ != (expected)) {                                                                  \
            fprintf(stderr, "line %d: %s is %d, not %d\n", __LINE__, #expression, got_, expected); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

code nvmlInit_v2(void);
code nvmlShutdown(void);
const char *nvmlErrorString(code error);
code nvmlDeviceGetCount_v2(unsigned *count);
code nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device);
code nvmlDeviceGetHandleByUUID(const char *uuid, handle *found);
code nvmlDeviceGetUUID(handle device, char *text, unsigned size);
code nvmlDeviceGetName(handle device, char *text, unsigned size);
code nvmlDeviceSetMigMode(handle device, unsigned mode, code *activation);
code nvmlDeviceGetMigMode(handle device, unsigned *current, unsigned *pending);
code nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct process_info *found);
code nvmlDeviceGetGpuInstanceProfileInfoV(handle device, unsigned number, struct instance_profile2 *info);
code nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle device, unsigned id, struct place *places, unsigned *count);
code nvmlDeviceGetGpuInstanceRemainingCapacity(handle device, unsigned id, unsigned *count);
code nvmlDeviceCreateGpuInstance(handle device, unsigned id, handle *made);
code nvmlDeviceCreateGpuInstanceWithPlacement(handle device, unsigned id, const struct place *place, handle *made);
code nvmlDeviceGetGpuInstances(handle device, unsigned id, handle *found, unsigned *count);
code nvmlDeviceGetGpuInstanceById(handle device, unsigned id, handle *found);
code nvmlGpuInstanceGetInfo(handle instance, struct instance_info *info);
code nvmlGpuInstanceDestroy(handle instance);
code nvmlGpuInstanceGetComputeInstanceProfileInfoV(handle, unsigned, unsigned, struct compute_profile2 *);
code nvmlGpuInstanceCreateComputeInstance(handle instance, unsigned id, handle *made);
code nvmlGpuInstanceGetComputeInstances(handle instance, unsigned id, handle *found, unsigned *count);
code nvmlComputeInstanceGetInfo_v2(handle compute, struct compute_info *info);
code nvmlComputeInstanceDestroy(handle compute);
code nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned index, handle *found);
code nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle device, handle *parent);
code nvmlDeviceGetGpuInstanceId(handle device, unsigned *id);
code nvmlSystemGetNVMLVersion(char *text, unsigned size);
code nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size);
code nvmlDeviceGetIndex(handle device, unsigned *index);
code nvmlDeviceGetPciInfo_v3(handle device, struct pci_info *info);
code nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *device);
code nvmlDeviceGetHandleByPciBusId(const char *bus_id, handle *device);
code nvmlDeviceGetArchitecture(handle device, unsigned *architecture);
code nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor);
code nvmlDeviceGetMemoryInfo(handle device, struct memory *memory);
code nvmlDeviceGetMemoryInfo_v2(handle device, struct memory2 *memory);
code nvmlDeviceGetBAR1MemoryInfo(handle device, struct bar1_memory *memory);
code nvmlDeviceGetComputeMode(handle device, unsigned *mode);
code nvmlDeviceSetComputeMode(handle device, unsigned mode);
code nvmlDeviceSetPersistenceMode(handle device, unsigned mode);
code nvmlDeviceGetPersistenceMode(handle device, unsigned *mode);
code nvmlDeviceGetPowerUsage(handle device, unsigned *milliwatts);
struct event_set;
code nvmlEventSetCreate(struct event_set **made);
code nvmlEventSetFree(struct event_set *set);
code nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned timeout_ms);
code nvmlDeviceGetSupportedEventTypes(handle device, unsigned long long *types);
code nvmlDeviceRegisterEvents(handle device, unsigned long long types, struct event_set *set);
code nvmlDeviceGetEccMode(handle device, unsigned *current, unsigned *pending);
code nvmlDeviceGetTotalEccErrors(handle device, unsigned severity, unsigned since, unsigned long long *count);
code nvmlDeviceGetMemoryErrorCounter(handle, unsigned severity, unsigned since, unsigned where, unsigned long long *);
code nvmlDeviceGetRetiredPagesPendingStatus(handle device, unsigned *pending);
code nvmlDeviceGetRemappedRows(handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
code standinUse(const char *uuid);

/* What monitors and NVIDIA's own tools ask. */
static void boards(handle gpu, handle other) {
    struct pci_info place;
    struct memory plain;
    struct memory2 memory = {.version = 2u << 24 | sizeof memory};
    struct bar1_memory bar1;
    unsigned number = 7, mode = 7;
    int major = 0, minor = 0;
    char text[96], tiny[4];
    handle found = NULL;
    IS(OK, nvmlSystemGetNVMLVersion(text, sizeof text));
    IS(INSUFFICIENT_SIZE, nvmlSystemGetNVMLVersion(tiny, sizeof tiny));
    IS(OK, nvmlSystemGetProcessName((unsigned)getpid(), text, sizeof text));
    IS(1, strstr(text, "exercise") != NULL);
    IS(NOT_FOUND, nvmlSystemGetProcessName(~0u, text, sizeof text));
    IS(OK, nvmlDeviceGetIndex(other, &number));
    IS(1, (int)number);
    IS(OK, nvmlDeviceGetPciInfo_v3(other, &place));
    IS(0x1EB810DE, (int)place.pci_id);
    static const char *const same[] = {"0000:11:00.0", "00000000:11:00.0", "11:00.0"};
    for (unsigned i = 0; i < sizeof same / sizeof same[0]; i++) {
        IS(OK, nvmlDeviceGetHandleByPciBusId_v2(same[i], &found));
        IS(1, found == other);
    }
    IS(OK, nvmlDeviceGetHandleByPciBusId(place.bus_id, &found));
    IS(NOT_FOUND, nvmlDeviceGetHandleByPciBusId_v2("0000:12:00.0", &found));
    IS(NOT_FOUND, nvmlDeviceGetHandleByPciBusId_v2("0000:01:00.0", &found));
    IS(NOT_FOUND, nvmlDeviceGetHandleByPciBusId_v2("0001:11:00.0", &found));
    IS(INVALID_ARGUMENT, nvmlDeviceGetHandleByPciBusId_v2("nonsense", &found));
    IS(INVALID_ARGUMENT, nvmlDeviceGetHandleByPciBusId_v2(NULL, &found));
    IS(OK, nvmlDeviceGetArchitecture(other, &number));
    IS(6, (int)number);
    IS(OK, nvmlDeviceGetCudaComputeCapability(gpu, &major, &minor));
    IS(80, 10 * major + minor);
    IS(OK, nvmlDeviceGetMemoryInfo(gpu, &plain));
    IS(OK, nvmlDeviceGetMemoryInfo_v2(gpu, &memory));
    IS(1, memory.total == plain.total && memory.free == plain.free && memory.used == plain.used && !memory.reserved);
    memory.version = 1;
    IS(VERSION_MISMATCH, nvmlDeviceGetMemoryInfo_v2(gpu, &memory));
    IS(OK, nvmlDeviceGetBAR1MemoryInfo(gpu, &bar1));
    IS(1, bar1.total == 64ull << 30);
    IS(INVALID_ARGUMENT, nvmlDeviceSetComputeMode(gpu, 4));
    IS(NOT_SUPPORTED, nvmlDeviceSetComputeMode(gpu, EXCLUSIVE_THREAD));
    IS(OK, nvmlDeviceSetComputeMode(gpu, EXCLUSIVE_PROCESS));
    IS(OK, nvmlDeviceGetComputeMode(gpu, &mode));
    IS(EXCLUSIVE_PROCESS, (int)mode);
    IS(OK, nvmlDeviceSetComputeMode(gpu, 0));
    IS(OK, nvmlDeviceSetPersistenceMode(gpu, 1));
    IS(OK, nvmlDeviceGetPersistenceMode(gpu, &mode));
    IS(1, (int)mode);
    IS(NOT_SUPPORTED, nvmlDeviceGetPowerUsage(gpu, &mode));
}

static void whole_life(handle gpu) {
    handle half = NULL, small = NULL, work = NULL, device = NULL, list[8], parent = NULL;
    struct place at4 = {4, 4}, odd = {1, 4}, places[8];
    struct instance_info info;
    struct compute_info inside;
    struct compute_profile2 full = {.version = 2u << 24 | sizeof full};
    struct process_info processes[4];
    unsigned count = 0, id = 0;
    code activation = OK;
    char uuid[96];

    IS(NOT_SUPPORTED, nvmlDeviceCreateGpuInstance(gpu, 9, &half)); /* MIG is off */
    IS(OK, nvmlDeviceSetMigMode(gpu, 1, &activation));
    IS(OK, activation);
    IS(OK, nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu, 9, NULL, &count));
    IS(2, (int)count);
    IS(OK, nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu, 9, places, &count));
    IS(4, (int)places[1].start);
    IS(INVALID_ARGUMENT, nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, &odd, &half));
    IS(OK, nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, &at4, &half));
    IS(INSUFFICIENT_RESOURCES, nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, &at4, &small));
    IS(OK, nvmlDeviceCreateGpuInstance(gpu, 19, &small));
    IS(OK, nvmlGpuInstanceGetInfo(small, &info));
    IS(7, (int)info.id);
    IS(OK, nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 9, &count));
    IS(0, (int)count);
    IS(NOT_FOUND, nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &device)); /* no compute instance yet */
    IS(OK, nvmlGpuInstanceGetComputeInstanceProfileInfoV(half, 2, 0, &full));
    IS(NOT_SUPPORTED, nvmlGpuInstanceGetComputeInstanceProfileInfoV(half, 4, 0, &full));
    IS(OK, nvmlGpuInstanceCreateComputeInstance(half, full.base.id, &work));
    IS(INSUFFICIENT_RESOURCES, nvmlGpuInstanceCreateComputeInstance(half, 0, &work));
    IS(OK, nvmlGpuInstanceGetComputeInstances(half, full.base.id, list, &count));
    IS(OK, nvmlComputeInstanceGetInfo_v2(list[0], &inside));
    IS(OK, nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &device));
    IS(OK, nvmlDeviceGetGpuInstanceId(device, &id));
    IS(2, (int)id);
    IS(OK, nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &parent));
    IS(OK, nvmlDeviceGetUUID(device, uuid, sizeof uuid));
    IS(OK, nvmlDeviceGetHandleByUUID(uuid, &parent));
    IS(IN_USE, nvmlGpuInstanceDestroy(half)); /* it still has a compute instance */
    IS(OK, standinUse(uuid));
    count = 0;
    IS(INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, NULL));
    count = 4;
    IS(OK, nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes));
    IS(1, (int)count);
    IS(IN_USE, nvmlComputeInstanceDestroy(list[0])); /* by this very process */
    IS(OK, nvmlDeviceSetMigMode(gpu, 0, &activation));
    IS(IN_USE, activation);
    IS(OK, nvmlDeviceSetMigMode(gpu, 1, &activation));
    IS(OK, nvmlGpuInstanceDestroy(small));
    IS(INVALID_ARGUMENT, nvmlGpuInstanceDestroy(small)); /* a handle to something gone */
    IS(NOT_FOUND, nvmlDeviceGetGpuInstanceById(gpu, 7, &small));
}

static void wrong_arguments(handle gpu) {
    struct instance_profile2 old = {.version = 1};
    handle got = NULL;
    char tiny[4];
    unsigned count = 0;
    IS(INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(77, &got));
    IS(INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(0, NULL));
    IS(INVALID_ARGUMENT, nvmlDeviceGetName(NULL, tiny, sizeof tiny));
    IS(INVALID_ARGUMENT, nvmlDeviceGetName((handle)~0ul, tiny, sizeof tiny));
    IS(INSUFFICIENT_SIZE, nvmlDeviceGetName(gpu, tiny, sizeof tiny));
    IS(VERSION_MISMATCH, nvmlDeviceGetGpuInstanceProfileInfoV(gpu, 0, &old));
    IS(NOT_SUPPORTED, nvmlDeviceGetGpuInstances(gpu, 4242, &got, &count));
    IS(INVALID_ARGUMENT, nvmlGpuInstanceDestroy(gpu));
    IS(NOT_FOUND, nvmlDeviceGetHandleByUUID("GPU-nonsense", &got));
    IS(NOT_FOUND, standinUse("MIG-nonsense"));
}

static void faults(handle gpu) {
    unsigned current = 0, pending = 0;
    setenv("GPULOOM_STANDIN_FAULTS", "nvmlDeviceGetMigMode:2:IN_USE,*:4+:TIMEOUT", 1);
    IS(OK, nvmlDeviceGetMigMode(gpu, &current, &pending));
    IS(IN_USE, nvmlDeviceGetMigMode(gpu, &current, &pending));
    IS(OK, nvmlDeviceGetMigMode(gpu, &current, &pending));
    IS(10, nvmlDeviceGetMigMode(gpu, &current, &pending));
    static const char *const nonsense[] = {"nonsense", "*", "*:", "*:1", "*:1:", "*:1+", "*:1+:", "*:1+IN_USE"};
    for (unsigned i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        setenv("GPULOOM_STANDIN_FAULTS", nonsense[i], 1);
        IS(UNKNOWN, nvmlDeviceGetMigMode(gpu, &current, &pending));
    }
    unsetenv("GPULOOM_STANDIN_FAULTS");
}

/* A process that has used a device, and is gone. */
static void use_and_go(const char *uuid) {
    pid_t user = fork();
    if (user == 0) _exit(standinUse(uuid));
    int status = -1;
    waitpid(user, &status, 0);
    IS(0, status);
}

/* What it used stays in use for a while, though it is not listed any more. */
static void lingering(handle gpu) {
    handle half = NULL, work = NULL, device = NULL;
    struct process_info processes[4];
    unsigned count = 4;
    code activation = OK;
    char uuid[96];
    IS(OK, nvmlDeviceSetMigMode(gpu, 1, &activation));
    IS(OK, nvmlDeviceCreateGpuInstance(gpu, 9, &half));
    IS(OK, nvmlGpuInstanceCreateComputeInstance(half, 2, &work));
    IS(OK, nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &device));
    IS(OK, nvmlDeviceGetUUID(device, uuid, sizeof uuid));
    use_and_go(uuid);
    IS(OK, nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, processes));
    IS(0, (int)count);
    setenv("GPULOOM_STANDIN_LINGER_S", "1000", 1);
    IS(IN_USE, nvmlComputeInstanceDestroy(work));
    IS(OK, nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, processes));
    IS(0, (int)count);
    setenv("GPULOOM_STANDIN_LINGER_S", "1e-9", 1); /* which are over */
    IS(OK, nvmlComputeInstanceDestroy(work));
    setenv("GPULOOM_STANDIN_LINGER_S", "1000", 1);
    IS(IN_USE, nvmlGpuInstanceDestroy(half));
    unsetenv("GPULOOM_STANDIN_LINGER_S");
    IS(OK, nvmlGpuInstanceDestroy(half));
    setenv("GPULOOM_STANDIN_LINGER_S", "1000", 1);
    IS(OK, nvmlDeviceSetMigMode(gpu, 0, &activation));
    IS(IN_USE, activation);
    unsetenv("GPULOOM_STANDIN_LINGER_S");
    IS(OK, nvmlDeviceSetMigMode(gpu, 0, &activation));
    IS(OK, activation);
}

static void slow_calls(handle gpu) {
    struct timespec before, after;
    unsigned current = 0, pending = 0, count = 0;
    setenv("GPULOOM_STANDIN_SLOW", "nvmlDeviceGetMigMode:20,*:1", 1);
    clock_gettime(CLOCK_MONOTONIC, &before);
    IS(OK, nvmlDeviceGetMigMode(gpu, &current, &pending));
    clock_gettime(CLOCK_MONOTONIC, &after);
    long long took_ns = (after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec;
    IS(1, took_ns >= 20000000);
    IS(OK, nvmlDeviceGetCount_v2(&count));
    setenv("GPULOOM_STANDIN_SLOW", "nonsense", 1);
    IS(OK, nvmlDeviceGetCount_v2(&count));
    unsetenv("GPULOOM_STANDIN_SLOW");
}

/* As a person in the machine room would. */
static void by_hand(const char *words) {
    char command[256];
    snprintf(command, sizeof command, "standinctl %s", words);
    IS(0, system(command));
}

static void events(handle gpu, handle other) {
    struct event_set *first = NULL, *second = NULL;
    struct event event = {0};
    unsigned long long types = 0;
    IS(OK, nvmlDeviceGetSupportedEventTypes(gpu, &types));
    IS(8, (int)types);
    IS(OK, nvmlEventSetCreate(&first));
    IS(OK, nvmlEventSetCreate(&second));
    IS(NOT_SUPPORTED, nvmlDeviceRegisterEvents(gpu, 0x8000, first));
    by_hand("xid 0 48"); /* nobody has asked yet */
    IS(OK, nvmlDeviceRegisterEvents(gpu, types, first));
    IS(OK, nvmlDeviceRegisterEvents(gpu, types, second));
    IS(TIMEOUT, nvmlEventSetWait_v2(first, &event, 1));
    by_hand("xid 0 94");
    by_hand("xid 1 31"); /* of another GPU */
    by_hand("xid 0 63");
    IS(OK, nvmlEventSetWait_v2(first, &event, 1000));
    IS(94, (int)event.data);
    IS(1, event.device == gpu && event.type == 8 && event.gi == ~0u && event.ci == ~0u);
    IS(OK, nvmlEventSetWait_v2(first, &event, 1000));
    IS(63, (int)event.data);
    IS(TIMEOUT, nvmlEventSetWait_v2(first, &event, 0));
    IS(OK, nvmlEventSetWait_v2(second, &event, 0)); /* each set is told */
    IS(94, (int)event.data);
    IS(OK, nvmlDeviceRegisterEvents(other, types, first));
    by_hand("lose 1");
    IS(OK, nvmlEventSetWait_v2(first, &event, 0));
    IS(79, (int)event.data);
    IS(GPU_IS_LOST, nvmlEventSetWait_v2(first, &event, 1000));
    by_hand("find 1");
    IS(TIMEOUT, nvmlEventSetWait_v2(first, &event, 0));
    IS(INVALID_ARGUMENT, nvmlEventSetWait_v2(first, NULL, 0));
    IS(OK, nvmlEventSetFree(first));
    IS(INVALID_ARGUMENT, nvmlEventSetFree(first));
    IS(INVALID_ARGUMENT, nvmlEventSetWait_v2((struct event_set *)&event, &event, 0));
    for (unsigned i = 0; i < 15; i++) IS(OK, nvmlEventSetCreate(&first));
    IS(INSUFFICIENT_RESOURCES, nvmlEventSetCreate(&first)); /* what is left goes with the last nvmlShutdown */
}

static void health(handle a100, handle t4) {
    enum { UNCORRECTED = 1, VOLATILE = 0, AGGREGATE = 1, DEVICE_MEMORY = 2, SRAM = 7, L1 = 0 };
    unsigned long long count = 7;
    unsigned rows[4], pending = 7;
    code activation = OK;
    handle half = NULL;
    IS(GPU_IS_LOST, nvmlDeviceGetEccMode(t4, &pending, &pending)); /* it was lost: what was known of it is dead */
    IS(OK, nvmlShutdown());
    IS(OK, nvmlInit_v2());
    by_hand("ecc 0 3");
    by_hand("retired 0");
    by_hand("retired 1");
    IS(OK, nvmlDeviceGetEccMode(a100, &pending, &pending));
    IS(OK, nvmlDeviceGetTotalEccErrors(a100, UNCORRECTED, VOLATILE, &count));
    IS(3, (int)count);
    IS(OK, nvmlDeviceGetTotalEccErrors(t4, UNCORRECTED, VOLATILE, &count));
    IS(0, (int)count);
    IS(OK, nvmlDeviceGetMemoryErrorCounter(a100, UNCORRECTED, VOLATILE, DEVICE_MEMORY, &count));
    IS(3, (int)count);
    IS(OK, nvmlDeviceGetMemoryErrorCounter(a100, UNCORRECTED, VOLATILE, SRAM, &count));
    IS(0, (int)count);
    IS(NOT_SUPPORTED, nvmlDeviceGetMemoryErrorCounter(a100, UNCORRECTED, VOLATILE, L1, &count));
    IS(NOT_SUPPORTED, nvmlDeviceGetRetiredPagesPendingStatus(a100, &pending));
    IS(OK, nvmlDeviceGetRemappedRows(a100, &rows[0], &rows[1], &rows[2], &rows[3]));
    IS(1, rows[0] == 0 && rows[1] == 1 && rows[2] == 1 && rows[3] == 0);
    IS(OK, nvmlDeviceGetRetiredPagesPendingStatus(t4, &pending));
    IS(1, (int)pending);
    IS(NOT_SUPPORTED, nvmlDeviceGetRemappedRows(t4, &rows[0], &rows[1], &rows[2], &rows[3]));
    IS(OK, nvmlDeviceSetMigMode(a100, 1, &activation));
    IS(OK, nvmlDeviceCreateGpuInstance(a100, 9, &half));
    IS(NOT_SUPPORTED, nvmlDeviceGetMemoryErrorCounter(a100, UNCORRECTED, VOLATILE, DEVICE_MEMORY, &count));
    IS(OK, nvmlDeviceGetMemoryErrorCounter(a100, UNCORRECTED, AGGREGATE, DEVICE_MEMORY, &count));
    IS(NOT_SUPPORTED, nvmlDeviceGetRemappedRows(a100, &rows[0], &rows[1], &rows[2], &rows[3]));
    IS(1, system("standinctl reset 0 2>/dev/null") != 0); /* while somebody has the driver open */
    IS(OK, nvmlShutdown());
    by_hand("reset 0");
    IS(OK, nvmlInit_v2());
    IS(OK, nvmlDeviceGetTotalEccErrors(a100, UNCORRECTED, VOLATILE, &count));
    IS(0, (int)count);
    IS(OK, nvmlDeviceGetTotalEccErrors(a100, UNCORRECTED, AGGREGATE, &count));
    IS(3, (int)count);
    IS(OK, nvmlDeviceGetRemappedRows(a100, &rows[0], &rows[1], &rows[2], &rows[3]));
    IS(0, (int)rows[2]);
    IS(OK, nvmlDeviceSetMigMode(a100, 0, &activation));
}

int main(void) {
    handle gpu = NULL, other = NULL;
    unsigned count = 0;
    IS(UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
    IS(UNINITIALIZED, nvmlDeviceGetPowerUsage(NULL, &count));
    IS(OK, nvmlInit_v2());
    IS(OK, nvmlDeviceGetCount_v2(&count));
    IS(OK, nvmlDeviceGetHandleByIndex_v2(0, &gpu));
    IS(0, strcmp(nvmlErrorString(IN_USE), "In use by another client"));
    IS(OK, nvmlDeviceGetHandleByIndex_v2(1, &other));
    faults(gpu);
    boards(gpu, other);
    slow_calls(gpu);
    lingering(gpu);
    events(gpu, other);
    health(gpu, other);
    whole_life(gpu);
    wrong_arguments(gpu);
    IS(OK, nvmlShutdown());
    IS(UNINITIALIZED, nvmlShutdown());
    puts("fine");
    return 0;
}
