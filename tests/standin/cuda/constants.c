/* What cuda_api.h takes CUDA's numbers and structures to be. Compiled once as it is and once with NVIDIA's own header
 * (-DWITH_CUDA_HEADER), it must print the same. (What functions look like the compiler compares, see cuda_api.h.) */
#include <stdio.h>

#include "standin_cuda.h"

#define NUMBER(name) printf("%s %lld\n", #name, (long long)(name));
#define SIZE(name) printf("sizeof %s %zu\n", #name, sizeof(name));
#define FIELD(name, field) printf("offsetof %s.%s %zu\n", #name, #field, offsetof(name, field));

int main(void) {
    NUMBER(CUDA_SUCCESS)
    NUMBER(CUDA_ERROR_INVALID_VALUE)
    NUMBER(CUDA_ERROR_NOT_INITIALIZED)
    NUMBER(CUDA_ERROR_INVALID_CONTEXT)
    NUMBER(CUDA_ERROR_INVALID_HANDLE)
    NUMBER(CUDA_ERROR_NOT_FOUND)
    NUMBER(CUDA_ERROR_LAUNCH_FAILED)
    NUMBER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    NUMBER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    NUMBER(CU_STREAM_DEFAULT)
    NUMBER(CU_STREAM_NON_BLOCKING)
    NUMBER(CU_EVENT_DEFAULT)
    NUMBER(CU_EVENT_DISABLE_TIMING)
    NUMBER(CU_STREAM_CAPTURE_STATUS_NONE)
    NUMBER(CU_STREAM_CAPTURE_STATUS_ACTIVE)
    NUMBER(CU_STREAM_CAPTURE_MODE_GLOBAL)
    NUMBER(CU_STREAM_CAPTURE_MODE_RELAXED)
    NUMBER(CU_GET_PROC_ADDRESS_SUCCESS)
    NUMBER(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
    NUMBER(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)
    NUMBER(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    NUMBER(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
    NUMBER((uintptr_t)CU_STREAM_LEGACY)
    NUMBER((uintptr_t)CU_STREAM_PER_THREAD)
    SIZE(CUresult)
    SIZE(CUdevice)
    SIZE(CUdeviceptr)
    SIZE(CUuuid)
    SIZE(CUlaunchConfig)
    FIELD(CUlaunchConfig, gridDimX)
    FIELD(CUlaunchConfig, gridDimY)
    FIELD(CUlaunchConfig, gridDimZ)
    FIELD(CUlaunchConfig, blockDimX)
    FIELD(CUlaunchConfig, blockDimY)
    FIELD(CUlaunchConfig, blockDimZ)
    FIELD(CUlaunchConfig, sharedMemBytes)
    FIELD(CUlaunchConfig, hStream)
    FIELD(CUlaunchConfig, attrs)
    FIELD(CUlaunchConfig, numAttrs)
    return 0;
}
