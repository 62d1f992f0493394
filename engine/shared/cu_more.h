/* What programs ask for beside memory and launches: more copies, what a pointer is, limits, occupancy, links. A part of
 * cu.h. */
#ifndef ELASTIC_AI_CU_MORE_H
#define ELASTIC_AI_CU_MORE_H

#include "cu_kernels.h"

typedef struct CUlinkState_st *CUlinkState;

/* CUDA_MEMCPY2D; memory types are enum memory_type. */
typedef struct {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array;
    size_t to_pitch, width_bytes, height;
} CUcopy2D;
enum memory_type { MEMORY_HOST = 1, MEMORY_DEVICE, MEMORY_ARRAY, MEMORY_UNIFIED };

#define CU_MORE_API(X) \
    X(cuMemcpy, 4000, cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyAsync, 4000, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpy2D, 3020, cuMemcpy2D_v2, (const CUcopy2D *copy)) \
    X(cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2, (const CUcopy2D *copy)) \
    X(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, (const CUcopy2D *copy, CUstream stream)) \
    X(cuMemsetD16, 3020, cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, size_t count)) \
    X(cuMemsetD16Async, 3020, cuMemsetD16Async, \
      (CUdeviceptr to, unsigned short value, size_t count, CUstream stream)) \
    X(cuMemsetD2D8, 3020, cuMemsetD2D8_v2, \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height)) \
    X(cuMemsetD2D32, 3020, cuMemsetD2D32_v2, \
      (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height)) \
    X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)) \
    X(cuPointerGetAttribute, 4000, cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr pointer)) \
    X(cuPointerGetAttributes, 7000, cuPointerGetAttributes, \
      (unsigned count, int *attributes, void **values, CUdeviceptr pointer)) \
    X(cuCtxGetLimit, 3010, cuCtxGetLimit, (size_t *value, int limit)) \
    X(cuCtxSetLimit, 3010, cuCtxSetLimit, (int limit, size_t value)) \
    X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion, (CUcontext context, unsigned *version)) \
    X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, (int *least, int *greatest)) \
    X(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability, (int *major, int *minor, CUdevice device)) \
    X(cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode, (int *mode)) \
    X(cuFuncGetName, 12030, cuFuncGetName, (const char **name, CUfunction function)) \
    X(cuKernelGetName, 12030, cuKernelGetName, (const char **name, CUkernel kernel)) \
    X(cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, cuOccupancyMaxPotentialBlockSizeWithFlags, \
      (int *grid_size, int *block_size, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared_bytes, \
       int limit, unsigned flags)) \
    X(cuOccupancyAvailableDynamicSMemPerBlock, 10020, cuOccupancyAvailableDynamicSMemPerBlock, \
      (size_t *bytes, CUfunction function, int blocks, int block_size))

#endif
