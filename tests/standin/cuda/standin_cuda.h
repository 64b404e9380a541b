/* What the stand-in has and the test programs call of the driver interface, beyond the hook's part in cuda_api.h. */
#ifndef STANDIN_CUDA_H
#define STANDIN_CUDA_H

#include "cuda_api.h"

#ifndef WITH_CUDA_HEADER
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUgraphNode_st *CUgraphNode;
#endif

CUresult cuInit(unsigned flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetCount(int *count);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr at);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);

#endif
