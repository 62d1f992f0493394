/* The functions of the host's libcuda.so.1 that the server uses. */
#ifndef ELASTIC_AI_DRIVER_H
#define ELASTIC_AI_DRIVER_H

#include <stdbool.h>

#include "../../shared/cu.h"

#define DRIVER(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid) \
    X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) X(cuDeviceGetPCIBusId) X(cuDevicePrimaryCtxRetain) \
    X(cuDevicePrimaryCtxRelease_v2) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxSetCurrent) X(cuCtxSynchronize) \
    X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) X(cuMemAllocHost_v2) X(cuMemFreeHost) \
    X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyPeerAsync) \
    X(cuMemsetD8Async) X(cuMemsetD32Async) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamQuery) \
    X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) \
    X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime)

/* What a driver may lack: NULL then. */
#define DRIVER_MAY(X) \
    X(cuDeviceGetUuid_v2) \
    X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuFuncGetAttribute) \
    X(cuFuncSetAttribute) X(cuFuncSetCacheConfig) X(cuFuncGetParamInfo) X(cuLaunchKernel) X(cuLaunchKernelEx) \
    X(cuLaunchCooperativeKernel) X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
    X(cuOccupancyMaxPotentialBlockSize) X(cuOccupancyMaxPotentialBlockSizeWithFlags) \
    X(cuOccupancyAvailableDynamicSMemPerBlock) X(cuCtxGetLimit) \
    X(cuCtxSetLimit) X(cuCtxGetStreamPriorityRange) X(cuMemsetD16Async)

struct driver {
#define DRIVER_FIELD(name) __typeof__(&name) name;
    DRIVER(DRIVER_FIELD)
    DRIVER_MAY(DRIVER_FIELD)
#undef DRIVER_FIELD
    bool emulated; /* it is that of emulated devices: devices/emulated.h */
};
extern struct driver driver;
const char *driver_load(void); /* NULL, or why not */

#endif
