/* Copies and memsets in two dimensions and of either side, limits, versions: what the rest of the library does, asked for
 * in another way. */
#define _GNU_SOURCE
#include "client.h"

#include "connections.h"
#include "current.h"
#include "pointers.h"
#include "rpc.h"
#include "start.h"
#include "stream.h"

static bool on_device(CUdeviceptr pointer) {
    struct allocation a;
    return pointer_find(pointer, &a);
}

static void *host(CUdeviceptr pointer) {
    return (void *)(uintptr_t)pointer;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    TRY(ready());
    if (on_device(from)) return on_device(to) ? cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
                                              : cuMemcpyDtoHAsync_v2(host(to), from, bytes, stream);
    return on_device(to) ? cuMemcpyHtoDAsync_v2(to, host(from), bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    TRY(ready());
    if (on_device(from)) return on_device(to) ? cuMemcpyDtoD_v2(to, from, bytes) : cuMemcpyDtoH_v2(host(to), from, bytes);
    return on_device(to) ? cuMemcpyHtoD_v2(to, host(from), bytes) : CUDA_ERROR_INVALID_VALUE;
}

/* One side of a copy in two dimensions: where its first row is, and how far the next. */
struct side {
    CUdeviceptr at;
    size_t pitch;
    bool device;
};

static CUresult side_of(int type, const void *memory, CUdeviceptr device, size_t pitch, size_t x, size_t y,
                        const CUcopy2D *copy, struct side *s) {
    size_t last, first;
    if (type == MEMORY_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
    if (type != MEMORY_HOST && type != MEMORY_DEVICE && type != MEMORY_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
    s->at = type == MEMORY_HOST ? (CUdeviceptr)(uintptr_t)memory : device;
    s->device = type == MEMORY_DEVICE || (type == MEMORY_UNIFIED && on_device(device));
    s->pitch = pitch ? pitch : copy->width_bytes;
    if (copy->height > 1 && (s->pitch < copy->width_bytes || x > s->pitch - copy->width_bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(y, s->pitch, &first) || __builtin_add_overflow(first, x, &first) ||
        __builtin_mul_overflow(copy->height, s->pitch, &last) || __builtin_add_overflow(s->at, first, &s->at) ||
        s->at > UINT64_MAX - last)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Row by row, where the rows do not lie side by side on both sides: each is a request, and they travel together. */
CUresult cuMemcpy2DAsync_v2(const CUcopy2D *copy, CUstream stream) {
    struct side from, to;
    if (!copy) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    TRY(side_of(copy->from_type, copy->from_host, copy->from_device, copy->from_pitch, copy->from_x, copy->from_y, copy, &from));
    TRY(side_of(copy->to_type, copy->to_host, copy->to_device, copy->to_pitch, copy->to_x, copy->to_y, copy, &to));
    if (!from.device && !to.device) return CUDA_ERROR_NOT_SUPPORTED;
    size_t rows = copy->height, width = copy->width_bytes;
    if (from.pitch == width && to.pitch == width) width *= rows, rows = rows > 0;
    for (size_t row = 0; row < rows && width; row++) {
        CUdeviceptr a = to.at + row * to.pitch, b = from.at + row * from.pitch;
        TRY(!from.device ? cuMemcpyHtoDAsync_v2(a, host(b), width, stream)
            : to.device  ? cuMemcpyDtoDAsync_v2(a, b, width, stream)
                         : cuMemcpyDtoHAsync_v2(host(a), b, width, stream));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpy2D_v2(const CUcopy2D *copy) {
    TRY(cuMemcpy2DAsync_v2(copy, NULL));
    return cuStreamSynchronize(NULL);
}

CUresult cuMemcpy2DUnaligned_v2(const CUcopy2D *copy) {
    return cuMemcpy2D_v2(copy);
}

static CUresult rows_fit(CUdeviceptr to, size_t pitch, size_t width, size_t bytes, size_t height) {
    size_t row, all;
    if (__builtin_mul_overflow(width, bytes, &row) || __builtin_mul_overflow(pitch, height, &all)) return CUDA_ERROR_INVALID_VALUE;
    return (height > 1 && pitch < row) || to > UINT64_MAX - all ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    TRY(rows_fit(to, pitch, width, 1, height));
    for (size_t row = 0; row < height; row++) TRY(cuMemsetD8Async(to + row * pitch, value, width, NULL));
    return cuStreamSynchronize(NULL);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
    TRY(rows_fit(to, pitch, width, 4, height));
    for (size_t row = 0; row < height; row++) TRY(cuMemsetD32Async(to + row * pitch, value, width, NULL));
    return cuStreamSynchronize(NULL);
}

/* Of the current context. */
static CUresult ask_context(enum op op, uint64_t first, uint64_t second, struct reply *reply) {
    TRY(ready());
    struct object *context = current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    struct request r = {.op = op, .context = context->number, .arg = {first, second}};
    return call(context->c, &r, NULL, reply);
}

CUresult cuCtxGetLimit(size_t *value, int limit) {
    struct reply reply;
    if (!value || limit < 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(ask_context(OP_LIMIT_GET, (uint64_t)limit, 0, &reply));
    *value = reply.value[0];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    return limit < 0 ? CUDA_ERROR_INVALID_VALUE : ask_context(OP_LIMIT_SET, (uint64_t)limit, value, NULL);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    struct reply reply;
    TRY(ask_context(OP_PRIORITIES, 0, 0, &reply));
    if (least) *least = (int)(int64_t)reply.value[0];
    if (greatest) *greatest = (int)(int64_t)reply.value[1];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    TRY(ready());
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    if (context ? !object_of(context, CONTEXT) : !current()) return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020; /* that of contexts by cuCtxCreate_v2 and _v4, as drivers have it */
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    TRY(cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    return cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}
