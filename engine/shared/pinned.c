/* Host memory that a program pins: the same in the client's library and in the emulated driver. No device reaches it but
 * by copies, so nothing is locked; what is kept is which memory it is, so that wrong calls fail as they do with CUDA. */
#define _GNU_SOURCE
#include "pinned.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define ALLOC_FLAGS (unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS \
    (unsigned)(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY)
#define REGISTER_IOMEMORY (unsigned)CU_MEMHOSTREGISTER_IOMEMORY

struct range {
    struct range *next;
    uintptr_t at;
    size_t bytes;
    unsigned flags;
    bool allocated; /* here, and not by the program */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static CUresult (*allowed)(void);

void pinned_allow(CUresult (*may)(void)) {
    __atomic_store_n(&allowed, may, __ATOMIC_RELEASE);
}

static CUresult check(void) {
    CUresult (*may)(void) = __atomic_load_n(&allowed, __ATOMIC_ACQUIRE);
    return may ? may() : CUDA_ERROR_NOT_INITIALIZED;
}

/* The first range that has a byte of these. Called with the lock. */
static struct range *overlapping(uintptr_t at, size_t bytes) {
    struct range *r = ranges;
    while (r && (at >= r->at + r->bytes || r->at >= at + bytes)) r = r->next;
    return r;
}

static CUresult add(void *pointer, size_t bytes, unsigned flags, bool allocated) {
    struct range *r = malloc(sizeof *r);
    if (!r) return CUDA_ERROR_OUT_OF_MEMORY;
    *r = (struct range){NULL, (uintptr_t)pointer, bytes, flags, allocated};
    pthread_mutex_lock(&lock);
    bool there = overlapping(r->at, bytes) != NULL;
    if (!there) {
        r->next = ranges;
        ranges = r;
    }
    pthread_mutex_unlock(&lock);
    if (there) free(r);
    return there ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_SUCCESS;
}

/* Whether there was one that begins there. */
static bool take_out(const void *pointer, bool allocated) {
    pthread_mutex_lock(&lock);
    struct range **to = &ranges;
    while (*to && ((*to)->at != (uintptr_t)pointer || (*to)->allocated != allocated)) to = &(*to)->next;
    struct range *found = *to;
    if (found) *to = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
    return found;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    if (!pointer || !bytes || flags & ~ALLOC_FLAGS) return CUDA_ERROR_INVALID_VALUE;
    TRY(check());
    void *made;
    if (posix_memalign(&made, 4096, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = add(made, bytes, flags, true);
    if (status) free(made);
    else *pointer = made;
    return status;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) {
    return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer) {
    if (!take_out(pointer, true)) return CUDA_ERROR_INVALID_VALUE;
    free(pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
    if (!pointer || !bytes || bytes > SIZE_MAX - (uintptr_t)pointer) return CUDA_ERROR_INVALID_VALUE;
    if (flags & ~(REGISTER_FLAGS | REGISTER_IOMEMORY)) return CUDA_ERROR_INVALID_VALUE;
    TRY(check());
    return flags & REGISTER_IOMEMORY ? CUDA_ERROR_NOT_SUPPORTED : add(pointer, bytes, flags, false);
}

CUresult cuMemHostUnregister(void *pointer) {
    if (!pointer) return CUDA_ERROR_INVALID_VALUE;
    return take_out(pointer, false) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *pointer) {
    if (!flags || !pointer) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const struct range *r = overlapping((uintptr_t)pointer, 1);
    if (r) *flags = r->flags;
    pthread_mutex_unlock(&lock);
    return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
