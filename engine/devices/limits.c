/* Limits of a context: what they take of the device is accounted for, and kernels have no use for it. */
#define _GNU_SOURCE
#include "limits.h"

#include "grid.h"

/* CUlimit: stack of a thread, printf's buffer, heap, as drivers begin with. */
static const uint64_t usual[LIMITS] = {1 << 10, 1 << 20, 8 << 20};

#define ALL_LIMITS 10 /* CUlimit of CUDA 13.0 */

static uint64_t now(const struct context *c, int limit) {
    return c->limits[limit] ? c->limits[limit] : usual[limit];
}

CUresult cuCtxGetLimit(size_t *value, int limit) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    if (limit < 0 || limit >= ALL_LIMITS) return CUDA_ERROR_INVALID_VALUE; /* as an H200's driver of CUDA 13.0 */
    if (limit >= LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = now(current(), limit);
    return CUDA_SUCCESS;
}

/* What a context has once, it keeps. */
CUresult cuCtxSetLimit(int limit, size_t value) {
    TRY(current_check());
    struct context *c = current();
    const struct gpu *g = &gpus[c->gpu];
    if (limit < 0 || limit >= ALL_LIMITS) return CUDA_ERROR_INVALID_VALUE;
    if (limit >= LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    uint64_t each = limit ? 1 : (uint64_t)g->sm_count * MAX_SM_THREADS, had = now(c, limit);
    if (value <= had) return CUDA_SUCCESS;
    if (value > g->memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!state_take(c->gpu, (value - had) * each, g->memory_bytes - g->reserved_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    c->limit_bytes += (value - had) * each;
    c->limits[limit] = value;
    return CUDA_SUCCESS;
}

void limits_end(struct context *c) {
    state_give(c->gpu, c->limit_bytes);
    c->limit_bytes = 0;
    for (int i = 0; i < LIMITS; i++) c->limits[i] = 0;
}

/* Streams have priorities by name alone. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    TRY(current_check());
    if (least) *least = 0;
    if (greatest) *greatest = -5; /* as a V100's */
    return CUDA_SUCCESS;
}
