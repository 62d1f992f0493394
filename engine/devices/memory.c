/* Memory of emulated devices: host memory behind addresses that nothing else in the process has, so that a program
 * which takes one for its own faults as on a real device, and no copy reaches anything but device memory. From the first
 * module on the memory is at its device addresses, for that is what kernels use. */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "queue.h"
#include "stream.h"

#define HUGE ((size_t)2 << 20)
#define SPOILT_FROM 4096 /* bytes: what programs tell each other in small copies stays right */
#define FIRST_ADDRESS 0x200000000000ull /* far from programs, stacks, libraries, and from AddressSanitizer's own memory */

struct block {
    CUdeviceptr at;
    size_t bytes, mapped;
    char *host;
    const struct context *context;
    bool lent; /* a module's variable: not allocated here */
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* read: during copies, so that no block goes meanwhile */
static struct block *blocks; /* by address, which only grows */
static size_t block_count, block_room;
static CUdeviceptr next_address; /* 0: none was given yet */
static bool shown; /* at the device addresses */

static size_t rounded(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

static struct block *find(CUdeviceptr at, size_t bytes) {
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].at <= at) low = middle + 1;
        else high = middle;
    }
    if (!low) return NULL;
    struct block *b = &blocks[low - 1];
    return at - b->at <= b->bytes && bytes <= b->bytes - (at - b->at) ? b : NULL;
}

/* Called with the lock. */
static bool insert(const struct block *b) {
    if (block_count == block_room) {
        size_t room = block_room ? block_room * 2 : 64;
        struct block *larger = realloc(blocks, room * sizeof *blocks);
        if (!larger) return false;
        blocks = larger, block_room = room;
    }
    size_t i = block_count;
    while (i && blocks[i - 1].at > b->at) i--;
    memmove(&blocks[i + 1], &blocks[i], (block_count++ - i) * sizeof *blocks);
    blocks[i] = *b;
    return true;
}

static void *map(CUdeviceptr at, size_t bytes) {
    void *wanted = shown ? (void *)(uintptr_t)at : NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (shown ? MAP_FIXED_NOREPLACE : 0);
    void *made = mmap(wanted, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (made == MAP_FAILED || !wanted || made == wanted) return made;
    munmap(made, bytes); /* a kernel before Linux 4.17 takes the address for a hint */
    return MAP_FAILED;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    struct context *c = current();
    if (!pointer || !bytes || bytes > SIZE_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    if (state_lost(c->gpu, gpus[c->gpu].health.taken_after)) return CUDA_ERROR_OUT_OF_MEMORY;
    struct block b = {.bytes = rounded(bytes, 512), .mapped = rounded(bytes, bytes < HUGE ? 4096 : HUGE), .context = c};
    if (!state_take(c->gpu, b.bytes, gpus[c->gpu].memory_bytes - gpus[c->gpu].reserved_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_rwlock_wrlock(&lock);
    /* Elsewhere in each process, as with drivers, whose addresses follow the host's. */
    const char *chosen = next_address ? NULL : getenv("ELASTIC_AI_EMULATED_ADDRESS");
    if (chosen) next_address = strtoull(chosen, NULL, 16);
    if (!next_address) next_address = FIRST_ADDRESS + ((uint64_t)getpid() * 2654435761u % 4096 << 33);
    b.at = next_address;
    /* Taken from the host as it is touched, zeroed by the kernel: nobody sees what another one left. */
    b.host = map(b.at, b.mapped);
    bool made = b.host != MAP_FAILED && insert(&b);
    if (made) {
        (void)madvise(b.host, b.mapped, MADV_HUGEPAGE);
        next_address += rounded(b.bytes, HUGE) + HUGE; /* what is behind it faults */
        *pointer = b.at;
    }
    pthread_rwlock_unlock(&lock);
    if (made) return CUDA_SUCCESS;
    if (b.host != MAP_FAILED) munmap(b.host, b.mapped);
    state_give(c->gpu, b.bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

bool memory_show(void) {
    pthread_rwlock_wrlock(&lock);
    bool fine = true, was = shown;
    shown = true;
    for (size_t i = 0; !was && fine && i < block_count; i++) {
        struct block *b = &blocks[i];
        void *there = map(b->at, b->mapped); /* whether nothing else is there */
        fine = there != MAP_FAILED &&
               mremap(b->host, b->mapped, b->mapped, MREMAP_MAYMOVE | MREMAP_FIXED, there) != MAP_FAILED;
        if (fine) b->host = there;
    }
    pthread_rwlock_unlock(&lock);
    return fine;
}

bool memory_lend(const struct context *context, void *at, size_t bytes) {
    struct block b = {(CUdeviceptr)(uintptr_t)at, bytes, bytes, at, context, true};
    pthread_rwlock_wrlock(&lock);
    bool fine = insert(&b);
    pthread_rwlock_unlock(&lock);
    return fine;
}

static void forget(struct block *b) {
    size_t i = (size_t)(b - blocks);
    memmove(b, b + 1, (--block_count - i) * sizeof *b);
}

void memory_return(void *at) {
    pthread_rwlock_wrlock(&lock);
    struct block *b = find((CUdeviceptr)(uintptr_t)at, 0);
    if (b && b->host == at && b->lent) forget(b);
    pthread_rwlock_unlock(&lock);
}

static void drop(const struct block *b) {
    if (b->lent) return;
    munmap(b->host, b->mapped);
    state_give(b->context->gpu, b->bytes);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    CUresult status = CUDA_ERROR_INVALID_VALUE;
    if (!pointer) return CUDA_SUCCESS;
    if (current()) {
        queue_wait_context(current()); /* its kernels may use what goes */
        TRY(current_check());
    }
    pthread_rwlock_wrlock(&lock);
    struct block *b = find(pointer, 0);
    if (b && b->at == pointer && !b->lent) {
        drop(b);
        forget(b);
        status = CUDA_SUCCESS;
    }
    pthread_rwlock_unlock(&lock);
    return status;
}

void memory_forget(const struct context *context) {
    size_t kept = 0;
    pthread_rwlock_wrlock(&lock);
    for (size_t i = 0; i < block_count; i++) {
        if (blocks[i].context == context) drop(&blocks[i]);
        else blocks[kept++] = blocks[i];
    }
    block_count = kept;
    pthread_rwlock_unlock(&lock);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    struct context *c = current();
    if (!free_bytes || !total_bytes) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    uint64_t used = state_used(c->gpu), total = gpus[c->gpu].memory_bytes - gpus[c->gpu].reserved_bytes;
    *total_bytes = total;
    *free_bytes = used < total ? total - used : 0;
    return CUDA_SUCCESS;
}

/* What is described to be wrong with a GPU's copies. -1: no GPU. */
static void spoil(int gpu, char *data, size_t bytes) {
    int64_t bits = gpu < 0 || bytes < SPOILT_FROM ? 0 : gpus[gpu].health.wrong_bits;
    for (int64_t k = 0; k < bits; k++) data[(bytes / 2 + (size_t)k * 61) % bytes] ^= 1;
}

/* Why the GPU does nothing from this copy on, which counts. Where nothing is described to come, the count begins anew. */
CUresult memory_broken(int gpu) {
    if (gpu < 0) return CUDA_SUCCESS;
    const struct health *h = &gpus[gpu].health;
    bool lost = state_lost(gpu, h->lost_after);
    if (state_lost(gpu, h->xid_after)) ended = CUDA_ERROR_ECC_UNCORRECTABLE;
    state_copied(gpu, h->lost_after != UNSAID || h->xid_after != UNSAID || h->taken_after != UNSAID);
    return lost ? CUDA_ERROR_UNKNOWN : ended;
}

static int64_t slowness(int gpu) {
    int64_t percent = gpu < 0 ? 0 : gpus[gpu].health.slow_percent;
    return percent > 0 ? percent : 0;
}

/* A copy at the rate of the slower of its GPUs takes that much longer: it spins, for a sleep is longer than a copy. */
static void linger(int one, int other, uint64_t began) {
    int64_t percent = slowness(one) > slowness(other) ? slowness(one) : slowness(other);
    uint64_t until = began + (state_now_ns() - began) * 100 / (uint64_t)(100 - percent);
    while (percent && state_now_ns() < until) {}
}

void memory_slow(int gpu, uint64_t began) {
    linger(gpu, gpu, began);
}

/* One of host and device pointer is given for each side; the devices' time counts as busy. */
static CUresult move(void *to_host, CUdeviceptr to, const void *from_host, CUdeviceptr from, size_t bytes, CUstream s) {
    CUresult status = stream_settle(s);
    if (status || !bytes) return status;
    uint64_t began = state_now_ns();
    pthread_rwlock_rdlock(&lock);
    struct block *target = to_host ? NULL : find(to, bytes), *source = from_host ? NULL : find(from, bytes);
    if ((!to_host && !target) || (!from_host && !source)) status = CUDA_ERROR_INVALID_VALUE;
    int gpu_to = target ? target->context->gpu : -1, gpu_from = source ? source->context->gpu : -1;
    if (!status) status = memory_broken(gpu_to);
    if (!status && gpu_from != gpu_to) status = memory_broken(gpu_from);
    if (!status) {
        char *at = target ? target->host + (to - target->at) : to_host;
        memmove(at, source ? source->host + (from - source->at) : from_host, bytes);
        spoil(gpu_to, at, bytes);
    }
    pthread_rwlock_unlock(&lock);
    linger(gpu_to, gpu_from, began);
    uint64_t took = state_now_ns() - began;
    if (gpu_to >= 0) state_busy(gpu_to, took);
    if (gpu_from >= 0 && gpu_from != gpu_to) state_busy(gpu_from, took);
    return status;
}

static CUresult set(CUdeviceptr to, unsigned value, size_t count, size_t width, CUstream s) {
    CUresult status = stream_settle(s);
    if (count > SIZE_MAX / 4 || to % width) return CUDA_ERROR_INVALID_VALUE;
    if (status || !count) return status;
    uint64_t began = state_now_ns();
    pthread_rwlock_rdlock(&lock);
    struct block *b = find(to, count * width);
    int gpu = b ? b->context->gpu : -1;
    if (b && width == 1) memset(b->host + (to - b->at), (int)value, count);
    for (size_t i = 0; b && width == 4 && i < count; i++) ((uint32_t *)(void *)(b->host + (to - b->at)))[i] = value;
    pthread_rwlock_unlock(&lock);
    if (gpu >= 0) state_busy(gpu, state_now_ns() - began);
    return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define CHECK(pointer) if (!(pointer) && bytes) return CUDA_ERROR_INVALID_VALUE

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
    CHECK(from);
    return move(NULL, to, from, 0, bytes, s);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
    CHECK(to);
    return move(to, 0, NULL, from, bytes, s);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    return move(NULL, to, NULL, from, bytes, s);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream s) {
    if (!to_context || !from_context) return CUDA_ERROR_INVALID_CONTEXT;
    return move(NULL, to, NULL, from, bytes, s);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
    return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, NULL);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return cuMemcpyHtoDAsync_v2(to, from, bytes, NULL);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    return cuMemcpyDtoHAsync_v2(to, from, bytes, NULL);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return cuMemcpyDtoDAsync_v2(to, from, bytes, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream s) {
    return set(to, value, count, 1, s);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream s) {
    return set(to, value, count, 4, s);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) { return set(to, value, count, 1, NULL); }
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) { return set(to, value, count, 4, NULL); }
