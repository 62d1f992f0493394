/* Contexts: which is current is the client's own business; every request names its context. */
#define _GNU_SOURCE
#include "client.h"

#include "connections.h"
#include "current.h"
#include "pointers.h"
#include "rpc.h"
#include "start.h"

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { struct object *context; unsigned users; } primary[MAX_SERVERS * MAX_DEVICES];

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
    return current_push(made);
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
    if (current() == o) current_pop();
    return destroy(o);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    TRY(ready());
    struct object *o = object_of(context, CONTEXT);
    if (context && !o) return CUDA_ERROR_INVALID_CONTEXT;
    current_pop();
    if (!context) return CUDA_SUCCESS;
    return current_push(o);
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
    return o ? current_push(o) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    TRY(ready());
    struct object *o = current_pop();
    if (!o) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = (CUcontext)o;
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
