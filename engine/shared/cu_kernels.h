/* Code and launches in the CUDA driver API: modules, libraries, functions, kernels, occupancy. A part of cu.h. */
#ifndef ELASTIC_AI_CU_KERNELS_H
#define ELASTIC_AI_CU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef size_t (*CUoccupancyB2DSize)(int block_size);

/* CUlaunchAttribute and CUlaunchConfig of cuda.h; `value` is a union of 64 bytes there. */
typedef struct {
    int id;
    char pad[4];
    union { char bytes[64]; int cooperative; uint64_t align; } value;
} CUlaunchAttribute;
typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    struct CUstream_st *stream;
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
} CUlaunchConfig;
#define CU_LAUNCH_ATTRIBUTE_COOPERATIVE 2

/* CUfunction_attribute */
enum {
    CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_SHARED_SIZE_BYTES,
    CU_FUNC_CONST_SIZE_BYTES,
    CU_FUNC_LOCAL_SIZE_BYTES,
    CU_FUNC_NUM_REGS,
    CU_FUNC_PTX_VERSION,
    CU_FUNC_BINARY_VERSION,
    CU_FUNC_CACHE_MODE_CA,
    CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_FUNC_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_FUNC_ATTRIBUTE_MAX = 18, /* the numbers of CUDA 13.5 are below */
};

/* CUjit_option: those that say where the compiler's words go. */
enum {
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
    CU_JIT_ERROR_LOG_BUFFER,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
};

/* `extra` of a launch: names with values, up to the end. */
#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

#define CU_LAUNCH_SHAPE \
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
        unsigned shared_bytes, CUstream stream, void **params

#define CU_KERNEL_API(X) \
    X(cuModuleLoad, 2000, cuModuleLoad, (CUmodule *module, const char *path)) \
    X(cuModuleLoadData, 2000, cuModuleLoadData, (CUmodule *module, const void *image)) \
    X(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx, \
      (CUmodule *module, const void *image, unsigned count, int *options, void **values)) \
    X(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary, (CUmodule *module, const void *image)) \
    X(cuModuleUnload, 2000, cuModuleUnload, (CUmodule module)) \
    X(cuModuleGetFunction, 2000, cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
    X(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2, \
      (CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)) \
    X(cuLibraryLoadData, 12000, cuLibraryLoadData, \
      (CUlibrary *library, const void *image, int *options, void **values, unsigned count, int *library_options, \
       void **library_values, unsigned library_count)) \
    X(cuLibraryUnload, 12000, cuLibraryUnload, (CUlibrary library)) \
    X(cuLibraryGetKernel, 12000, cuLibraryGetKernel, (CUkernel *kernel, CUlibrary library, const char *name)) \
    X(cuLibraryGetModule, 12000, cuLibraryGetModule, (CUmodule *module, CUlibrary library)) \
    X(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal, \
      (CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)) \
    X(cuKernelGetFunction, 12000, cuKernelGetFunction, (CUfunction *function, CUkernel kernel)) \
    X(cuKernelGetAttribute, 12000, cuKernelGetAttribute, \
      (int *value, int attribute, CUkernel kernel, CUdevice device)) \
    X(cuKernelSetAttribute, 12000, cuKernelSetAttribute, \
      (int attribute, int value, CUkernel kernel, CUdevice device)) \
    X(cuKernelGetParamInfo, 12040, cuKernelGetParamInfo, \
      (CUkernel kernel, size_t index, size_t *offset, size_t *bytes)) \
    X(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo, \
      (CUfunction function, size_t index, size_t *offset, size_t *bytes)) \
    X(cuFuncGetAttribute, 2020, cuFuncGetAttribute, (int *value, int attribute, CUfunction function)) \
    X(cuFuncSetAttribute, 9000, cuFuncSetAttribute, (CUfunction function, int attribute, int value)) \
    X(cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig, (CUfunction function, int config)) \
    X(cuFuncGetModule, 11000, cuFuncGetModule, (CUmodule *module, CUfunction function)) \
    X(cuLaunchKernel, 4000, cuLaunchKernel, (CU_LAUNCH_SHAPE, void **extra)) \
    X(cuLaunchKernelEx, 11060, cuLaunchKernelEx, \
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra)) \
    X(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel, (CU_LAUNCH_SHAPE)) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor, \
      (int *blocks, CUfunction function, int block_size, size_t shared_bytes)) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, \
      cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, \
      (int *blocks, CUfunction function, int block_size, size_t shared_bytes, unsigned flags)) \
    X(cuOccupancyMaxPotentialBlockSize, 6050, cuOccupancyMaxPotentialBlockSize, \
      (int *grid_size, int *block_size, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared_bytes, \
       int limit))

#endif
