/* Streams and events. */
#define _GNU_SOURCE
#include "stream.h"

#include <stdlib.h>
#include <string.h>

#include "current.h"
#include "rpc.h"
#include "start.h"

CUresult stream_find(CUstream stream, struct object **context, uint64_t *number) {
    /* 1 and 2 are CU_STREAM_LEGACY and CU_STREAM_PER_THREAD; the latter does as the former, which only waits more. */
    if ((uintptr_t)stream <= 2) {
        *context = current();
        *number = 0;
        return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    }
    struct object *o = object_of(stream, STREAM);
    if (!o) return CUDA_ERROR_INVALID_HANDLE;
    *context = o->context;
    *number = o->number;
    return CUDA_SUCCESS;
}

static CUresult make(enum kind kind, struct request *r, void **handle) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct object *context = current();
    struct reply reply;
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    r->context = context->number;
    TRY(call(context->c, r, NULL, &reply));
    *handle = object_make(kind, context->c, reply.value[0], context);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(void *handle, enum kind kind) {
    TRY(ready());
    struct object *o = object_of(handle, kind);
    if (!o) return CUDA_ERROR_INVALID_HANDLE;
    struct request r = {.op = kind == STREAM ? OP_STREAM_DESTROY : OP_EVENT_DESTROY, .arg = {o->number}};
    struct connection *c = o->c;
    o->kind = 0;
    free(o);
    return call(c, &r, NULL, NULL);
}

static CUresult on_stream(CUstream stream, enum op op) {
    struct object *context;
    struct request r = {.op = op};
    TRY(ready());
    TRY(stream_find(stream, &context, &r.arg[0]));
    r.context = context->number;
    return context_says(context, call(context->c, &r, NULL, NULL));
}

static CUresult on_event(CUevent event, enum op op) {
    TRY(ready());
    struct object *o = object_of(event, EVENT);
    if (!o) return CUDA_ERROR_INVALID_HANDLE;
    struct request r = {.op = op, .arg = {o->number}};
    return call(o->c, &r, NULL, NULL);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    struct request r = {.op = OP_STREAM_CREATE, .arg = {flags, (uint64_t)(int64_t)priority}};
    return make(STREAM, &r, (void **)stream);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
CUresult cuStreamDestroy_v2(CUstream stream) {
    return (uintptr_t)stream <= 2 ? CUDA_ERROR_INVALID_HANDLE : destroy(stream, STREAM);
}
CUresult cuStreamQuery(CUstream stream) { return on_stream(stream, OP_STREAM_QUERY); }
CUresult cuStreamSynchronize(CUstream stream) { return on_stream(stream, OP_STREAM_SYNC); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    struct object *context, *o = object_of(event, EVENT);
    struct request r = {.op = OP_STREAM_WAIT};
    (void)flags;
    TRY(ready());
    if (!o) return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_find(stream, &context, &r.arg[0]));
    if (context->c != o->c) return cuEventSynchronize(event); /* no server waits for another one: the program does */
    r.context = context->number;
    r.arg[1] = o->number;
    return post(context->c, &r, NULL);
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    struct request r = {.op = OP_EVENT_CREATE, .arg = {flags}};
    return make(EVENT, &r, (void **)event);
}

CUresult cuEventDestroy_v2(CUevent event) { return destroy(event, EVENT); }
CUresult cuEventQuery(CUevent event) { return on_event(event, OP_EVENT_QUERY); }
CUresult cuEventSynchronize(CUevent event) { return on_event(event, OP_EVENT_SYNC); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
    struct object *context, *o = object_of(event, EVENT);
    struct request r = {.op = OP_EVENT_RECORD};
    TRY(ready());
    if (!o) return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_find(stream, &context, &r.arg[1]));
    if (context->c != o->c) return CUDA_ERROR_INVALID_HANDLE;
    r.arg[0] = o->number;
    return post(o->c, &r, NULL);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    struct object *a = object_of(start, EVENT), *b = object_of(end, EVENT);
    struct reply reply;
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    if (!a || !b || a->c != b->c) return CUDA_ERROR_INVALID_HANDLE;
    struct request r = {.op = OP_EVENT_ELAPSED, .arg = {a->number, b->number}};
    TRY(call(a->c, &r, NULL, &reply));
    uint32_t bits = (uint32_t)reply.value[0];
    memcpy(milliseconds, &bits, sizeof bits);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime(milliseconds, start, end);
}
