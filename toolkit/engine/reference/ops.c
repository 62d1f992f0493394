/* What each request does. A request of a client is not trusted: numbers and addresses are looked up, never followed. */
#define _GNU_SOURCE
#include "server.h"

#include <string.h>

#define ALIGN ((uint64_t)512) /* what cuMemAlloc aligns to, and accounts are kept in */

static CUresult stream_get(uint64_t number, CUstream *stream) {
    struct object *found = number ? object_get(number, STREAM) : NULL;
    *stream = found ? found->handle : NULL;
    return number && !found ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult event_get(uint64_t number, CUevent *event) {
    struct object *found = object_get(number, EVENT);
    *event = found ? found->handle : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* An earlier request without reply may have failed: this is where its client hears of it. */
static CUresult with_late(CUresult status) {
    if (status) return status;
    status = connection.late;
    connection.late = CUDA_SUCCESS;
    return status;
}

static void context_make(const struct request *r) {
    int device = (int)r->arg[1];
    void *handle = NULL;
    bool primary = r->op == OP_PRIMARY_RETAIN;
    if (r->arg[1] >= (uint64_t)connection.devices) {
        answer(r, CUDA_ERROR_INVALID_DEVICE, 0, 0, NULL, 0);
        return;
    }
    CUcontext context = NULL;
    CUresult status = primary ? driver.cuDevicePrimaryCtxRetain(&context, device)
                              : driver.cuCtxCreate_v2(&context, (unsigned)r->arg[0], device);
    handle = context;
    uint64_t number = 0;
    if (!status) {
        number = object_add(CONTEXT, handle, device, 0);
        object_get(number, CONTEXT)->primary = primary;
        if (!primary) connection.current = number; /* cuCtxCreate made it so */
    }
    answer(r, status, number, 0, NULL, 0);
}

static void context_destroy(const struct request *r) {
    uint64_t number = r->arg[0];
    CUresult status = use_context(number);
    if (!status) {
        struct object *context = object_get(number, CONTEXT);
        staging_free(context);
        status = context->primary ? driver.cuDevicePrimaryCtxRelease_v2(context->device)
                                  : driver.cuCtxDestroy_v2(context->handle);
        context_forget(number, connection.child);
        connection.current = 0;
        driver.cuCtxSetCurrent(NULL);
    }
    answer(r, status, 0, 0, NULL, 0);
}

static void allocate(const struct request *r) {
    uint64_t bytes = r->arg[0], kept = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    CUdeviceptr pointer = 0;
    CUresult status = use_context(r->context);
    if (!status && (bytes == 0 || kept < bytes)) status = CUDA_ERROR_INVALID_VALUE;
    if (!status) {
        int device = object_get(r->context, CONTEXT)->device;
        /* Accounted for before it is taken, so that there is never more taken than accounted for. */
        if (!account_take(connection.child, device, kept)) {
            status = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            status = driver.cuMemAlloc_v2(&pointer, bytes);
            if (status) account_give(connection.child, device, kept);
            else memory_add(pointer, kept, r->context);
        }
    }
    answer(r, status, pointer, 0, NULL, 0);
}

static void release(const struct request *r) {
    struct memory *memory = memory_find(r->arg[0], 0);
    if (!memory || memory->at != r->arg[0]) {
        answer(r, CUDA_ERROR_INVALID_VALUE, 0, 0, NULL, 0);
        return;
    }
    CUresult status = use_context(memory->context);
    if (!status) status = driver.cuMemFree_v2(memory->at);
    if (!status) {
        account_give(connection.child, object_get(memory->context, CONTEXT)->device, memory->bytes);
        memory_drop(memory);
    }
    answer(r, status, 0, 0, NULL, 0);
}

static void memory_info(const struct request *r) {
    size_t free_bytes = 0, total = 0;
    CUresult status = use_context(r->context);
    if (!status) status = driver.cuMemGetInfo_v2(&free_bytes, &total);
    if (!status && server.memory_limit) {
        uint64_t used = account_used(object_get(r->context, CONTEXT)->device);
        uint64_t left = used < server.memory_limit ? server.memory_limit - used : 0;
        if (server.memory_limit < total) total = server.memory_limit;
        if (left < free_bytes) free_bytes = left;
    }
    answer(r, status, free_bytes, total, NULL, 0);
}

/* Copies on the device and memset: status of the work put on its stream, waited for if wanted. */
static CUresult on_device(const struct request *r) {
    uint64_t to = r->arg[0], stream_number, bytes;
    CUstream stream;
    if (r->op == OP_MEMSET) bytes = r->arg[2] * r->arg[3], stream_number = r->arg[4];
    else if (r->op == OP_DTOD) bytes = r->arg[2], stream_number = r->arg[3];
    else bytes = r->arg[4], stream_number = r->arg[5];
    if (r->op == OP_MEMSET && ((r->arg[3] != 1 && r->arg[3] != 4) || r->arg[2] > UINT64_MAX / 4 || to % r->arg[3]))
        return CUDA_ERROR_INVALID_VALUE;
    struct memory *target = memory_find(to, bytes);
    uint64_t from = r->op == OP_DTOD ? r->arg[1] : r->arg[2];
    if (!target || (r->op != OP_MEMSET && !memory_find(from, bytes))) return CUDA_ERROR_INVALID_VALUE;
    CUresult status = use_context(r->context ? r->context : target->context);
    if (!status) status = stream_get(stream_number, &stream);
    if (status) return status;
    if (r->op == OP_MEMSET && r->arg[3] == 1) status = driver.cuMemsetD8Async(to, (uint8_t)r->arg[1], bytes, stream);
    else if (r->op == OP_MEMSET) status = driver.cuMemsetD32Async(to, (uint32_t)r->arg[1], r->arg[2], stream);
    else if (r->op == OP_DTOD) status = driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
    else {
        struct object *a = object_get(r->arg[1], CONTEXT), *b = object_get(r->arg[3], CONTEXT);
        if (!a || !b) return CUDA_ERROR_INVALID_CONTEXT;
        status = driver.cuMemcpyPeerAsync(to, a->handle, from, b->handle, bytes, stream);
    }
    if (!status && r->flags & FLAG_WAIT) status = with_late(driver.cuStreamSynchronize(stream));
    return status;
}

static CUresult on_stream(const struct request *r) {
    CUstream stream;
    CUevent event;
    CUresult status = stream_get(r->arg[0], &stream);
    if (!status) status = use_context(r->arg[0] ? object_get(r->arg[0], STREAM)->context : r->context);
    if (status) return status;
    switch (r->op) {
    case OP_STREAM_QUERY: return with_late(driver.cuStreamQuery(stream));
    case OP_STREAM_SYNC: return with_late(driver.cuStreamSynchronize(stream));
    case OP_STREAM_WAIT:
        status = event_get(r->arg[1], &event);
        return status ? status : driver.cuStreamWaitEvent(stream, event, 0);
    default: /* OP_STREAM_DESTROY */
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        object_drop(r->arg[0]);
        return driver.cuStreamDestroy_v2(stream);
    }
}

static CUresult on_event(const struct request *r) {
    CUevent event;
    CUstream stream;
    CUresult status = event_get(r->arg[0], &event);
    if (!status) status = use_context(object_get(r->arg[0], EVENT)->context);
    if (status) return status;
    switch (r->op) {
    case OP_EVENT_QUERY: return with_late(driver.cuEventQuery(event));
    case OP_EVENT_SYNC: return with_late(driver.cuEventSynchronize(event));
    case OP_EVENT_RECORD:
        status = stream_get(r->arg[1], &stream);
        return status ? status : driver.cuEventRecord(event, stream);
    default: /* OP_EVENT_DESTROY */
        object_drop(r->arg[0]);
        return driver.cuEventDestroy_v2(event);
    }
}

static void make(const struct request *r) {
    void *handle = NULL;
    CUresult status = use_context(r->context);
    if (!status && r->op == OP_STREAM_CREATE) {
        CUstream stream = NULL;
        status = driver.cuStreamCreateWithPriority(&stream, (unsigned)r->arg[0], (int)r->arg[1]);
        handle = stream;
    } else if (!status) {
        CUevent event = NULL;
        status = driver.cuEventCreate(&event, (unsigned)r->arg[0]);
        handle = event;
    }
    uint64_t number = 0;
    if (!status) number = object_add(r->op == OP_STREAM_CREATE ? STREAM : EVENT, handle, -1, r->context);
    answer(r, status, number, 0, NULL, 0);
}

static void elapsed(const struct request *r) {
    CUevent start, end;
    float milliseconds = 0;
    uint32_t bits;
    CUresult status = event_get(r->arg[0], &start);
    if (!status) status = event_get(r->arg[1], &end);
    if (!status) status = use_context(object_get(r->arg[0], EVENT)->context);
    if (!status) status = driver.cuEventElapsedTime(&milliseconds, start, end);
    memcpy(&bits, &milliseconds, sizeof bits);
    answer(r, status, bits, 0, NULL, 0);
}

void handle(struct request *r) {
    static char text[32768];
    CUresult status;
    switch (r->op) {
    case OP_ENVIRONMENT: answer(r, CUDA_SUCCESS, 0, 0, text, environment(text, sizeof text)); return;
    case OP_PRIMARY_RETAIN:
    case OP_CTX_CREATE: context_make(r); return;
    case OP_CTX_DESTROY: context_destroy(r); return;
    case OP_CTX_SYNC:
        status = use_context(r->context);
        if (!status) status = with_late(driver.cuCtxSynchronize());
        break;
    case OP_ALLOC: allocate(r); return;
    case OP_FREE: release(r); return;
    case OP_MEM_INFO: memory_info(r); return;
    case OP_HTOD: copy_in(r); return;
    case OP_DTOH: copy_out(r); return;
    case OP_DTOD:
    case OP_PEER:
    case OP_MEMSET: status = on_device(r); break;
    case OP_STREAM_CREATE:
    case OP_EVENT_CREATE: make(r); return;
    case OP_STREAM_DESTROY:
    case OP_STREAM_QUERY:
    case OP_STREAM_SYNC:
    case OP_STREAM_WAIT: status = on_stream(r); break;
    case OP_EVENT_DESTROY:
    case OP_EVENT_RECORD:
    case OP_EVENT_QUERY:
    case OP_EVENT_SYNC: status = on_event(r); break;
    case OP_EVENT_ELAPSED: elapsed(r); return;
    default: status = CUDA_ERROR_NOT_SUPPORTED;
    }
    answer(r, status, 0, 0, NULL, 0);
}
