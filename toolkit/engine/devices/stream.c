/* Streams and events of emulated devices: order and time, for all work is complete when its call returns. */
#define _GNU_SOURCE
#include "cuda.h"

#include <stdlib.h>

struct stream {
    enum kind kind;
    struct context *context;
};

struct event {
    enum kind kind;
    struct context *context;
    unsigned flags;
    uint64_t at_ns; /* 0: never recorded */
};

/* A default stream is that of the current context. */
CUresult stream_check(CUstream stream) {
    struct stream *s = (struct stream *)stream;
    if (ended) return ended;
    if ((uintptr_t)stream <= 2) return current_check();
    return s->kind == STREAM && s->context->alive ? s->context->fault : CUDA_ERROR_INVALID_HANDLE;
}

static struct event *event_of(CUevent event) {
    struct event *e = (struct event *)event;
    return e && e->kind == EVENT && e->context->alive ? e : NULL;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)flags;
    (void)priority;
    if (!stream) return CUDA_ERROR_INVALID_VALUE;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    struct stream *s = malloc(sizeof *s);
    if (!s) return CUDA_ERROR_OUT_OF_MEMORY;
    *s = (struct stream){STREAM, current()};
    __atomic_fetch_add(&s->context->streams, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_STREAMS, 1);
    *stream = (CUstream)s;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamDestroy_v2(CUstream stream) {
    struct stream *s = (struct stream *)stream;
    if ((uintptr_t)stream <= 2 || s->kind != STREAM || !s->context->alive) return CUDA_ERROR_INVALID_HANDLE;
    ((struct stream *)stream)->kind = 0;
    __atomic_fetch_sub(&((struct stream *)stream)->context->streams, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_STREAMS, -1);
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) { return stream_check(stream); }
CUresult cuStreamSynchronize(CUstream stream) { return stream_check(stream); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    TRY(stream_check(stream));
    return event_of(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    if (!event) return CUDA_ERROR_INVALID_VALUE;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    struct event *e = malloc(sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    *e = (struct event){EVENT, current(), flags, 0};
    __atomic_fetch_add(&e->context->events, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_EVENTS, 1);
    *event = (CUevent)e;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    struct event *e = event_of(event);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    e->kind = 0;
    __atomic_fetch_sub(&e->context->events, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_EVENTS, -1);
    free(e);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    struct event *e = event_of(event);
    TRY(stream_check(stream));
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    e->at_ns = state_now_ns();
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) { return event_of(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }
CUresult cuEventSynchronize(CUevent event) { return cuEventQuery(event); }

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    struct event *a = event_of(start), *b = event_of(end);
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    /* 2 is CU_EVENT_DISABLE_TIMING */
    if (!a || !b || !a->at_ns || !b->at_ns || (a->flags | b->flags) & 2) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (float)((double)((int64_t)b->at_ns - (int64_t)a->at_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime(milliseconds, start, end);
}
