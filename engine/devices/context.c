/* Contexts of emulated devices: their life, and which is current. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "code.h"
#include "current.h"
#include "limits.h"
#include "memory.h"
#include "queue.h"

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { struct context *context; unsigned users; } primary[MAX_GPUS];

/* What a context takes of the device is taken and given with its life. */
static bool context_begin(struct context *c) {
    const struct gpu *g = &gpus[c->gpu];
    if (!state_take(c->gpu, g->context_bytes, g->memory_bytes - g->reserved_bytes)) return false;
    state_count(COUNTED_CONTEXTS, 1);
    c->life++;
    c->peer_count = 0;
    c->fault = CUDA_SUCCESS;
    return c->alive = true;
}

static void context_end(struct context *c) {
    c->alive = false; /* it stays: other threads may have it current */
    queue_end(c);
    code_forget(c);
    memory_forget(c);
    limits_end(c);
    state_give(c->gpu, gpus[c->gpu].context_bytes);
    state_count(COUNTED_CONTEXTS, -1);
    state_count(COUNTED_STREAMS, -c->streams);
    state_count(COUNTED_EVENTS, -c->events);
    c->streams = c->events = 0;
}

static struct context *context_make(CUdevice device) {
    struct context *c = calloc(1, sizeof *c);
    if (c) *c = (struct context){.kind = CONTEXT, .gpu = visible[device], .device = device};
    return c;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    const struct gpu *gpu;
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    if (ended) return ended;
    if (state_lost(visible[device], gpu->health.lost_after)) return CUDA_ERROR_UNKNOWN;
    pthread_mutex_lock(&primary_lock);
    if (!primary[device].context) primary[device].context = context_make(device);
    struct context *c = primary[device].context;
    bool fine = c && (primary[device].users || context_begin(c));
    if (fine) {
        primary[device].users++;
        *context = (CUcontext)c;
    }
    pthread_mutex_unlock(&primary_lock);
    return fine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    const struct gpu *gpu;
    CUresult status = CUDA_SUCCESS;
    TRY(gpu_of(device, &gpu));
    pthread_mutex_lock(&primary_lock);
    if (!primary[device].users) status = CUDA_ERROR_INVALID_CONTEXT;
    else if (!--primary[device].users) context_end(primary[device].context);
    pthread_mutex_unlock(&primary_lock);
    return status;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    const struct gpu *gpu;
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    *flags = 0;
    *active = primary[device].users > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    const struct gpu *gpu;
    (void)flags;
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    if (ended) return ended;
    if (state_lost(visible[device], gpu->health.lost_after)) return CUDA_ERROR_UNKNOWN;
    struct context *c = context_make(device);
    if (!c || !context_begin(c)) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *context = (CUcontext)c;
    return current_push(c);
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
    return affinity || count ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device) {
    return params ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    struct context *c = context_of(context);
    if (!c || !c->alive) return CUDA_ERROR_INVALID_CONTEXT;
    if (current_top() == c) current_pop();
    context_end(c);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    struct context *c = context_of(context);
    if (context && !c) return CUDA_ERROR_INVALID_CONTEXT;
    current_pop();
    return c ? current_push(c) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = (CUcontext)current_top();
    return seen_status();
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    struct context *c = context_of(context);
    return c ? current_push(c) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    struct context *c = current_pop();
    if (!c) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = (CUcontext)c;
    return CUDA_SUCCESS;
}

/* Of a context that is named, else of the current one. */
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    const struct context *c = context ? context_of(context) : current();
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (!c || !c->alive) return CUDA_ERROR_INVALID_CONTEXT;
    *device = c->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    return cuCtxGetDevice_v2(device, NULL);
}
