/* libcuda.so.1 of emulated devices: start, devices, contexts. */
#define _GNU_SOURCE
#include "cuda.h"
#include "grid.h"
#include "queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK 64

struct gpu gpus[MAX_GPUS];
int visible[MAX_GPUS], visible_count;
CUresult ended;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult init_status = CUDA_ERROR_NOT_INITIALIZED;
static _Thread_local struct context *stack[STACK];
static _Thread_local int depth;
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { struct context *context; unsigned users; } primary[MAX_GPUS];

/* CUDA_VISIBLE_DEVICES as the CUDA documentation has it: indices or UUIDs (or their beginnings), up to the first that
 * is none; unset means all. A GPU that is divided by MIG is no device; its instances are, by UUID, and where there is
 * nothing else the first of them is seen by itself. */
static void see(int count, int all) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; !list && i < count; i++)
        if (!gpus[i].mig_count) visible[visible_count++] = i;
    if (!list && !visible_count && all > count) visible[visible_count++] = count;
    for (const char *at = list; at && *at && visible_count < MAX_GPUS;) {
        size_t length = strcspn(at, ",");
        int found = -1;
        for (int i = 0; i < all; i++) {
            char index[16];
            snprintf(index, sizeof index, "%d", i);
            bool by_index = i < count && strlen(index) == length && !strncmp(at, index, length);
            bool by_uuid = length > 4 && !strncasecmp(at, gpus[i].uuid_text, length);
            if (by_uuid && found >= 0) return; /* ambiguous */
            if (by_index || by_uuid) found = i;
        }
        for (int i = 0; i < visible_count; i++)
            if (visible[i] == found) found = -1; /* twice */
        if (found < 0 || gpus[found].mig_count) return;
        visible[visible_count++] = found;
        at += length + (at[length] == ',');
    }
}

static void start(void) {
    int all = 0, count = config_read(gpus, &all);
    if (count < 0) {
        init_status = CUDA_ERROR_NO_DEVICE;
        return;
    }
    if (state_open()) {
        fprintf(stderr, "elastic-ai: the emulated GPUs' accounts cannot be opened: %s\n", strerror(errno));
        init_status = CUDA_ERROR_OPERATING_SYSTEM;
        return;
    }
    see(count, all);
    init_status = visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, start);
    return init_status;
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = EMULATED_CUDA_VERSION;
    return CUDA_SUCCESS;
}

static CUresult gpu_of(CUdevice device, const struct gpu **gpu) {
    if (init_status) return init_status;
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    *gpu = &gpus[visible[device]];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    if (init_status) return init_status;
    *count = visible_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    const struct gpu *gpu;
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(ordinal, &gpu));
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    const struct gpu *gpu;
    if (!name || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    snprintf(name, (size_t)size, "%s", gpu->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    const struct gpu *gpu;
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    memcpy(uuid->bytes, gpu->uuid, 16);
    return CUDA_SUCCESS;
}

/* The first version knows no MIG: of an instance it says its GPU's. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    const struct gpu *gpu;
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    memcpy(uuid->bytes, gpu->parent < 0 ? gpu->uuid : gpus[gpu->parent].uuid, 16);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    const struct gpu *gpu;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    *bytes = gpu->memory_bytes - gpu->reserved_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device) {
    const struct gpu *gpu;
    if (!id || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    snprintf(id, (size_t)size, "%04X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    unsigned domain, bus, number;
    if (!device || !id || sscanf(id, "%x:%x:%x", &domain, &bus, &number) != 3) return CUDA_ERROR_INVALID_VALUE;
    if (init_status) return init_status;
    for (int i = 0; i < visible_count; i++) {
        const struct gpu *g = &gpus[visible[i]];
        if (g->pci_domain == domain && g->pci_bus == bus && g->pci_device == number) return *device = i, CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* CUdevice_attribute; those that an emulated device has nothing to say about are 0. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    const struct gpu *gpu;
    if (!value || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    switch (attribute) {
#define SAY(name, number) case CU_DEVICE_ATTRIBUTE_##name: *value = number; break;
        SAY(MAX_THREADS_PER_BLOCK, MAX_BLOCK_THREADS)
        SAY(MAX_BLOCK_DIM_X, MAX_BLOCK_THREADS)
        SAY(MAX_BLOCK_DIM_Y, MAX_BLOCK_THREADS)
        SAY(MAX_BLOCK_DIM_Z, MAX_BLOCK_Z)
        SAY(MAX_GRID_DIM_X, 0x7fffffff)
        SAY(MAX_GRID_DIM_Y, MAX_GRID_YZ)
        SAY(MAX_GRID_DIM_Z, MAX_GRID_YZ)
        SAY(MAX_SHARED_MEMORY_PER_BLOCK, USUAL_SHARED_BYTES)
        SAY(WARP_SIZE, WARP)
        SAY(MAX_PITCH, 0x7fffffff)
        SAY(MULTIPROCESSOR_COUNT, gpu->sm_count)
        SAY(CONCURRENT_KERNELS, 1)
        SAY(PCI_BUS_ID, (int)gpu->pci_bus)
        SAY(PCI_DEVICE_ID, (int)gpu->pci_device)
        SAY(PCI_DOMAIN_ID, (int)gpu->pci_domain)
        SAY(MAX_THREADS_PER_MULTIPROCESSOR, MAX_SM_THREADS)
        SAY(UNIFIED_ADDRESSING, 1)
        SAY(COMPUTE_CAPABILITY_MAJOR, gpu->capability_major)
        SAY(COMPUTE_CAPABILITY_MINOR, gpu->capability_minor)
        SAY(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, MAX_SHARED_BYTES)
        SAY(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, MAX_SHARED_BYTES)
        SAY(COOPERATIVE_LAUNCH, 1)
        SAY(MAX_BLOCKS_PER_MULTIPROCESSOR, MAX_SM_BLOCKS)
#undef SAY
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

struct context *current(void) {
    return depth && stack[depth - 1]->alive ? stack[depth - 1] : NULL;
}

CUresult current_check(void) {
    const struct context *c = current();
    return ended ? ended : c ? c->fault : CUDA_ERROR_INVALID_CONTEXT;
}

struct context *context_of(CUcontext handle) {
    struct context *c = (struct context *)handle;
    return c && c->kind == CONTEXT ? c : NULL;
}

static CUresult push(struct context *context) {
    if (depth == STACK) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

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
    return push(c);
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
    if (depth && stack[depth - 1] == c) depth--;
    context_end(c);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    struct context *c = context_of(context);
    if (context && !c) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth) depth--;
    return c ? push(c) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = depth ? (CUcontext)stack[depth - 1] : NULL;
    return init_status;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    struct context *c = context_of(context);
    return c ? push(c) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context) *context = (CUcontext)stack[depth];
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
