/* The names that a driver of this age exports and the stand-in has nothing behind: they answer NOT_SUPPORTED, as a real
 * driver does on a board that cannot do something. A name that is absent would tell clients of a driver that is older.
 *
 * They are the functions that NVIDIA's header of CUDA 13.0 declares; a test holds the two against each other. They are
 * weak: whoever writes a function of this name elsewhere in the library has written it. */
#include "nvml.h"

static code nothing_behind(const char *function) {
    struct call call;
    code entered = enter(&call, function);
    if (entered != OK) return entered == NOTHING ? OK : entered;
    return leave(&call, NOT_SUPPORTED);
}

#define NAME(function) \
    API __attribute__((weak)) code function(void) { return nothing_behind(__func__); }

/* clang-format off */
#define NAMES                                                                                                       \
    NAME(nvmlComputeInstanceGetInfo) NAME(nvmlDeviceClearAccountingPids) NAME(nvmlDeviceClearCpuAffinity)           \
    NAME(nvmlDeviceClearEccErrorCounts) NAME(nvmlDeviceClearFieldValues) NAME(nvmlDeviceDiscoverGpus)               \
    NAME(nvmlDeviceFreezeNvLinkUtilizationCounter) NAME(nvmlDeviceGetAPIRestriction)                                \
    NAME(nvmlDeviceGetAccountingBufferSize) NAME(nvmlDeviceGetAccountingMode) NAME(nvmlDeviceGetAccountingPids)     \
    NAME(nvmlDeviceGetAccountingStats) NAME(nvmlDeviceGetActiveVgpus) NAME(nvmlDeviceGetAdaptiveClockInfoStatus)    \
    NAME(nvmlDeviceGetAddressingMode) NAME(nvmlDeviceGetApplicationsClock) NAME(nvmlDeviceGetAttributes)            \
    NAME(nvmlDeviceGetAutoBoostedClocksEnabled) NAME(nvmlDeviceGetBoardId) NAME(nvmlDeviceGetBoardPartNumber)       \
    NAME(nvmlDeviceGetBrand) NAME(nvmlDeviceGetBridgeChipInfo) NAME(nvmlDeviceGetBusType)                           \
    NAME(nvmlDeviceGetC2cModeInfoV) NAME(nvmlDeviceGetCapabilities) NAME(nvmlDeviceGetClkMonStatus)                 \
    NAME(nvmlDeviceGetClock) NAME(nvmlDeviceGetClockInfo) NAME(nvmlDeviceGetClockOffsets)                           \
    NAME(nvmlDeviceGetComputeRunningProcesses)                                                                      \
    NAME(nvmlDeviceGetConfComputeGpuAttestationReport) NAME(nvmlDeviceGetConfComputeGpuCertificate)                 \
    NAME(nvmlDeviceGetConfComputeMemSizeInfo) NAME(nvmlDeviceGetConfComputeProtectedMemoryUsage)                    \
    NAME(nvmlDeviceGetCoolerInfo) NAME(nvmlDeviceGetCpuAffinity) NAME(nvmlDeviceGetCpuAffinityWithinScope)          \
    NAME(nvmlDeviceGetCreatableVgpus) NAME(nvmlDeviceGetCurrPcieLinkGeneration)                                     \
    NAME(nvmlDeviceGetCurrPcieLinkWidth) NAME(nvmlDeviceGetCurrentClockFreqs)                                       \
    NAME(nvmlDeviceGetCurrentClocksEventReasons) NAME(nvmlDeviceGetCurrentClocksThrottleReasons)                    \
    NAME(nvmlDeviceGetDecoderUtilization) NAME(nvmlDeviceGetDefaultApplicationsClock)                               \
    NAME(nvmlDeviceGetDefaultEccMode) NAME(nvmlDeviceGetDetailedEccErrors) NAME(nvmlDeviceGetDisplayActive)         \
    NAME(nvmlDeviceGetDisplayMode) NAME(nvmlDeviceGetDramEncryptionMode) NAME(nvmlDeviceGetDriverModel)             \
    NAME(nvmlDeviceGetDriverModel_v2) NAME(nvmlDeviceGetDynamicPstatesInfo) NAME(nvmlDeviceGetEncoderCapacity)      \
    NAME(nvmlDeviceGetEncoderSessions) NAME(nvmlDeviceGetEncoderStats) NAME(nvmlDeviceGetEncoderUtilization)        \
    NAME(nvmlDeviceGetEnforcedPowerLimit) NAME(nvmlDeviceGetFBCSessions) NAME(nvmlDeviceGetFBCStats)                \
    NAME(nvmlDeviceGetFanControlPolicy_v2) NAME(nvmlDeviceGetFanSpeed) NAME(nvmlDeviceGetFanSpeedRPM)               \
    NAME(nvmlDeviceGetFanSpeed_v2) NAME(nvmlDeviceGetFieldValues) NAME(nvmlDeviceGetGpcClkMinMaxVfOffset)           \
    NAME(nvmlDeviceGetGpcClkVfOffset) NAME(nvmlDeviceGetGpuFabricInfo) NAME(nvmlDeviceGetGpuFabricInfoV)            \
    NAME(nvmlDeviceGetGpuInstancePossiblePlacements) NAME(nvmlDeviceGetGpuInstanceProfileInfoByIdV)                 \
    NAME(nvmlDeviceGetGpuMaxPcieLinkGeneration) NAME(nvmlDeviceGetGpuOperationMode)                                 \
    NAME(nvmlDeviceGetGraphicsRunningProcesses)                                                                     \
    NAME(nvmlDeviceGetGridLicensableFeatures) NAME(nvmlDeviceGetGridLicensableFeatures_v2)                          \
    NAME(nvmlDeviceGetGridLicensableFeatures_v3) NAME(nvmlDeviceGetGridLicensableFeatures_v4)                       \
    NAME(nvmlDeviceGetGspFirmwareMode) NAME(nvmlDeviceGetGspFirmwareVersion) NAME(nvmlDeviceGetHandleBySerial)      \
    NAME(nvmlDeviceGetHandleByUUIDV) NAME(nvmlDeviceGetHostVgpuMode) NAME(nvmlDeviceGetHostname_v1)                 \
    NAME(nvmlDeviceGetInforomConfigurationChecksum) NAME(nvmlDeviceGetInforomImageVersion)                          \
    NAME(nvmlDeviceGetInforomVersion) NAME(nvmlDeviceGetIrqNum) NAME(nvmlDeviceGetJpgUtilization)                   \
    NAME(nvmlDeviceGetLastBBXFlushTime) NAME(nvmlDeviceGetMPSComputeRunningProcesses)                               \
    NAME(nvmlDeviceGetMPSComputeRunningProcesses_v2) NAME(nvmlDeviceGetMPSComputeRunningProcesses_v3)               \
    NAME(nvmlDeviceGetMarginTemperature) NAME(nvmlDeviceGetMaxClockInfo) NAME(nvmlDeviceGetMaxCustomerBoostClock)   \
    NAME(nvmlDeviceGetMaxPcieLinkGeneration) NAME(nvmlDeviceGetMaxPcieLinkWidth)                                    \
    NAME(nvmlDeviceGetMemClkMinMaxVfOffset) NAME(nvmlDeviceGetMemClkVfOffset) NAME(nvmlDeviceGetMemoryAffinity)     \
    NAME(nvmlDeviceGetMemoryBusWidth) NAME(nvmlDeviceGetMinMaxClockOfPState) NAME(nvmlDeviceGetMinMaxFanSpeed)      \
    NAME(nvmlDeviceGetModuleId) NAME(nvmlDeviceGetMultiGpuBoard) NAME(nvmlDeviceGetNumFans)                         \
    NAME(nvmlDeviceGetNumGpuCores) NAME(nvmlDeviceGetNumaNodeId) NAME(nvmlDeviceGetNvLinkCapability)                \
    NAME(nvmlDeviceGetNvLinkErrorCounter) NAME(nvmlDeviceGetNvLinkInfo) NAME(nvmlDeviceGetNvLinkRemoteDeviceType)   \
    NAME(nvmlDeviceGetNvLinkRemotePciInfo) NAME(nvmlDeviceGetNvLinkRemotePciInfo_v2) NAME(nvmlDeviceGetNvLinkState) \
    NAME(nvmlDeviceGetNvLinkUtilizationControl) NAME(nvmlDeviceGetNvLinkUtilizationCounter)                         \
    NAME(nvmlDeviceGetNvLinkVersion) NAME(nvmlDeviceGetNvlinkBwMode) NAME(nvmlDeviceGetNvlinkSupportedBwModes)      \
    NAME(nvmlDeviceGetOfaUtilization) NAME(nvmlDeviceGetP2PStatus) NAME(nvmlDeviceGetPciInfo)                       \
    NAME(nvmlDeviceGetPciInfoExt) NAME(nvmlDeviceGetPciInfo_v2) NAME(nvmlDeviceGetPcieLinkMaxSpeed)                 \
    NAME(nvmlDeviceGetPcieReplayCounter) NAME(nvmlDeviceGetPcieSpeed) NAME(nvmlDeviceGetPcieThroughput)             \
    NAME(nvmlDeviceGetPdi) NAME(nvmlDeviceGetPerformanceModes) NAME(nvmlDeviceGetPerformanceState)                  \
    NAME(nvmlDeviceGetPgpuMetadataString) NAME(nvmlDeviceGetPlatformInfo)                                           \
    NAME(nvmlDeviceGetPowerManagementDefaultLimit) NAME(nvmlDeviceGetPowerManagementLimit)                          \
    NAME(nvmlDeviceGetPowerManagementLimitConstraints) NAME(nvmlDeviceGetPowerManagementMode)                       \
    NAME(nvmlDeviceGetPowerMizerMode_v1) NAME(nvmlDeviceGetPowerSource) NAME(nvmlDeviceGetPowerState)               \
    NAME(nvmlDeviceGetPowerUsage) NAME(nvmlDeviceGetProcessUtilization) NAME(nvmlDeviceGetProcessesUtilizationInfo) \
    NAME(nvmlDeviceGetRepairStatus) NAME(nvmlDeviceGetRetiredPages) NAME(nvmlDeviceGetRetiredPages_v2)              \
    NAME(nvmlDeviceGetRowRemapperHistogram) NAME(nvmlDeviceGetRunningProcessDetailList) NAME(nvmlDeviceGetSamples)  \
    NAME(nvmlDeviceGetSerial) NAME(nvmlDeviceGetSramEccErrorStatus)                                                 \
    NAME(nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts) NAME(nvmlDeviceGetSupportedClocksEventReasons)           \
    NAME(nvmlDeviceGetSupportedClocksThrottleReasons) NAME(nvmlDeviceGetSupportedGraphicsClocks)                    \
    NAME(nvmlDeviceGetSupportedMemoryClocks) NAME(nvmlDeviceGetSupportedPerformanceStates)                          \
    NAME(nvmlDeviceGetSupportedVgpus) NAME(nvmlDeviceGetTargetFanSpeed) NAME(nvmlDeviceGetTemperature)              \
    NAME(nvmlDeviceGetTemperatureThreshold) NAME(nvmlDeviceGetTemperatureV) NAME(nvmlDeviceGetThermalSettings)      \
    NAME(nvmlDeviceGetTopologyCommonAncestor) NAME(nvmlDeviceGetTopologyNearestGpus)                                \
    NAME(nvmlDeviceGetTotalEnergyConsumption) NAME(nvmlDeviceGetUtilizationRates) NAME(nvmlDeviceGetVbiosVersion)   \
    NAME(nvmlDeviceGetVgpuCapabilities) NAME(nvmlDeviceGetVgpuHeterogeneousMode)                                    \
    NAME(nvmlDeviceGetVgpuInstancesUtilizationInfo) NAME(nvmlDeviceGetVgpuMetadata)                                 \
    NAME(nvmlDeviceGetVgpuProcessUtilization) NAME(nvmlDeviceGetVgpuProcessesUtilizationInfo)                       \
    NAME(nvmlDeviceGetVgpuSchedulerCapabilities) NAME(nvmlDeviceGetVgpuSchedulerLog)                                \
    NAME(nvmlDeviceGetVgpuSchedulerState) NAME(nvmlDeviceGetVgpuTypeCreatablePlacements)                            \
    NAME(nvmlDeviceGetVgpuTypeSupportedPlacements) NAME(nvmlDeviceGetVgpuUtilization)                               \
    NAME(nvmlDeviceGetViolationStatus) NAME(nvmlDeviceGetVirtualizationMode) NAME(nvmlDeviceModifyDrainState)       \
    NAME(nvmlDeviceOnSameBoard) NAME(nvmlDevicePowerSmoothingActivatePresetProfile)                                 \
    NAME(nvmlDevicePowerSmoothingSetState) NAME(nvmlDevicePowerSmoothingUpdatePresetProfileParam)                   \
    NAME(nvmlDeviceQueryDrainState) NAME(nvmlDeviceReadWritePRM_v1) NAME(nvmlDeviceRemoveGpu)                       \
    NAME(nvmlDeviceRemoveGpu_v2) NAME(nvmlDeviceResetApplicationsClocks) NAME(nvmlDeviceResetGpuLockedClocks)       \
    NAME(nvmlDeviceResetMemoryLockedClocks) NAME(nvmlDeviceResetNvLinkErrorCounters)                                \
    NAME(nvmlDeviceResetNvLinkUtilizationCounter) NAME(nvmlDeviceSetAPIRestriction)                                 \
    NAME(nvmlDeviceSetAccountingMode) NAME(nvmlDeviceSetApplicationsClocks)                                         \
    NAME(nvmlDeviceSetAutoBoostedClocksEnabled) NAME(nvmlDeviceSetClockOffsets)                                     \
    NAME(nvmlDeviceSetConfComputeUnprotectedMemSize) NAME(nvmlDeviceSetCpuAffinity)                                 \
    NAME(nvmlDeviceSetDefaultAutoBoostedClocksEnabled) NAME(nvmlDeviceSetDefaultFanSpeed_v2)                        \
    NAME(nvmlDeviceSetDramEncryptionMode) NAME(nvmlDeviceSetDriverModel) NAME(nvmlDeviceSetEccMode)                 \
    NAME(nvmlDeviceSetFanControlPolicy) NAME(nvmlDeviceSetFanSpeed_v2) NAME(nvmlDeviceSetGpcClkVfOffset)            \
    NAME(nvmlDeviceSetGpuLockedClocks) NAME(nvmlDeviceSetGpuOperationMode) NAME(nvmlDeviceSetHostname_v1)           \
    NAME(nvmlDeviceSetMemClkVfOffset) NAME(nvmlDeviceSetMemoryLockedClocks)                                         \
    NAME(nvmlDeviceSetNvLinkDeviceLowPowerThreshold) NAME(nvmlDeviceSetNvLinkUtilizationControl)                    \
    NAME(nvmlDeviceSetNvlinkBwMode) NAME(nvmlDeviceSetPowerManagementLimit)                                         \
    NAME(nvmlDeviceSetPowerManagementLimit_v2) NAME(nvmlDeviceSetPowerMizerMode_v1)                                 \
    NAME(nvmlDeviceSetTemperatureThreshold) NAME(nvmlDeviceSetVgpuCapabilities)                                     \
    NAME(nvmlDeviceSetVgpuHeterogeneousMode) NAME(nvmlDeviceSetVgpuSchedulerState)                                  \
    NAME(nvmlDeviceSetVirtualizationMode) NAME(nvmlDeviceValidateInforom)                                           \
    NAME(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles)                                                      \
    NAME(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles) NAME(nvmlDeviceWorkloadPowerProfileGetProfilesInfo)      \
    NAME(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles) NAME(nvmlGetExcludedDeviceCount)                       \
    NAME(nvmlGetExcludedDeviceInfoByIndex) NAME(nvmlGetVgpuCompatibility) NAME(nvmlGetVgpuDriverCapabilities)       \
    NAME(nvmlGetVgpuVersion) NAME(nvmlGpmMetricsGet) NAME(nvmlGpmMigSampleGet) NAME(nvmlGpmQueryDeviceSupport)      \
    NAME(nvmlGpmQueryIfStreamingEnabled) NAME(nvmlGpmSampleAlloc) NAME(nvmlGpmSampleFree) NAME(nvmlGpmSampleGet)    \
    NAME(nvmlGpmSetStreamingEnabled) NAME(nvmlGpuInstanceCreateComputeInstanceWithPlacement)                        \
    NAME(nvmlGpuInstanceGetActiveVgpus) NAME(nvmlGpuInstanceGetComputeInstanceById)                                 \
    NAME(nvmlGpuInstanceGetComputeInstancePossiblePlacements)                                                       \
    NAME(nvmlGpuInstanceGetComputeInstanceRemainingCapacity) NAME(nvmlGpuInstanceGetCreatableVgpus)                 \
    NAME(nvmlGpuInstanceGetVgpuHeterogeneousMode) NAME(nvmlGpuInstanceGetVgpuSchedulerLog)                          \
    NAME(nvmlGpuInstanceGetVgpuSchedulerState) NAME(nvmlGpuInstanceGetVgpuTypeCreatablePlacements)                  \
    NAME(nvmlGpuInstanceSetVgpuHeterogeneousMode) NAME(nvmlGpuInstanceSetVgpuSchedulerState)                        \
    NAME(nvmlSetVgpuVersion) NAME(nvmlSystemEventSetCreate) NAME(nvmlSystemEventSetFree)                            \
    NAME(nvmlSystemEventSetWait) NAME(nvmlSystemGetConfComputeCapabilities)                                         \
    NAME(nvmlSystemGetConfComputeGpusReadyState) NAME(nvmlSystemGetConfComputeKeyRotationThresholdInfo)             \
    NAME(nvmlSystemGetConfComputeSettings) NAME(nvmlSystemGetConfComputeState) NAME(nvmlSystemGetDriverBranch)      \
    NAME(nvmlSystemGetHicVersion) NAME(nvmlSystemGetNvlinkBwMode) NAME(nvmlSystemGetTopologyGpuSet)                 \
    NAME(nvmlSystemRegisterEvents) NAME(nvmlSystemSetConfComputeGpusReadyState)                                     \
    NAME(nvmlSystemSetConfComputeKeyRotationThresholdInfo) NAME(nvmlSystemSetNvlinkBwMode) NAME(nvmlUnitGetCount)   \
    NAME(nvmlUnitGetDevices) NAME(nvmlUnitGetFanSpeedInfo) NAME(nvmlUnitGetHandleByIndex) NAME(nvmlUnitGetLedState) \
    NAME(nvmlUnitGetPsuInfo) NAME(nvmlUnitGetTemperature) NAME(nvmlUnitGetUnitInfo) NAME(nvmlUnitSetLedState)       \
    NAME(nvmlVgpuInstanceClearAccountingPids) NAME(nvmlVgpuInstanceGetAccountingMode)                               \
    NAME(nvmlVgpuInstanceGetAccountingPids) NAME(nvmlVgpuInstanceGetAccountingStats)                                \
    NAME(nvmlVgpuInstanceGetEccMode) NAME(nvmlVgpuInstanceGetEncoderCapacity)                                       \
    NAME(nvmlVgpuInstanceGetEncoderSessions) NAME(nvmlVgpuInstanceGetEncoderStats)                                  \
    NAME(nvmlVgpuInstanceGetFBCSessions) NAME(nvmlVgpuInstanceGetFBCStats) NAME(nvmlVgpuInstanceGetFbUsage)         \
    NAME(nvmlVgpuInstanceGetFrameRateLimit) NAME(nvmlVgpuInstanceGetGpuInstanceId)                                  \
    NAME(nvmlVgpuInstanceGetGpuPciId) NAME(nvmlVgpuInstanceGetLicenseInfo) NAME(nvmlVgpuInstanceGetLicenseInfo_v2)  \
    NAME(nvmlVgpuInstanceGetLicenseStatus) NAME(nvmlVgpuInstanceGetMdevUUID) NAME(nvmlVgpuInstanceGetMetadata)      \
    NAME(nvmlVgpuInstanceGetPlacementId) NAME(nvmlVgpuInstanceGetRuntimeStateSize) NAME(nvmlVgpuInstanceGetType)    \
    NAME(nvmlVgpuInstanceGetUUID) NAME(nvmlVgpuInstanceGetVmDriverVersion) NAME(nvmlVgpuInstanceGetVmID)            \
    NAME(nvmlVgpuInstanceSetEncoderCapacity) NAME(nvmlVgpuTypeGetBAR1Info) NAME(nvmlVgpuTypeGetCapabilities)        \
    NAME(nvmlVgpuTypeGetClass) NAME(nvmlVgpuTypeGetDeviceID) NAME(nvmlVgpuTypeGetFbReservation)                     \
    NAME(nvmlVgpuTypeGetFrameRateLimit) NAME(nvmlVgpuTypeGetFramebufferSize)                                        \
    NAME(nvmlVgpuTypeGetGpuInstanceProfileId) NAME(nvmlVgpuTypeGetGspHeapSize) NAME(nvmlVgpuTypeGetLicense)         \
    NAME(nvmlVgpuTypeGetMaxInstances) NAME(nvmlVgpuTypeGetMaxInstancesPerGpuInstance)                               \
    NAME(nvmlVgpuTypeGetMaxInstancesPerVm) NAME(nvmlVgpuTypeGetName) NAME(nvmlVgpuTypeGetNumDisplayHeads)           \
    NAME(nvmlVgpuTypeGetResolution)
/* clang-format on */

NAMES

/* Names from before there were versions, or with the structures of a later one. */
code nvmlInit_v2(void);
code nvmlDeviceGetCount_v2(unsigned *count);
code nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device);
code nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *device);
code nvmlSystemGetCudaDriverVersion_v2(int *version);
code nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct process_info *found);
code nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, unsigned *count, struct process_info *found);

API code nvmlInit(void) { return nvmlInit_v2(); }
API code nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
API code nvmlDeviceGetHandleByIndex(unsigned index, handle *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}
API code nvmlDeviceGetHandleByPciBusId(const char *bus_id, handle *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}
API code nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
API code nvmlDeviceGetComputeRunningProcesses_v2(handle device, unsigned *count, struct process_info *found) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, found);
}
API code nvmlDeviceGetGraphicsRunningProcesses_v2(handle device, unsigned *count, struct process_info *found) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, found);
}
