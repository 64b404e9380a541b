/* What other clients than gpuloom ask of the stand-in (monitors, NVIDIA's own tools): where a board is, what it is, its
 * memory, its settings. Only what the world knows; figures of a running GPU (power, temperature, clocks, utilisation)
 * are not made up, they are NOT_SUPPORTED (see nvml_names.c). */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the system ------------------------------------------------------------------------------------------------ */

API code nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    ENTER(call);
    char version[64];
    snprintf(version, sizeof version, "%d.%s", atoi(driver_version()) >= 580 ? 13 : 12, driver_version());
    return leave(&call, put_text(text, size, version));
}

/* The name by which a process was started; one that does not exist has none. */
API code nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size) {
    ENTER(call);
    char path[40], name[256] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    NEED(call, file, NOT_FOUND);
    size_t length = fread(name, 1, sizeof name - 1, file);
    fclose(file);
    NEED(call, length > 0, NOT_FOUND);
    return leave(&call, put_text(text, size, name));
}

/* --- where a board is ------------------------------------------------------------------------------------------ */

enum { FIRST_BUS = 0x10, NVIDIA_DEVICE = 0x10DE };

API code nvmlDeviceGetIndex(handle device, unsigned *index) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, index, INVALID_ARGUMENT);
    *index = seen.number;
    return leave(&call, OK);
}

API code nvmlDeviceGetMinorNumber(handle device, unsigned *number) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, number, INVALID_ARGUMENT);
    *number = seen.number;
    return leave(&call, OK);
}

API code nvmlDeviceGetPciInfo_v3(handle device, struct pci_info *info) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, info, INVALID_ARGUMENT);
    unsigned bus = FIRST_BUS + seen.number, id = board_of(seen.model)->pci_id;
    *info = (struct pci_info){.bus = bus, .pci_id = id, .subsystem_id = NVIDIA_DEVICE};
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", bus);
    return leave(&call, OK);
}

/* As "0000:10:00.0", with a longer domain, or without one. */
API code nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *device) {
    ENTER(call);
    NEED(call, bus_id && device, INVALID_ARGUMENT);
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    int long_form = sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4;
    if (!long_form) domain = 0;
    NEED(call, long_form || sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) == 3, INVALID_ARGUMENT);
    unsigned gpu = bus - FIRST_BUS;
    NEED(call, domain == 0 && slot == 0 && function == 0 && gpu < call.world.gpu_count, NOT_FOUND);
    NEED(call, !call.world.gpus[gpu].lost, GPU_IS_LOST);
    *device = make_handle(DEVICE, gpu, 0, 0, 0);
    return leave(&call, OK);
}

/* --- what a board is ------------------------------------------------------------------------------------------- */

API code nvmlDeviceGetArchitecture(handle device, unsigned *architecture) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, architecture, INVALID_ARGUMENT);
    NEED(call, board_of(seen.model)->architecture, NOT_SUPPORTED);
    *architecture = board_of(seen.model)->architecture;
    return leave(&call, OK);
}

API code nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, major && minor, INVALID_ARGUMENT);
    NEED(call, board_of(seen.model)->cuda_major, NOT_SUPPORTED);
    *major = (int)board_of(seen.model)->cuda_major;
    *minor = (int)board_of(seen.model)->cuda_minor;
    return leave(&call, OK);
}

/* --- memory ---------------------------------------------------------------------------------------------------- */

/* How much of it is in use the world does not know. */
static struct memory memory_of(const struct seen *seen) {
    unsigned long long total = (unsigned long long)(seen->ci ? seen->profile->mem_mib : seen->model->mem_mib) << 20;
    return (struct memory){.total = total, .free = total};
}

API code nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, memory, INVALID_ARGUMENT);
    *memory = memory_of(&seen);
    return leave(&call, OK);
}

API code nvmlDeviceGetMemoryInfo_v2(handle device, struct memory2 *memory) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, memory, INVALID_ARGUMENT);
    NEED(call, memory->version == (2u << 24 | sizeof *memory), VERSION_MISMATCH);
    struct memory plain = memory_of(&seen);
    *memory = (struct memory2){memory->version, plain.total, 0, plain.free, plain.used};
    return leave(&call, OK);
}

/* An instance has its part. */
API code nvmlDeviceGetBAR1MemoryInfo(handle device, struct bar1_memory *memory) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, memory, INVALID_ARGUMENT);
    unsigned long long total = (unsigned long long)board_of(seen.model)->bar1_mib << 20;
    NEED(call, total, NOT_SUPPORTED);
    if (seen.ci) total = total * seen.profile->size / seen.model->units;
    *memory = (struct bar1_memory){.total = total, .free = total};
    return leave(&call, OK);
}

/* --- settings -------------------------------------------------------------------------------------------------- */

API code nvmlDeviceGetComputeMode(handle device, unsigned *mode) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, mode, INVALID_ARGUMENT);
    *mode = mode_named("compute", seen.gpu->compute_mode);
    return leave(&call, OK);
}

API code nvmlDeviceSetComputeMode(handle device, unsigned mode) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, mode <= EXCLUSIVE_PROCESS, INVALID_ARGUMENT);
    NEED(call, mode != EXCLUSIVE_THREAD, NOT_SUPPORTED); /* no more since CUDA 8 */
    NEED(call, privileged(), NO_PERMISSION);
    seen.gpu->compute_mode = mode;
    call.changed = 1;
    return leave(&call, OK);
}

API code nvmlDeviceGetPersistenceMode(handle device, unsigned *mode) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, mode, INVALID_ARGUMENT);
    *mode = mode_named("persistence", seen.gpu->persistence);
    return leave(&call, OK);
}

API code nvmlDeviceSetPersistenceMode(handle device, unsigned mode) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, mode <= 1, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    seen.gpu->persistence = mode;
    call.changed = 1;
    return leave(&call, OK);
}
