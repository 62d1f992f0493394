/* The program's device memory by address: allocations and modules' variables, those of all servers side by side. */
#define _GNU_SOURCE
#include "pointers.h"

#include <stdlib.h>
#include <string.h>

#include "connections.h"
#include "current.h"
#include "start.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct allocation *all; /* by address */
static size_t count, room;
static uint64_t last_id;

/* Index of the first one above. */
static size_t above(CUdeviceptr at) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (all[middle].at <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Whether memory of another server is there. Called with the lock. */
static bool taken(size_t i, CUdeviceptr at, size_t bytes, const struct connection *c) {
    for (size_t k = i; k < count && all[k].at - at < bytes; k++)
        if (all[k].context->c != c) return true;
    return i && at - all[i - 1].at < all[i - 1].bytes && all[i - 1].context->c != c;
}

CUresult pointer_add(CUdeviceptr at, size_t bytes, struct object *context, const void *module) {
    CUresult status = CUDA_SUCCESS;
    pthread_rwlock_wrlock(&lock);
    size_t i = above(at);
    if (taken(i, at, bytes, context->c)) status = ADDRESS_TAKEN;
    else if (i && all[i - 1].at == at) all[i - 1] = (struct allocation){at, bytes, context, module, all[i - 1].id};
    else {
        if (count == room) {
            size_t more = room ? room * 2 : 64;
            struct allocation *larger = realloc(all, more * sizeof *all);
            if (larger) all = larger, room = more;
            else status = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (!status) {
            memmove(all + i + 1, all + i, (count++ - i) * sizeof *all);
            all[i] = (struct allocation){at, bytes, context, module, ++last_id};
        }
    }
    pthread_rwlock_unlock(&lock);
    return status;
}

void pointer_drop(CUdeviceptr at) {
    pthread_rwlock_wrlock(&lock);
    size_t i = above(at);
    if (i && all[i - 1].at == at) {
        memmove(all + i - 1, all + i, (count - i) * sizeof *all);
        count--;
    }
    pthread_rwlock_unlock(&lock);
}

void pointers_forget(const struct object *context, const void *module) {
    size_t kept = 0;
    pthread_rwlock_wrlock(&lock);
    for (size_t i = 0; i < count; i++)
        if (module ? all[i].module != module : all[i].context != context) all[kept++] = all[i];
    count = kept;
    pthread_rwlock_unlock(&lock);
}

bool pointer_find(CUdeviceptr pointer, struct allocation *found) {
    pthread_rwlock_rdlock(&lock);
    size_t i = above(pointer);
    bool there = i && pointer - all[i - 1].at < all[i - 1].bytes;
    if (there) *found = all[i - 1];
    pthread_rwlock_unlock(&lock);
    return there;
}

struct connection *pointer_server(CUdeviceptr pointer) {
    struct allocation a;
    if (connection_count > 1 && pointer_find(pointer, &a)) return a.context->c;
    return current() ? current()->c : &connections[0];
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    struct allocation a;
    TRY(ready());
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (!pointer_find(pointer, &a)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = a.at;
    if (bytes) *bytes = a.bytes;
    return CUDA_SUCCESS;
}

/* CUpointer_attribute: what is known of a pointer, as the type that the attribute has. */
static CUresult attribute_of(void *value, int attribute, CUdeviceptr pointer) {
    struct allocation a;
    unsigned flags;
    bool device = pointer_find(pointer, &a), host = !device && !cuMemHostGetFlags(&flags, (void *)(uintptr_t)pointer);
    if (!device && !host) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = device ? (CUcontext)a.context : (CUcontext)current(); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = device ? MEMORY_DEVICE : MEMORY_HOST; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: /* no device reaches host memory here */
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)value = pointer;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (device) return CUDA_ERROR_INVALID_VALUE;
        *(void **)value = (void *)(uintptr_t)pointer;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)value = device ? a.id : 0; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = device ? a.context->device : current() ? current()->device : -2;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = device ? a.at : pointer; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = device ? a.bytes : 0; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)value = device; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    return attribute_of(value, attribute, pointer);
}

/* What is not known of a pointer is 0 here, by CUDA's documentation. */
CUresult cuPointerGetAttributes(unsigned number, int *attributes, void **values, CUdeviceptr pointer) {
    if (!number || !attributes || !values) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    for (unsigned i = 0; i < number; i++) {
        bool ordinal = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        bool small = ordinal || attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                     attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                     attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED || attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED;
        if (!values[i]) return CUDA_ERROR_INVALID_VALUE;
        if (attribute_of(values[i], attributes[i], pointer))
            memcpy(values[i], ordinal ? (const int[2]){-2} : (const int[2]){0}, small ? 4 : 8);
    }
    return CUDA_SUCCESS;
}
