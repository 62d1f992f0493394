/* What each request does. A request of a client is not trusted: numbers and addresses are looked up, never followed. */
#define _GNU_SOURCE
#include "ops.h"

#include <string.h>

#include "accounts.h"
#include "code.h"
#include "copy.h"
#include "driver.h"
#include "environment.h"
#include "handles.h"
#include "launch.h"
#include "options.h"
#include "session.h"
#include "staging.h"

#define ALIGN ((uint64_t)512) /* what cuMemAlloc aligns to, and accounts are kept in */

static CUresult stream_get(uint64_t number, CUstream *stream) {
    struct handle *found = number ? handle_get(number, STREAM) : NULL;
    *stream = found ? found->real : NULL;
    return number && !found ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult event_get(uint64_t number, CUevent *event) {
    struct handle *found = handle_get(number, EVENT);
    *event = found ? found->real : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The stream arg[0], in whose context work goes on (number 0: that of the request). */
static CUresult stream_of(const struct request *r, CUstream *stream) {
    TRY(stream_get(r->arg[0], stream));
    return use_context(r->arg[0] ? handle_get(r->arg[0], STREAM)->context : r->context);
}

/* The event arg[0], in whose context work goes on. */
static CUresult event_of(const struct request *r, CUevent *event) {
    TRY(event_get(r->arg[0], event));
    return use_context(handle_get(r->arg[0], EVENT)->context);
}

/* Contexts. */

/* A context on `device`, for which there is none yet; it counts, and is accounted for before it is made. */
static CUresult context_make(const struct request *r, int device, bool primary, uint64_t *number) {
    CUcontext context = NULL;
    if (!account_take(session.child, device, options.context_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = primary ? driver.cuDevicePrimaryCtxRetain(&context, device)
                              : driver.cuCtxCreate_v2(&context, (unsigned)r->arg[0], device);
    if (status) {
        account_give(session.child, device, options.context_bytes);
        return status;
    }
    *number = handle_add(CONTEXT, context, device, 0);
    handle_get(*number, CONTEXT)->primary = primary;
    return CUDA_SUCCESS;
}

static CUresult primary_retain(const struct request *r, uint64_t *value) {
    if (r->arg[1] >= (uint64_t)session.devices) return CUDA_ERROR_INVALID_DEVICE;
    uint64_t there = context_find((int)r->arg[1]);
    if (!there) return context_make(r, (int)r->arg[1], true, value);
    if (!handle_get(there, CONTEXT)->primary) return CUDA_ERROR_NOT_SUPPORTED;
    value[0] = there; /* held already, once: the driver would only count */
    return CUDA_SUCCESS;
}

static CUresult context_create(const struct request *r, uint64_t *value) {
    if (r->arg[1] >= (uint64_t)session.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (context_find((int)r->arg[1])) return CUDA_ERROR_NOT_SUPPORTED;
    TRY(context_make(r, (int)r->arg[1], false, value));
    session.current = value[0]; /* cuCtxCreate made it current */
    return CUDA_SUCCESS;
}

static CUresult context_destroy(const struct request *r, uint64_t *value) {
    (void)value;
    TRY(use_context(r->arg[0]));
    struct handle *context = handle_get(r->arg[0], CONTEXT);
    staging_free(context);
    CUresult status =
        context->primary ? driver.cuDevicePrimaryCtxRelease_v2(context->device) : driver.cuCtxDestroy_v2(context->real);
    /* What the driver did not destroy may still hold its memory: it stays accounted for. */
    if (!status) context_forget(r->arg[0], session.child);
    session.current = 0;
    driver.cuCtxSetCurrent(NULL);
    return status;
}

static CUresult context_sync(const struct request *r, uint64_t *value) {
    (void)value;
    TRY(use_context(r->context));
    return with_late(driver.cuCtxSynchronize());
}

/* Memory. */

static CUresult memory_alloc(const struct request *r, uint64_t *value) {
    uint64_t bytes = r->arg[0], kept = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    CUdeviceptr pointer = 0;
    TRY(use_context(r->context));
    if (bytes == 0 || kept < bytes) return CUDA_ERROR_INVALID_VALUE;
    int device = handle_get(r->context, CONTEXT)->device;
    /* Accounted for before it is taken, so that there is never more taken than accounted for. */
    if (!account_take(session.child, device, kept)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = driver.cuMemAlloc_v2(&pointer, bytes);
    if (status) account_give(session.child, device, kept);
    else memory_add(pointer, kept, r->context, 0);
    value[0] = pointer;
    return status;
}

static CUresult memory_free(const struct request *r, uint64_t *value) {
    (void)value;
    struct memory *memory = memory_find(r->arg[0], 0);
    if (!memory || memory->at != r->arg[0] || memory->module) return CUDA_ERROR_INVALID_VALUE;
    TRY(use_context(memory->context));
    TRY(driver.cuMemFree_v2(memory->at));
    account_give(session.child, handle_get(memory->context, CONTEXT)->device, memory->bytes);
    memory_drop(memory);
    return CUDA_SUCCESS;
}

static CUresult memory_info(const struct request *r, uint64_t *value) {
    size_t free_bytes = 0, total = 0;
    TRY(use_context(r->context));
    TRY(driver.cuMemGetInfo_v2(&free_bytes, &total));
    if (options.memory_limit) {
        uint64_t used = account_used(handle_get(r->context, CONTEXT)->device);
        uint64_t left = used < options.memory_limit ? options.memory_limit - used : 0;
        if (options.memory_limit < total) total = options.memory_limit;
        if (left < free_bytes) free_bytes = left;
    }
    value[0] = free_bytes;
    value[1] = total;
    return CUDA_SUCCESS;
}

/* Work on `target` by a stream: the context it needs, which is then current, and the stream. */
static CUresult work_on(const struct request *r, const struct memory *target, uint64_t number, CUstream *stream) {
    if (!target) return CUDA_ERROR_INVALID_VALUE;
    TRY(use_context(r->context ? r->context : target->context));
    return stream_get(number, stream);
}

/* The end of work that was put on a stream: waits for it if wanted. */
static CUresult put_on(const struct request *r, CUstream stream, CUresult status) {
    if (status || !(r->flags & FLAG_WAIT)) return status;
    return with_late(driver.cuStreamSynchronize(stream));
}

static CUresult copy_on_device(const struct request *r, uint64_t *value) {
    (void)value;
    uint64_t to = r->arg[0], from = r->arg[1], bytes = r->arg[2];
    CUstream stream;
    TRY(work_on(r, memory_find(from, bytes) ? memory_find(to, bytes) : NULL, r->arg[3], &stream));
    return put_on(r, stream, driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
}

static CUresult copy_to_peer(const struct request *r, uint64_t *value) {
    (void)value;
    uint64_t to = r->arg[0], from = r->arg[2], bytes = r->arg[4];
    CUstream stream;
    TRY(work_on(r, memory_find(from, bytes) ? memory_find(to, bytes) : NULL, r->arg[5], &stream));
    struct handle *there = handle_get(r->arg[1], CONTEXT), *here = handle_get(r->arg[3], CONTEXT);
    if (!there || !here) return CUDA_ERROR_INVALID_CONTEXT;
    return put_on(r, stream, driver.cuMemcpyPeerAsync(to, there->real, from, here->real, bytes, stream));
}

static CUresult memory_set(const struct request *r, uint64_t *value) {
    (void)value;
    uint64_t to = r->arg[0], count = r->arg[2], width = r->arg[3];
    CUstream stream;
    if ((width != 1 && width != 2 && width != 4) || count > UINT64_MAX / 4 || to % width) return CUDA_ERROR_INVALID_VALUE;
    TRY(work_on(r, memory_find(to, count * width), r->arg[4], &stream));
    if (width == 2 && !driver.cuMemsetD16Async) return CUDA_ERROR_NOT_SUPPORTED;
    if (width == 2) return put_on(r, stream, driver.cuMemsetD16Async(to, (uint16_t)r->arg[1], count, stream));
    return put_on(r, stream, width == 1 ? driver.cuMemsetD8Async(to, (uint8_t)r->arg[1], count, stream)
                                        : driver.cuMemsetD32Async(to, (uint32_t)r->arg[1], count, stream));
}

/* Streams. */

static CUresult stream_create(const struct request *r, uint64_t *value) {
    CUstream stream = NULL;
    TRY(use_context(r->context));
    TRY(driver.cuStreamCreateWithPriority(&stream, (unsigned)r->arg[0], (int)r->arg[1]));
    value[0] = handle_add(STREAM, stream, -1, r->context);
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(const struct request *r, uint64_t *value) {
    (void)value;
    CUstream stream;
    TRY(stream_of(r, &stream));
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    handle_drop(r->arg[0]);
    return driver.cuStreamDestroy_v2(stream);
}

static CUresult stream_query(const struct request *r, uint64_t *value) {
    (void)value;
    CUstream stream;
    TRY(stream_of(r, &stream));
    return with_late(driver.cuStreamQuery(stream));
}

static CUresult stream_sync(const struct request *r, uint64_t *value) {
    (void)value;
    CUstream stream;
    TRY(stream_of(r, &stream));
    return with_late(driver.cuStreamSynchronize(stream));
}

static CUresult stream_wait(const struct request *r, uint64_t *value) {
    (void)value;
    CUstream stream;
    CUevent event;
    TRY(stream_of(r, &stream));
    TRY(event_get(r->arg[1], &event));
    return driver.cuStreamWaitEvent(stream, event, 0);
}

/* Events. */

static CUresult event_create(const struct request *r, uint64_t *value) {
    CUevent event = NULL;
    TRY(use_context(r->context));
    TRY(driver.cuEventCreate(&event, (unsigned)r->arg[0]));
    value[0] = handle_add(EVENT, event, -1, r->context);
    return CUDA_SUCCESS;
}

static CUresult event_destroy(const struct request *r, uint64_t *value) {
    (void)value;
    CUevent event;
    TRY(event_of(r, &event));
    handle_drop(r->arg[0]);
    return driver.cuEventDestroy_v2(event);
}

static CUresult event_record(const struct request *r, uint64_t *value) {
    (void)value;
    CUevent event;
    CUstream stream;
    TRY(event_of(r, &event));
    TRY(stream_get(r->arg[1], &stream));
    return driver.cuEventRecord(event, stream);
}

static CUresult event_query(const struct request *r, uint64_t *value) {
    (void)value;
    CUevent event;
    TRY(event_of(r, &event));
    return with_late(driver.cuEventQuery(event));
}

static CUresult event_sync(const struct request *r, uint64_t *value) {
    (void)value;
    CUevent event;
    TRY(event_of(r, &event));
    return with_late(driver.cuEventSynchronize(event));
}

static CUresult event_elapsed(const struct request *r, uint64_t *value) {
    CUevent start, end;
    float milliseconds = 0;
    uint32_t bits;
    TRY(event_get(r->arg[0], &start));
    TRY(event_get(r->arg[1], &end));
    TRY(use_context(handle_get(r->arg[0], EVENT)->context));
    TRY(driver.cuEventElapsedTime(&milliseconds, start, end));
    memcpy(&bits, &milliseconds, sizeof bits);
    value[0] = bits;
    return CUDA_SUCCESS;
}

static void send_environment(const struct request *r) {
    static char text[32768];
    answer(r, CUDA_SUCCESS, 0, 0, text, environment(text, sizeof text));
}

/* By the number of wire.h. An operation either returns its status, and up to two values for the reply, or answers
 * itself because it has data. */
static const struct operation {
    const char *name;
    CUresult (*does)(const struct request *r, uint64_t *value);
    void (*answers)(const struct request *r);
    bool payload; /* data follow the request */
} OPS[] = {
    [OP_ENVIRONMENT] = {"environment", NULL, send_environment, false},
    [OP_PRIMARY_RETAIN] = {"cuDevicePrimaryCtxRetain", primary_retain, NULL, false},
    [OP_CTX_CREATE] = {"cuCtxCreate", context_create, NULL, false},
    [OP_CTX_DESTROY] = {"cuCtxDestroy", context_destroy, NULL, false},
    [OP_CTX_SYNC] = {"cuCtxSynchronize", context_sync, NULL, false},
    [OP_ALLOC] = {"cuMemAlloc", memory_alloc, NULL, false},
    [OP_FREE] = {"cuMemFree", memory_free, NULL, false},
    [OP_MEM_INFO] = {"cuMemGetInfo", memory_info, NULL, false},
    [OP_HTOD] = {"cuMemcpyHtoD", NULL, copy_in, true},
    [OP_DTOH] = {"cuMemcpyDtoH", NULL, copy_out, false},
    [OP_DTOD] = {"cuMemcpyDtoD", copy_on_device, NULL, false},
    [OP_PEER] = {"cuMemcpyPeer", copy_to_peer, NULL, false},
    [OP_MEMSET] = {"cuMemset", memory_set, NULL, false},
    [OP_STREAM_CREATE] = {"cuStreamCreate", stream_create, NULL, false},
    [OP_STREAM_DESTROY] = {"cuStreamDestroy", stream_destroy, NULL, false},
    [OP_STREAM_QUERY] = {"cuStreamQuery", stream_query, NULL, false},
    [OP_STREAM_SYNC] = {"cuStreamSynchronize", stream_sync, NULL, false},
    [OP_STREAM_WAIT] = {"cuStreamWaitEvent", stream_wait, NULL, false},
    [OP_EVENT_CREATE] = {"cuEventCreate", event_create, NULL, false},
    [OP_EVENT_DESTROY] = {"cuEventDestroy", event_destroy, NULL, false},
    [OP_EVENT_RECORD] = {"cuEventRecord", event_record, NULL, false},
    [OP_EVENT_QUERY] = {"cuEventQuery", event_query, NULL, false},
    [OP_EVENT_SYNC] = {"cuEventSynchronize", event_sync, NULL, false},
    [OP_EVENT_ELAPSED] = {"cuEventElapsedTime", event_elapsed, NULL, false},
    [OP_MODULE_LOAD] = {"cuModuleLoadData", NULL, module_load, true},
    [OP_MODULE_UNLOAD] = {"cuModuleUnload", module_unload, NULL, false},
    [OP_MODULE_FUNCTION] = {"cuModuleGetFunction", NULL, module_function, true},
    [OP_MODULE_GLOBAL] = {"cuModuleGetGlobal", module_global, NULL, true},
    [OP_FUNC_SET] = {"cuFuncSetAttribute", function_set, NULL, false},
    [OP_LAUNCH] = {"cuLaunchKernel", launch, NULL, true},
    [OP_OCCUPANCY] = {"cuOccupancy", occupancy, NULL, false},
    [OP_LIMIT_GET] = {"cuCtxGetLimit", limit_get, NULL, false},
    [OP_LIMIT_SET] = {"cuCtxSetLimit", limit_set, NULL, false},
    [OP_PRIORITIES] = {"cuCtxGetStreamPriorityRange", priorities, NULL, false},
};

/* NULL: there is no such operation. */
static const struct operation *op_of(const struct request *r) {
    return r->op < sizeof OPS / sizeof *OPS && OPS[r->op].name ? &OPS[r->op] : NULL;
}

bool takes_payload(const struct request *r) {
    const struct operation *op = op_of(r);
    return op && op->payload;
}

const char *op_name(const struct request *r) {
    const struct operation *op = op_of(r);
    return op ? op->name : "unknown";
}

void serve_request(const struct request *r) {
    const struct operation *op = op_of(r);
    uint64_t value[2] = {0, 0};
    if (op && op->answers) {
        op->answers(r);
        return;
    }
    CUresult status = op ? op->does(r, value) : CUDA_ERROR_NOT_SUPPORTED;
    answer(r, status, value[0], value[1], NULL, 0);
}
