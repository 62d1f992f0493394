/* Launches, occupancy, and the limits of a context. A launch's parameters are bytes for the kernel; how many there are of
 * them is the driver's word, never the client's. */
#define _GNU_SOURCE
#include "launch.h"

#include <string.h>

#include "accounts.h"
#include "code.h"
#include "driver.h"
#include "handles.h"
#include "options.h"
#include "session.h"

#define SM_COUNT CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
#define SM_THREADS CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR
#define USUAL_STACK 1024 /* bytes of each thread, which a context has from the beginning */
#define MOST_LIMIT ((uint64_t)1 << 40)

static uint64_t threads_of(int device) {
    int64_t count = session.info[device].attribute[SM_COUNT], each = session.info[device].attribute[SM_THREADS];
    return count > 0 && each > 0 ? (uint64_t)(count * each) : 1;
}

/* Device memory that a context takes beside its own and what was allocated in it. */
static CUresult take_more(struct handle *context, uint64_t bytes) {
    if (!account_take(session.child, context->device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    context->bytes += bytes;
    return CUDA_SUCCESS;
}

static void take_less(struct handle *context, uint64_t bytes) {
    account_give(session.child, context->device, bytes);
    context->bytes -= bytes;
}

/* Threads' local memory grows with the largest kernel so far, and stays. */
static CUresult have_local(struct handle *context, uint64_t bytes) {
    uint64_t had = context->local_bytes < USUAL_STACK ? USUAL_STACK : context->local_bytes;
    if (bytes <= had || !options.memory_limit) return CUDA_SUCCESS;
    TRY(take_more(context, (bytes - had) * threads_of(context->device)));
    context->local_bytes = bytes;
    return CUDA_SUCCESS;
}

/* CUlaunchAttributeID: those whose value is data. Others hold events, graph nodes, or addresses. */
static bool is_data(int32_t id) {
    return id == 0 || (id >= 2 && id <= 6) || (id >= 8 && id <= 11) || id == 14;
}

static CUresult launch_with(CUlaunchConfig *config, CUfunction function, void **params, void **extra,
                            const unsigned char *given) {
    static CUlaunchAttribute attributes[MOST_ATTRIBUTES];
    for (unsigned i = 0; i < config->attribute_count; i++) {
        struct launch_attribute one;
        memcpy(&one, given + i * sizeof one, sizeof one);
        if (!is_data(one.id)) return CUDA_ERROR_NOT_SUPPORTED;
        attributes[i] = (CUlaunchAttribute){.id = one.id};
        memcpy(attributes[i].value.bytes, one.value, sizeof one.value);
    }
    config->attributes = attributes;
    if (config->attribute_count == 1 && attributes[0].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
        attributes[0].value.cooperative && params && driver.cuLaunchCooperativeKernel)
        return driver.cuLaunchCooperativeKernel(function, config->grid[0], config->grid[1], config->grid[2],
                                                config->block[0], config->block[1], config->block[2],
                                                config->shared_bytes, config->stream, params);
    return driver.cuLaunchKernelEx ? driver.cuLaunchKernelEx(config, function, params, extra) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult launch(const struct request *r, uint64_t *value) {
    static _Alignas(16) unsigned char payload[MOST_PARAMETER_BYTES + 4 + MOST_ATTRIBUTES * sizeof(struct launch_attribute)];
    static void *params[MOST_PARAMETERS + 1];
    uint64_t attributes = r->arg[5] >> 32, tail = attributes * sizeof(struct launch_attribute);
    (void)value;
    if (r->bytes > sizeof payload) {
        discard(r->bytes);
        return CUDA_ERROR_INVALID_VALUE;
    }
    receive(payload, (size_t)r->bytes);
    if (attributes > MOST_ATTRIBUTES || tail > r->bytes) return CUDA_ERROR_INVALID_VALUE;
    struct handle *function = handle_get(r->arg[0], FUNCTION), *stream = r->arg[1] ? handle_get(r->arg[1], STREAM) : NULL;
    if (!function || (r->arg[1] && (!stream || stream->context != function->context))) return CUDA_ERROR_INVALID_HANDLE;
    if (!driver.cuLaunchKernel) return CUDA_ERROR_NOT_SUPPORTED;
    TRY(use_context(function->context));
    const struct layout *layout = function->layout;
    size_t bytes = (size_t)(r->bytes - tail);
    if (layout->known && bytes != layout->bytes) return CUDA_ERROR_INVALID_VALUE;
    TRY(have_local(handle_get(function->context, CONTEXT), layout->local_bytes));
    for (uint32_t i = 0; i < layout->count; i++) params[i] = payload + layout->at[i].offset;
    void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, payload, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    void **by_name = layout->known ? params : NULL, **extra = layout->known ? NULL : buffer;
    CUlaunchConfig config = {
        .grid = {(unsigned)r->arg[2], (unsigned)(r->arg[2] >> 32), (unsigned)r->arg[3]},
        .block = {(unsigned)(r->arg[3] >> 32), (unsigned)r->arg[4], (unsigned)(r->arg[4] >> 32)},
        .shared_bytes = (unsigned)r->arg[5],
        .stream = stream ? stream->real : NULL,
        .attribute_count = (unsigned)attributes,
    };
    if (attributes) return launch_with(&config, function->real, by_name, extra, payload + bytes);
    return driver.cuLaunchKernel(function->real, config.grid[0], config.grid[1], config.grid[2], config.block[0],
                                 config.block[1], config.block[2], config.shared_bytes, config.stream, by_name, extra);
}

CUresult occupancy(const struct request *r, uint64_t *value) {
    struct handle *function = handle_get(r->arg[1], FUNCTION);
    int first = 0, second = 0;
    size_t bytes = 0, shared = (size_t)r->arg[3];
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    if (r->arg[2] > INT32_MAX || r->arg[4] > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
    TRY(use_context(function->context));
    CUresult status = CUDA_ERROR_NOT_SUPPORTED;
    if (r->arg[0] == ACTIVE_BLOCKS && driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
        status = driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&first, function->real, (int)r->arg[2], shared,
                                                                             (unsigned)r->arg[4]);
    if (r->arg[0] == BEST_BLOCK_SIZE && !r->arg[4] && driver.cuOccupancyMaxPotentialBlockSize)
        status = driver.cuOccupancyMaxPotentialBlockSize(&first, &second, function->real, NULL, shared, (int)r->arg[2]);
    if (r->arg[0] == BEST_BLOCK_SIZE && r->arg[4] && driver.cuOccupancyMaxPotentialBlockSizeWithFlags)
        status = driver.cuOccupancyMaxPotentialBlockSizeWithFlags(&first, &second, function->real, NULL, shared,
                                                                  (int)r->arg[2], (unsigned)r->arg[4]);
    if (r->arg[0] == SHARED_LEFT && driver.cuOccupancyAvailableDynamicSMemPerBlock)
        status = driver.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function->real, (int)r->arg[4], (int)r->arg[2]);
    value[0] = r->arg[0] == SHARED_LEFT ? bytes : (uint64_t)(int64_t)first;
    value[1] = (uint64_t)(int64_t)second;
    return status;
}

/* CUlimit: stack, printf's buffer, heap; the L2's fetch granularity and its persisting part. Others are for launches from
 * kernels, and can be asked but not set. */
static bool is_limit(uint64_t limit) {
    return limit < LIMITS || limit == 5 || limit == 6;
}

CUresult limit_get(const struct request *r, uint64_t *value) {
    size_t now = 0;
    TRY(use_context(r->context));
    if (r->arg[0] > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
    TRY(driver.cuCtxGetLimit ? driver.cuCtxGetLimit(&now, (int)r->arg[0]) : CUDA_ERROR_NOT_SUPPORTED);
    value[0] = now;
    return CUDA_SUCCESS;
}

CUresult limit_set(const struct request *r, uint64_t *value) {
    uint64_t limit = r->arg[0], wanted = r->arg[1];
    size_t now = 0;
    (void)value;
    TRY(use_context(r->context));
    if (!is_limit(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (wanted > MOST_LIMIT) return CUDA_ERROR_INVALID_VALUE;
    if (!driver.cuCtxSetLimit || !driver.cuCtxGetLimit) return CUDA_ERROR_NOT_SUPPORTED;
    if (limit < LIMITS && options.memory_limit) {
        struct handle *context = handle_get(r->context, CONTEXT);
        TRY(driver.cuCtxGetLimit(&now, (int)limit));
        uint64_t had = context->limit[limit] > now ? context->limit[limit] : now;
        uint64_t more = wanted > had ? (wanted - had) * (limit ? 1 : threads_of(context->device)) : 0;
        TRY(take_more(context, more));
        CUresult status = driver.cuCtxSetLimit((int)limit, (size_t)wanted);
        if (status) take_less(context, more);
        else if (wanted > had) context->limit[limit] = wanted;
        return status;
    }
    return driver.cuCtxSetLimit((int)limit, (size_t)wanted);
}

CUresult priorities(const struct request *r, uint64_t *value) {
    int least = 0, greatest = 0;
    TRY(use_context(r->context));
    if (!driver.cuCtxGetStreamPriorityRange) return CUDA_ERROR_NOT_SUPPORTED;
    TRY(driver.cuCtxGetStreamPriorityRange(&least, &greatest));
    value[0] = (uint64_t)(int64_t)least;
    value[1] = (uint64_t)(int64_t)greatest;
    return CUDA_SUCCESS;
}
