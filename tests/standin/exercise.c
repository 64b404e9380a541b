/* Drives the stand-in from C, for the sanitizers: a whole life of a GPU, then calls with arguments that are wrong. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
code standinUse(const char *uuid);

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

int main(void) {
    handle gpu = NULL;
    unsigned count = 0;
    IS(UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
    IS(OK, nvmlInit_v2());
    IS(OK, nvmlDeviceGetCount_v2(&count));
    IS(OK, nvmlDeviceGetHandleByIndex_v2(0, &gpu));
    IS(0, strcmp(nvmlErrorString(IN_USE), "In use by another client"));
    faults(gpu);
    whole_life(gpu);
    wrong_arguments(gpu);
    IS(OK, nvmlShutdown());
    IS(UNINITIALIZED, nvmlShutdown());
    puts("fine");
    return 0;
}
