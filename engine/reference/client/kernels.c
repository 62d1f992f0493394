/* Launches, and what a program asks of a kernel: answered here as far as the server has told it once. */
#define _GNU_SOURCE
#include "modules.h"

#include <string.h>

#include "connections.h"
#include "current.h"
#include "rpc.h"
#include "start.h"
#include "stream.h"

struct shape {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    const CUlaunchAttribute *attributes;
    unsigned attribute_count;
};

/* CUDA says at once what is wrong with the shape; what is wrong with the work comes later. */
static CUresult check(const struct function *f, const struct shape *s) {
    const struct device_info *device;
    int local;
    uint64_t threads = (uint64_t)s->block[0] * s->block[1] * s->block[2];
    struct connection *c = device_server(f->o.device, &local);
    if (!threads || !s->grid[0] || !s->grid[1] || !s->grid[2]) return CUDA_ERROR_INVALID_VALUE;
    if (!c) return CUDA_ERROR_INVALID_HANDLE;
    device = &c->info[local];
    for (int i = 0; i < 3; i++) { /* MAX_BLOCK_DIM_X and, three later, MAX_GRID_DIM_X; 0 of a device that does not say */
        int64_t block = device->attribute[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i];
        int64_t grid = device->attribute[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i];
        if ((block > 0 && s->block[i] > block) || (grid > 0 && s->grid[i] > grid)) return CUDA_ERROR_INVALID_VALUE;
    }
    int64_t most = device->attribute[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    int64_t own = f->info.attribute[CU_FUNC_MAX_THREADS_PER_BLOCK];
    if (most > 0 && threads > (uint64_t)most) return CUDA_ERROR_INVALID_VALUE;
    if (!f->info.attribute_status[CU_FUNC_MAX_THREADS_PER_BLOCK] && threads > (uint64_t)own)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    int64_t shared = f->info.attribute[CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    if (!f->info.attribute_status[CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES] && s->shared_bytes > shared)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The parameters side by side, as the kernel has them. */
static CUresult pack(const struct function *f, void **params, void **extra, unsigned char *to, size_t *bytes) {
    const unsigned char *buffer = NULL;
    size_t given = 0;
    if (params && extra) return CUDA_ERROR_INVALID_VALUE;
    *bytes = f->parameter_bytes;
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (i > 8) return CUDA_ERROR_INVALID_VALUE;
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) given = *(size_t *)extra[i + 1];
        else return CUDA_ERROR_INVALID_VALUE;
    }
    if (extra) {
        if (f->info.layout_status) *bytes = given;
        if (given > MOST_PARAMETER_BYTES || given < *bytes || (*bytes && !buffer)) return CUDA_ERROR_INVALID_VALUE;
        if (*bytes) memcpy(to, buffer, *bytes);
        return CUDA_SUCCESS;
    }
    if (f->info.layout_status) return params ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    if (!params && f->info.parameters) return CUDA_ERROR_INVALID_VALUE;
    memset(to, 0, *bytes);
    for (uint32_t i = 0; i < f->info.parameters; i++) {
        if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
        memcpy(to + f->parameter[i].offset, params[i], f->parameter[i].bytes);
    }
    return CUDA_SUCCESS;
}

static uint64_t two(unsigned first, unsigned second) {
    return first | (uint64_t)second << 32;
}

static CUresult launch(CUfunction handle, const struct shape *s, void **params, void **extra) {
    unsigned char body[MOST_PARAMETER_BYTES + 4 + MOST_ATTRIBUTES * sizeof(struct launch_attribute)];
    struct object *context;
    uint64_t stream;
    size_t bytes;
    TRY(ready());
    struct function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_find(s->stream, &context, &stream));
    if (context != f->o.context) return CUDA_ERROR_INVALID_HANDLE;
    TRY(context->fault);
    TRY(check(f, s));
    TRY(pack(f, params, extra, body, &bytes));
    if (s->attribute_count > MOST_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
    bool together = false;
    for (unsigned i = 0; i < s->attribute_count; i++) {
        if (s->attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) together = s->attributes[i].value.cooperative;
        struct launch_attribute one = {.id = s->attributes[i].id};
        memcpy(one.value, s->attributes[i].value.bytes, sizeof one.value);
        memcpy(body + bytes + i * sizeof one, &one, sizeof one);
    }
    struct request r = {
        .op = OP_LAUNCH,
        .context = context->number,
        .bytes = bytes + s->attribute_count * sizeof(struct launch_attribute),
        .arg = {f->o.number, stream, two(s->grid[0], s->grid[1]), two(s->grid[2], s->block[0]),
                two(s->block[1], s->block[2]), two(s->shared_bytes, s->attribute_count)},
    };
    /* Whether all blocks of a cooperative launch fit at a time, the driver alone knows, and programs ask by launching. */
    return together ? call(context->c, &r, body, NULL) : post(context->c, &r, body);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared_bytes, CUstream stream, void **params, void **extra) {
    struct shape s = {{gx, gy, gz}, {bx, by, bz}, shared_bytes, stream, NULL, 0};
    return launch(function, &s, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    if (!config || (config->attribute_count && !config->attributes)) return CUDA_ERROR_INVALID_VALUE;
    struct shape s = {{config->grid[0], config->grid[1], config->grid[2]},
                      {config->block[0], config->block[1], config->block[2]},
                      config->shared_bytes, config->stream, config->attributes, config->attribute_count};
    return launch(function, &s, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared_bytes, CUstream stream, void **params) {
    CUlaunchAttribute together = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    struct shape s = {{gx, gy, gz}, {bx, by, bz}, shared_bytes, stream, &together, 1};
    return launch(function, &s, params, NULL);
}

/* Functions. */

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes) {
    TRY(ready());
    const struct function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    if (f->info.layout_status) return f->info.layout_status;
    if (!offset || index >= f->info.parameters) return CUDA_ERROR_INVALID_VALUE;
    *offset = f->parameter[index].offset;
    if (bytes) *bytes = f->parameter[index].bytes;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
    return cuFuncGetParamInfo((CUfunction)kernel, index, offset, bytes);
}

CUresult cuFuncGetName(const char **name, CUfunction handle) {
    const struct function *f = function_of(handle);
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    *name = f->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle) {
    if (!value || attribute < 0 || attribute >= FUNC_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    const struct function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    *value = f->info.attribute[attribute];
    return f->info.attribute_status[attribute];
}

CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
    if (attribute < 0 || attribute >= FUNC_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    struct request r = {.op = OP_FUNC_SET, .arg = {f->o.number, (uint64_t)attribute, (uint64_t)(int64_t)value}};
    struct reply reply;
    TRY(call(f->o.c, &r, NULL, &reply));
    f->info.attribute[attribute] = (int)(int64_t)reply.value[0];
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, int config) {
    TRY(ready());
    struct function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    struct request r = {.op = OP_FUNC_SET, .arg = {f->o.number, FUNC_CACHE_CONFIG, (uint64_t)(int64_t)config}};
    return call(f->o.c, &r, NULL, NULL);
}

/* A kernel's function is that of the current context; for another device there is none to ask. */
static CUresult kernel_on(CUkernel kernel, CUdevice device, CUfunction *function) {
    TRY(ready());
    if (device < 0 || device >= device_count) return CUDA_ERROR_INVALID_DEVICE;
    if (!current() || current()->device != device) return CUDA_ERROR_NOT_SUPPORTED;
    return cuKernelGetFunction(function, kernel);
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device) {
    CUfunction function;
    TRY(kernel_on(kernel, device, &function));
    return cuFuncGetAttribute(value, attribute, function);
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    CUfunction function;
    TRY(kernel_on(kernel, device, &function));
    return cuFuncSetAttribute(function, attribute, value);
}

/* Occupancy. */

static CUresult ask_occupancy(CUfunction handle, enum occupancy what, int number, size_t shared, unsigned flags,
                              struct reply *reply) {
    TRY(ready());
    struct function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    if (number < 0) return CUDA_ERROR_INVALID_VALUE;
    struct request r = {.op = OP_OCCUPANCY, .arg = {what, f->o.number, (uint64_t)number, shared, flags}};
    return call(f->o.c, &r, NULL, reply);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
                                                              size_t shared_bytes, unsigned flags) {
    struct reply reply;
    if (!blocks) return CUDA_ERROR_INVALID_VALUE;
    TRY(ask_occupancy(function, ACTIVE_BLOCKS, block_size, shared_bytes, flags, &reply));
    *blocks = (int)(int64_t)reply.value[0];
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t shared_bytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes, 0);
}

/* A function of the program that tells shared memory by block size cannot be asked by the server. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit,
                                                   unsigned flags) {
    struct reply reply;
    if (!grid_size || !block_size) return CUDA_ERROR_INVALID_VALUE;
    if (shared_of) return CUDA_ERROR_NOT_SUPPORTED;
    TRY(ask_occupancy(function, BEST_BLOCK_SIZE, limit, shared_bytes, flags, &reply));
    *grid_size = (int)(int64_t)reply.value[0];
    *block_size = (int)(int64_t)reply.value[1];
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function, shared_of, shared_bytes, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int block_size) {
    struct reply reply;
    if (!bytes || blocks < 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(ask_occupancy(function, SHARED_LEFT, block_size, 0, (unsigned)blocks, &reply));
    *bytes = reply.value[0];
    return CUDA_SUCCESS;
}
