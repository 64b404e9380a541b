/* What the stand-in takes NVML to be, held against NVIDIA's own nvml.h: it compiles, or a sentence says what differs. It
 * is not part of the stand-in, which needs no header of NVIDIA's. */
#include <nvml.h>
#include <stddef.h>

#include "nvml.h"

#define SAME(ours, theirs) _Static_assert((ours) == (int)(theirs), #ours " is not " #theirs)
#define SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(theirs), #ours " has not the size of " #theirs)
#define FIELD(ours, field, theirs, their_field)                                                 \
    _Static_assert(offsetof(struct ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((struct ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #ours "." #field " is not " #theirs "." #their_field)

SAME(OK, NVML_SUCCESS);
SAME(UNINITIALIZED, NVML_ERROR_UNINITIALIZED);
SAME(INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT);
SAME(NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME(NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
SAME(NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME(INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE);
SAME(DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
SAME(TIMEOUT, NVML_ERROR_TIMEOUT);
SAME(GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST);
SAME(RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED);
SAME(IN_USE, NVML_ERROR_IN_USE);
SAME(INSUFFICIENT_RESOURCES, NVML_ERROR_INSUFFICIENT_RESOURCES);
SAME(VERSION_MISMATCH, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
SAME(UNKNOWN, NVML_ERROR_UNKNOWN);
SAME(XID_CRITICAL, nvmlEventTypeXidCriticalError);
SAME(CORRECTED, NVML_MEMORY_ERROR_TYPE_CORRECTED);
SAME(UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME(VOLATILE, NVML_VOLATILE_ECC);
SAME(AGGREGATE, NVML_AGGREGATE_ECC);
SAME(DEVICE_MEMORY, NVML_MEMORY_LOCATION_DEVICE_MEMORY);
SAME(SRAM, NVML_MEMORY_LOCATION_SRAM);
SAME(EXCLUSIVE_THREAD, NVML_COMPUTEMODE_EXCLUSIVE_THREAD);
SAME(EXCLUSIVE_PROCESS, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);

SIZE(memory, nvmlMemory_t);
FIELD(memory, total, nvmlMemory_t, total);
FIELD(memory, free, nvmlMemory_t, free);
FIELD(memory, used, nvmlMemory_t, used);

SIZE(memory2, nvmlMemory_v2_t);
FIELD(memory2, version, nvmlMemory_v2_t, version);
FIELD(memory2, total, nvmlMemory_v2_t, total);
FIELD(memory2, reserved, nvmlMemory_v2_t, reserved);
FIELD(memory2, free, nvmlMemory_v2_t, free);
FIELD(memory2, used, nvmlMemory_v2_t, used);

SIZE(bar1_memory, nvmlBAR1Memory_t);
FIELD(bar1_memory, total, nvmlBAR1Memory_t, bar1Total);
FIELD(bar1_memory, free, nvmlBAR1Memory_t, bar1Free);
FIELD(bar1_memory, used, nvmlBAR1Memory_t, bar1Used);

SIZE(pci_info, nvmlPciInfo_t);
FIELD(pci_info, legacy, nvmlPciInfo_t, busIdLegacy);
FIELD(pci_info, domain, nvmlPciInfo_t, domain);
FIELD(pci_info, bus, nvmlPciInfo_t, bus);
FIELD(pci_info, device, nvmlPciInfo_t, device);
FIELD(pci_info, pci_id, nvmlPciInfo_t, pciDeviceId);
FIELD(pci_info, subsystem_id, nvmlPciInfo_t, pciSubSystemId);
FIELD(pci_info, bus_id, nvmlPciInfo_t, busId);

SIZE(place, nvmlGpuInstancePlacement_t);
FIELD(place, start, nvmlGpuInstancePlacement_t, start);
FIELD(place, size, nvmlGpuInstancePlacement_t, size);
SIZE(place, nvmlComputeInstancePlacement_t);

SIZE(instance_profile, nvmlGpuInstanceProfileInfo_t);
FIELD(instance_profile, id, nvmlGpuInstanceProfileInfo_t, id);
FIELD(instance_profile, slices, nvmlGpuInstanceProfileInfo_t, sliceCount);
FIELD(instance_profile, count, nvmlGpuInstanceProfileInfo_t, instanceCount);
FIELD(instance_profile, sms, nvmlGpuInstanceProfileInfo_t, multiprocessorCount);
FIELD(instance_profile, copies, nvmlGpuInstanceProfileInfo_t, copyEngineCount);
FIELD(instance_profile, mem_mib, nvmlGpuInstanceProfileInfo_t, memorySizeMB);

SIZE(instance_profile2, nvmlGpuInstanceProfileInfo_v2_t);
FIELD(instance_profile2, version, nvmlGpuInstanceProfileInfo_v2_t, version);
FIELD(instance_profile2, id, nvmlGpuInstanceProfileInfo_v2_t, id);
FIELD(instance_profile2, slices, nvmlGpuInstanceProfileInfo_v2_t, sliceCount);
FIELD(instance_profile2, count, nvmlGpuInstanceProfileInfo_v2_t, instanceCount);
FIELD(instance_profile2, sms, nvmlGpuInstanceProfileInfo_v2_t, multiprocessorCount);
FIELD(instance_profile2, copies, nvmlGpuInstanceProfileInfo_v2_t, copyEngineCount);
FIELD(instance_profile2, mem_mib, nvmlGpuInstanceProfileInfo_v2_t, memorySizeMB);
FIELD(instance_profile2, name, nvmlGpuInstanceProfileInfo_v2_t, name);

SIZE(instance_info, nvmlGpuInstanceInfo_t);
FIELD(instance_info, device, nvmlGpuInstanceInfo_t, device);
FIELD(instance_info, id, nvmlGpuInstanceInfo_t, id);
FIELD(instance_info, profile, nvmlGpuInstanceInfo_t, profileId);
FIELD(instance_info, place, nvmlGpuInstanceInfo_t, placement);

SIZE(compute_profile, nvmlComputeInstanceProfileInfo_t);
FIELD(compute_profile, id, nvmlComputeInstanceProfileInfo_t, id);
FIELD(compute_profile, slices, nvmlComputeInstanceProfileInfo_t, sliceCount);
FIELD(compute_profile, count, nvmlComputeInstanceProfileInfo_t, instanceCount);
FIELD(compute_profile, sms, nvmlComputeInstanceProfileInfo_t, multiprocessorCount);

SIZE(compute_profile2, nvmlComputeInstanceProfileInfo_v2_t);
FIELD(compute_profile2, version, nvmlComputeInstanceProfileInfo_v2_t, version);
FIELD(compute_profile2, base.id, nvmlComputeInstanceProfileInfo_v2_t, id);
FIELD(compute_profile2, base.slices, nvmlComputeInstanceProfileInfo_v2_t, sliceCount);
FIELD(compute_profile2, base.count, nvmlComputeInstanceProfileInfo_v2_t, instanceCount);
FIELD(compute_profile2, base.sms, nvmlComputeInstanceProfileInfo_v2_t, multiprocessorCount);
FIELD(compute_profile2, name, nvmlComputeInstanceProfileInfo_v2_t, name);

SIZE(compute_info, nvmlComputeInstanceInfo_t);
FIELD(compute_info, device, nvmlComputeInstanceInfo_t, device);
FIELD(compute_info, instance, nvmlComputeInstanceInfo_t, gpuInstance);
FIELD(compute_info, id, nvmlComputeInstanceInfo_t, id);
FIELD(compute_info, profile, nvmlComputeInstanceInfo_t, profileId);
FIELD(compute_info, place, nvmlComputeInstanceInfo_t, placement);

SIZE(attributes, nvmlDeviceAttributes_t);
FIELD(attributes, sms, nvmlDeviceAttributes_t, multiprocessorCount);
FIELD(attributes, gi_slices, nvmlDeviceAttributes_t, gpuInstanceSliceCount);
FIELD(attributes, ci_slices, nvmlDeviceAttributes_t, computeInstanceSliceCount);
FIELD(attributes, mem_mib, nvmlDeviceAttributes_t, memorySizeMB);

SIZE(event, nvmlEventData_t);
FIELD(event, device, nvmlEventData_t, device);
FIELD(event, type, nvmlEventData_t, eventType);
FIELD(event, data, nvmlEventData_t, eventData);
FIELD(event, gi, nvmlEventData_t, gpuInstanceId);
FIELD(event, ci, nvmlEventData_t, computeInstanceId);

SIZE(process_info, nvmlProcessInfo_t);
FIELD(process_info, pid, nvmlProcessInfo_t, pid);
FIELD(process_info, used, nvmlProcessInfo_t, usedGpuMemory);
FIELD(process_info, gi, nvmlProcessInfo_t, gpuInstanceId);
FIELD(process_info, ci, nvmlProcessInfo_t, computeInstanceId);
