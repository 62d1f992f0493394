/* Streams and events of emulated devices. */
#define _GNU_SOURCE
#include "stream.h"

#include <stdlib.h>

#include "queue.h"

#define DISABLE_TIMING CU_EVENT_DISABLE_TIMING

struct event {
    enum kind kind;
    struct context *context;
    unsigned flags;
    int users; /* it, and records that are under way */
    uint64_t at_ns; /* 0: never recorded */
    struct mark mark; /* of its last record, where that had to wait */
};

struct record {
    struct task task;
    struct event *event;
};

/* A default stream is that of the current context. */
CUresult stream_check(CUstream stream) {
    struct stream *s = (struct stream *)stream;
    if (ended) return ended;
    if ((uintptr_t)stream <= 2) return current_check();
    return s->kind == STREAM && s->context->alive ? s->context->fault : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_settle(CUstream stream) {
    TRY(stream_check(stream));
    if (!queue_busy(stream, true)) return CUDA_SUCCESS;
    queue_wait(stream, true);
    return stream_check(stream);
}

struct context *stream_context(CUstream stream) {
    return (uintptr_t)stream <= 2 ? current() : ((struct stream *)stream)->context;
}

static struct event *event_of(CUevent event) {
    struct event *e = (struct event *)event;
    return e && e->kind == EVENT && e->context->alive ? e : NULL;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority;
    if (!stream) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    struct stream *s = malloc(sizeof *s);
    if (!s) return CUDA_ERROR_OUT_OF_MEMORY;
    *s = (struct stream){STREAM, current(), flags, NULL};
    __atomic_fetch_add(&s->context->streams, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_STREAMS, 1);
    *stream = (CUstream)s;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamDestroy_v2(CUstream stream) {
    struct stream *s = (struct stream *)stream;
    if ((uintptr_t)stream <= 2 || s->kind != STREAM || !s->context->alive) return CUDA_ERROR_INVALID_HANDLE;
    s->kind = 0;
    __atomic_fetch_sub(&s->context->streams, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_STREAMS, -1);
    queue_leave(s);
    free(s);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
    TRY(stream_check(stream));
    if (queue_busy(stream, false)) return CUDA_ERROR_NOT_READY;
    return stream_check(stream);
}

CUresult cuStreamSynchronize(CUstream stream) {
    TRY(stream_check(stream));
    queue_wait(stream, false);
    return stream_check(stream);
}

CUresult cuCtxSynchronize(void) {
    TRY(current_check());
    queue_wait_context(current());
    return current_check();
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    struct context *c = context ? context_of(context) : NULL;
    if (!context) return cuCtxSynchronize();
    if (ended) return ended;
    if (!c || !c->alive) return CUDA_ERROR_INVALID_CONTEXT;
    queue_wait_context(c);
    return ended ? ended : c->fault;
}

static void nothing(struct task *task, volatile bool *stop, bool skip) {
    (void)stop;
    (void)skip;
    free(task);
}

/* For the record that was the last when it was asked. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    struct event *e = event_of(event);
    (void)flags;
    TRY(stream_check(stream));
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    queue_lock();
    struct mark mark = e->mark;
    queue_unlock();
    if (queue_done(mark)) return CUDA_SUCCESS;
    struct task *task = malloc(sizeof *task);
    if (task) *task = (struct task){.context = stream_context(stream), .run = nothing};
    if (task && queue_need(task, mark) && queue_add(stream, task, NULL)) return CUDA_SUCCESS;
    free(task ? task->needs : NULL);
    free(task);
    queue_wait_mark(mark); /* where there is no thread, the caller waits */
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    if (!event) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    struct event *e = malloc(sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    *e = (struct event){.kind = EVENT, .context = current(), .flags = flags, .users = 1};
    __atomic_fetch_add(&e->context->events, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_EVENTS, 1);
    *event = (CUevent)e;
    return CUDA_SUCCESS;
}

/* Called with the queue's lock. */
static void leave(struct event *e) {
    if (!--e->users) free(e);
}

CUresult cuEventDestroy_v2(CUevent event) {
    struct event *e = event_of(event);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    __atomic_fetch_sub(&e->context->events, 1, __ATOMIC_RELAXED);
    state_count(COUNTED_EVENTS, -1);
    queue_lock();
    e->kind = 0;
    leave(e);
    queue_unlock();
    return CUDA_SUCCESS;
}

static void happen(struct task *task, volatile bool *stop, bool skip) {
    struct record *r = (struct record *)task;
    (void)stop;
    queue_lock();
    if (!skip) r->event->at_ns = state_now_ns();
    leave(r->event);
    queue_unlock();
    free(r);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    struct event *e = event_of(event);
    TRY(stream_check(stream));
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    struct record *r = queue_busy(stream, true) ? malloc(sizeof *r) : NULL;
    if (r) {
        *r = (struct record){.task = {.context = stream_context(stream), .run = happen}, .event = e};
        struct mark mark;
        queue_lock();
        e->users++;
        queue_unlock();
        if (queue_add(stream, &r->task, &mark)) {
            queue_lock();
            e->mark = mark;
            queue_unlock();
            return CUDA_SUCCESS;
        }
        queue_lock();
        leave(e);
        queue_unlock();
        free(r->task.needs);
        free(r);
    }
    TRY(stream_settle(stream));
    queue_lock();
    e->mark = (struct mark){0};
    e->at_ns = state_now_ns();
    queue_unlock();
    return CUDA_SUCCESS;
}

static struct mark mark_of(struct event *e) {
    queue_lock();
    struct mark mark = e->mark;
    queue_unlock();
    return mark;
}

CUresult cuEventQuery(CUevent event) {
    struct event *e = event_of(event);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    if (e->context->fault) return e->context->fault;
    return queue_done(mark_of(e)) ? e->context->fault : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
    struct event *e = event_of(event);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    queue_wait_mark(mark_of(e));
    return e->context->fault;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    struct event *a = event_of(start), *b = event_of(end);
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    if (!a || !b || (a->flags | b->flags) & DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    if (!queue_done(mark_of(a)) || !queue_done(mark_of(b))) return CUDA_ERROR_NOT_READY;
    if (!a->at_ns || !b->at_ns) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (float)((double)((int64_t)b->at_ns - (int64_t)a->at_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime(milliseconds, start, end);
}
