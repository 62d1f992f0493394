/* Contexts: which is current is the client's own business; every request names its context. */
#define _GNU_SOURCE
#include "pointers.h"

#include <stdlib.h>

#define STACK 64

static _Thread_local struct object *stack[STACK];
static _Thread_local int depth;
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { struct object *context; unsigned users; } primary[MAX_SERVERS * MAX_DEVICES];

struct object *current(void) {
    return depth ? stack[depth - 1] : NULL;
}

struct object *object_of(void *handle, enum kind kind) {
    struct object *o = handle;
    return plausible(o) && o->kind == kind ? o : NULL;
}

/* CUDA's documentation says of these that the process must be ended to go on: what a kernel did to its context. */
CUresult context_says(struct object *context, CUresult status) {
    bool stays = status == CUDA_ERROR_ILLEGAL_ADDRESS || status == CUDA_ERROR_LAUNCH_TIMEOUT ||
                 status == CUDA_ERROR_ASSERT ||
                 (status >= CUDA_ERROR_HARDWARE_STACK_ERROR && status <= CUDA_ERROR_LAUNCH_FAILED);
    if (stays) context->fault = status;
    return status;
}

struct object *object_make(enum kind kind, struct connection *c, uint64_t number, struct object *context) {
    struct object *o = calloc(1, sizeof *o);
    if (o) *o = (struct object){kind, c, number, context ? context->device : -1, context, 0, 0};
    return o;
}

static CUresult push(struct object *context) {
    if (depth == STACK) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    int local;
    CUresult status = CUDA_SUCCESS;
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct connection *c = device_server(device, &local);
    if (!c) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&primary_lock);
    if (!primary[device].users) {
        struct request r = {.op = OP_PRIMARY_RETAIN, .arg = {0, (uint64_t)local}};
        struct reply reply;
        status = call(c, &r, NULL, &reply);
        /* The same object as before if it was released: a program may have kept it. */
        if (!status && !primary[device].context) primary[device].context = object_make(CONTEXT, c, 0, NULL);
        if (!status && !primary[device].context) status = CUDA_ERROR_OUT_OF_MEMORY;
        if (!status) primary[device].context->number = reply.value[0], primary[device].context->device = device;
    }
    if (!status) {
        primary[device].users++;
        *context = (CUcontext)primary[device].context;
    }
    pthread_mutex_unlock(&primary_lock);
    return status;
}

static CUresult destroy(struct object *context) {
    struct request r = {.op = OP_CTX_DESTROY, .arg = {context->number}};
    context->life++;
    context->fault = CUDA_SUCCESS;
    pointers_forget(context, NULL);
    context->number = 0; /* the object stays: other threads may have it current, and are told so */
    return call(context->c, &r, NULL, NULL);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult status = CUDA_SUCCESS;
    TRY(ready());
    if (device < 0 || device >= device_count) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&primary_lock);
    if (!primary[device].users) status = CUDA_ERROR_INVALID_CONTEXT;
    else if (!--primary[device].users) status = destroy(primary[device].context);
    pthread_mutex_unlock(&primary_lock);
    return status;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    if (device < 0 || device >= device_count) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = primary[device].users > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    int local;
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct connection *c = device_server(device, &local);
    if (!c) return CUDA_ERROR_INVALID_DEVICE;
    struct request r = {.op = OP_CTX_CREATE, .arg = {flags, (uint64_t)local}};
    struct reply reply;
    TRY(call(c, &r, NULL, &reply));
    struct object *made = object_make(CONTEXT, c, reply.value[0], NULL);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device;
    *context = (CUcontext)made;
    return push(made);
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
    if (affinity || count) return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device) {
    if (params) return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    TRY(ready());
    struct object *o = object_of(context, CONTEXT);
    if (!o || !o->number) return CUDA_ERROR_INVALID_CONTEXT;
    if (current() == o) depth--;
    return destroy(o);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    TRY(ready());
    if (!context) {
        if (depth) depth--;
        return CUDA_SUCCESS;
    }
    struct object *o = object_of(context, CONTEXT);
    if (!o) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth) depth--;
    return push(o);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    *context = (CUcontext)current();
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    TRY(ready());
    struct object *o = object_of(context, CONTEXT);
    return o ? push(o) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    TRY(ready());
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context) *context = (CUcontext)stack[depth];
    return CUDA_SUCCESS;
}

/* Of a context that is named, else of the current one. */
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct object *o = context ? object_of(context, CONTEXT) : current();
    if (!o) return CUDA_ERROR_INVALID_CONTEXT;
    *device = o->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    TRY(ready());
    struct object *o = context ? object_of(context, CONTEXT) : current();
    if (!o) return CUDA_ERROR_INVALID_CONTEXT;
    if (!o->number) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    struct request r = {.op = OP_CTX_SYNC, .context = o->number};
    return context_says(o, call(o->c, &r, NULL, NULL));
}
