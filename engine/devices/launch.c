/* Functions: what they are like, what they need, and their launches. */
#define _GNU_SOURCE
#include "code.h"
#include "grid.h"
#include "memory.h"
#include "queue.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARAMS_AT 64 /* the parameters of a launch begin at such an address */

static CUresult param_info(const struct function *f, size_t index, size_t *offset, size_t *bytes) {
    if (!offset || index >= f->kernel->param_count) return CUDA_ERROR_INVALID_VALUE;
    *offset = f->kernel->params[index].offset;
    if (bytes) *bytes = f->kernel->params[index].bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes) {
    struct function *f;
    TRY(function_of(handle, &f));
    return param_info(f, index, offset, bytes);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
    const struct function *f = kernel_of(kernel);
    return f ? param_info(f, index, offset, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

/* An emulated device has no registers and no local memory: 0. */
static CUresult attribute_get(int *value, int attribute, const struct function *f, int gpu) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_FUNC_MAX_THREADS_PER_BLOCK: *value = MAX_BLOCK_THREADS; break;
    case CU_FUNC_SHARED_SIZE_BYTES: *value = f->static_shared; break;
    case CU_FUNC_PTX_VERSION: *value = function_target(f); break;
    case CU_FUNC_BINARY_VERSION: *value = gpus[gpu].capability_major * 10 + gpus[gpu].capability_minor; break;
    case CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->most_shared; break;
    case CU_FUNC_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
    case CU_FUNC_CONST_SIZE_BYTES:
    case CU_FUNC_LOCAL_SIZE_BYTES:
    case CU_FUNC_NUM_REGS:
    case CU_FUNC_CACHE_MODE_CA: *value = 0; break;
    default: /* clusters and what came later: an emulated device has none */
        if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
        *value = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult attribute_set(struct function *f, int attribute, int value) {
    if (attribute == CU_FUNC_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS; /* a hint */
    if (attribute != CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    if (value < 0 || value > MAX_SHARED_BYTES - f->static_shared) return CUDA_ERROR_INVALID_VALUE;
    f->most_shared = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle) {
    struct function *f;
    TRY(function_of(handle, &f));
    return attribute_get(value, attribute, f, current()->gpu);
}

CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
    struct function *f;
    TRY(function_of(handle, &f));
    return attribute_set(f, attribute, value);
}

static CUresult kernel_on(CUkernel kernel, CUdevice device, struct function **f) {
    int count;
    TRY(cuDeviceGetCount(&count));
    if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
    *f = kernel_of(kernel);
    return *f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device) {
    struct function *f;
    TRY(kernel_on(kernel, device, &f));
    return attribute_get(value, attribute, f, visible[device]);
}

/* For the device's context, which is the current one or will be. */
CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    struct function *f, *here;
    TRY(kernel_on(kernel, device, &f));
    TRY(attribute_set(f, attribute, value));
    return function_of((CUfunction)kernel, &here) ? CUDA_SUCCESS : attribute_set(here, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, int config) {
    struct function *f;
    TRY(function_of(handle, &f));
    return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; /* a hint */
}

static int fitting(const struct function *f, size_t threads, size_t shared) {
    size_t warps = (threads + WARP - 1) / WARP, blocks = MAX_SM_THREADS / WARP / warps;
    size_t all = (size_t)f->static_shared + shared, by_shared = all ? MAX_SHARED_BYTES / all : MAX_SM_BLOCKS;
    if (blocks > MAX_SM_BLOCKS) blocks = MAX_SM_BLOCKS;
    if (threads > MAX_BLOCK_THREADS || shared > (size_t)f->most_shared) return 0;
    return (int)(blocks < by_shared ? blocks : by_shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int block_size, size_t shared,
                                                              unsigned flags) {
    struct function *f;
    if (!blocks || block_size < 1 || flags > 1) return CUDA_ERROR_INVALID_VALUE;
    TRY(function_of(handle, &f));
    *blocks = fitting(f, (size_t)block_size, shared);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int block_size, size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block_size, shared, 0);
}

/* The largest number of threads on a multiprocessor, in the largest blocks. */
CUresult cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction handle, CUoccupancyB2DSize shared_of,
                                          size_t shared, int limit) {
    struct function *f;
    int best = 0;
    if (!grid_size || !block_size || limit < 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(function_of(handle, &f));
    if (!limit || limit > MAX_BLOCK_THREADS) limit = MAX_BLOCK_THREADS;
    *grid_size = *block_size = 0;
    for (int size = limit / WARP ? limit / WARP * WARP : limit; size > 0; size -= WARP) {
        int blocks = fitting(f, (size_t)size, shared_of ? shared_of(size) : shared);
        if (blocks * size <= best) continue;
        best = blocks * size;
        *block_size = size;
        *grid_size = blocks * gpus[current()->gpu].sm_count;
    }
    return CUDA_SUCCESS;
}

/* The parameters as they come, side by side at `to`. */
static CUresult pack(const struct host_kernel *k, void **params, void **extra, unsigned char *to) {
    const unsigned char *buffer = NULL;
    size_t bytes = 0;
    if (params && extra) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (i > 8) return CUDA_ERROR_INVALID_VALUE;
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t *)extra[i + 1];
        else return CUDA_ERROR_INVALID_VALUE;
    }
    if (!k->param_count) return CUDA_SUCCESS;
    if (extra) {
        if (!buffer || bytes < k->param_bytes) return CUDA_ERROR_INVALID_VALUE;
        memcpy(to, buffer, k->param_bytes);
        return CUDA_SUCCESS;
    }
    if (!params) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < k->param_count; i++) {
        if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
        memcpy(to + k->params[i].offset, params[i], k->params[i].bytes);
    }
    return CUDA_SUCCESS;
}

/* A launch under way. */
struct launched {
    struct task task;
    struct grid grid;
    unsigned char *params;
};

/* A kernel that ends when its context does. */
static void endless(int gpu, volatile bool *stop) {
    const struct timespec step = {.tv_nsec = 5000000};
    while (!*stop) {
        uint64_t began = state_now_ns();
        nanosleep(&step, NULL);
        state_busy(gpu, state_now_ns() - began);
    }
}

static void perform(struct task *task, volatile bool *stop, bool skip) {
    static uint64_t launches[MAX_GPUS];
    struct launched *l = (struct launched *)task;
    struct context *c = task->context;
    const struct health *h = &gpus[c->gpu].health;
    if (!skip) {
        int64_t number = (int64_t)__atomic_fetch_add(&launches[c->gpu], 1, __ATOMIC_RELAXED);
        uint64_t began = state_now_ns();
        l->grid.stop = stop;
        CUresult broken = memory_broken(c->gpu);
        if (broken) c->fault = broken;
        else if (h->illegal_after != UNSAID && number >= h->illegal_after) c->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
        else if (h->endless_after != UNSAID && number >= h->endless_after) endless(c->gpu, stop), began = state_now_ns();
        else {
            CUresult fault = grid_run(&l->grid);
            if (fault) c->fault = fault; /* how the kernel fared the next call says */
        }
        memory_slow(c->gpu, began);
        state_busy(c->gpu, state_now_ns() - began);
    }
    free(l->params);
    free(l);
}

static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared, CUstream stream,
                       void **params, void **extra, bool together) {
    static volatile bool never;
    struct function *f;
    TRY(function_of(handle, &f));
    TRY(stream_check(stream));
    struct context *c = current();
    if (stream_context(stream) != c) return CUDA_ERROR_INVALID_HANDLE;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2], blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    if (!threads || !blocks || block[0] > MAX_BLOCK_THREADS || block[1] > MAX_BLOCK_THREADS || block[2] > MAX_BLOCK_Z ||
        threads > MAX_BLOCK_THREADS || grid[0] > 0x7fffffff || grid[1] > MAX_GRID_YZ || grid[2] > MAX_GRID_YZ ||
        shared > (unsigned)f->most_shared)
        return CUDA_ERROR_INVALID_VALUE;
    if (together && blocks > (uint64_t)fitting(f, threads, shared) * (unsigned)gpus[c->gpu].sm_count)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    struct launched *l = malloc(sizeof *l);
    unsigned char *packed = aligned_alloc(PARAMS_AT, (f->kernel->param_bytes / PARAMS_AT + 1) * PARAMS_AT);
    CUresult status = l && packed ? pack(f->kernel, params, extra, packed) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status) return free(l), free(packed), status;
    *l = (struct launched){.task = {.context = c, .run = perform},
                           .grid = {f->kernel, packed, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, &never},
                           .params = packed};
    if (queue_add(stream, &l->task, NULL)) return CUDA_SUCCESS;
    free(l->task.needs); /* where there is no thread, the caller does it */
    l->task.needs = NULL;
    queue_wait(stream, true);
    perform(&l->task, &never, c->fault != CUDA_SUCCESS);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared_bytes, CUstream stream, void **params, void **extra) {
    return launch(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared_bytes, stream, params, extra, false);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared_bytes, CUstream stream, void **params) {
    return launch(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared_bytes, stream, params, NULL, true);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    bool together = false;
    if (!config || (config->attribute_count && !config->attributes)) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->attribute_count; i++)
        if (config->attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) together = config->attributes[i].value.cooperative;
    return launch(function, config->grid, config->block, config->shared_bytes, config->stream, params, extra, together);
}
