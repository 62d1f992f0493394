/* The part of the CUDA driver API that the reference engine and the emulated devices have. Names, values and
 * signatures are those of NVIDIA's public headers (CUDA 13.5), which neither part needs to be built. */
#ifndef ELASTIC_AI_CU_H
#define ELASTIC_AI_CU_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define TRY(expression) \
    do { \
        CUresult status_ = (expression); \
        if (status_) return status_; \
    } while (0)

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct { char bytes[16]; } CUuuid;

#include "cu_errors.h"
#include "cu_kernels.h"
#include "cu_more.h"
#include "cu_numbers.h"

/* X(name for cuGetProcAddress, CUDA version from which it means this symbol, symbol, parameters) */
#define CU_API(X) \
    X(cuInit, 2000, cuInit, (unsigned flags)) \
    X(cuDriverGetVersion, 2020, cuDriverGetVersion, (int *version)) \
    X(cuDeviceGet, 2000, cuDeviceGet, (CUdevice *device, int ordinal)) \
    X(cuDeviceGetCount, 2000, cuDeviceGetCount, (int *count)) \
    X(cuDeviceGetName, 2000, cuDeviceGetName, (char *name, int size, CUdevice device)) \
    X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, (CUuuid *uuid, CUdevice device)) \
    X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device)) \
    X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device)) \
    X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
    X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId, (char *id, int size, CUdevice device)) \
    X(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId, (CUdevice *device, const char *id)) \
    X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
    X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active)) \
    X(cuCtxCreate, 3020, cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device)) \
    X(cuCtxCreate, 11040, cuCtxCreate_v3, \
      (CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device)) \
    X(cuCtxCreate, 12050, cuCtxCreate_v4, (CUcontext *context, void *params, unsigned flags, CUdevice device)) \
    X(cuCtxDestroy, 4000, cuCtxDestroy_v2, (CUcontext context)) \
    X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, (CUcontext context)) \
    X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, (CUcontext *context)) \
    X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (CUcontext context)) \
    X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (CUcontext *context)) \
    X(cuCtxGetDevice, 2000, cuCtxGetDevice, (CUdevice *device)) \
    X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, (CUdevice *device, CUcontext context)) \
    X(cuCtxSynchronize, 2000, cuCtxSynchronize, (void)) \
    X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, (CUcontext context)) \
    X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer)) \
    X(cuDeviceGetP2PAttribute, 8000, cuDeviceGetP2PAttribute, \
      (int *value, int attribute, CUdevice from, CUdevice to)) \
    X(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess, (CUcontext handle, unsigned flags)) \
    X(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess, (CUcontext handle)) \
    X(cuMemAlloc, 3020, cuMemAlloc_v2, (CUdeviceptr *pointer, size_t bytes)) \
    X(cuMemFree, 3020, cuMemFree_v2, (CUdeviceptr pointer)) \
    X(cuMemGetInfo, 3020, cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes)) \
    X(cuMemAllocHost, 3020, cuMemAllocHost_v2, (void **pointer, size_t bytes)) \
    X(cuMemHostAlloc, 2020, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags)) \
    X(cuMemFreeHost, 2000, cuMemFreeHost, (void *pointer)) \
    X(cuMemHostRegister, 6050, cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned flags)) \
    X(cuMemHostUnregister, 4000, cuMemHostUnregister, (void *pointer)) \
    X(cuMemHostGetFlags, 2030, cuMemHostGetFlags, (unsigned *flags, void *pointer)) \
    X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyPeer, 4000, cuMemcpyPeer, \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)) \
    X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync, \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)) \
    X(cuMemsetD8, 3020, cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count)) \
    X(cuMemsetD32, 3020, cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t count)) \
    X(cuMemsetD8Async, 3020, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream)) \
    X(cuMemsetD32Async, 3020, cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream)) \
    X(cuStreamCreate, 2000, cuStreamCreate, (CUstream *stream, unsigned flags)) \
    X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority, (CUstream *stream, unsigned flags, int priority)) \
    X(cuStreamDestroy, 4000, cuStreamDestroy_v2, (CUstream stream)) \
    X(cuStreamQuery, 2000, cuStreamQuery, (CUstream stream)) \
    X(cuStreamSynchronize, 2000, cuStreamSynchronize, (CUstream stream)) \
    X(cuStreamWaitEvent, 3020, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
    X(cuEventCreate, 2000, cuEventCreate, (CUevent *event, unsigned flags)) \
    X(cuEventDestroy, 4000, cuEventDestroy_v2, (CUevent event)) \
    X(cuEventRecord, 2000, cuEventRecord, (CUevent event, CUstream stream)) \
    X(cuEventQuery, 2000, cuEventQuery, (CUevent event)) \
    X(cuEventSynchronize, 2000, cuEventSynchronize, (CUevent event)) \
    X(cuEventElapsedTime, 2000, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end)) \
    X(cuEventElapsedTime, 12080, cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end)) \
    X(cuGetErrorName, 6000, cuGetErrorName, (CUresult error, const char **text)) \
    X(cuGetErrorString, 6000, cuGetErrorString, (CUresult error, const char **text)) \
    X(cuGetProcAddress, 11030, cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags)) \
    X(cuGetProcAddress, 12000, cuGetProcAddress_v2, \
      (const char *symbol, void **function, int version, uint64_t flags, int *status)) \
    CU_KERNEL_API(X) \
    CU_MORE_API(X)

#define CU_DECLARE(base, version, symbol, params) EXPORT CUresult symbol params;
CU_API(CU_DECLARE)
#undef CU_DECLARE

#endif
