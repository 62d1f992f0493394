/* Device memory of a lease's sessions on a GPU: zero when it is handed out, overwritten before it is given back, and one
 * limit for all of them.
 *
 * CUDA promises nothing of what is in new memory, and counts by device and not by lease. So this library is preloaded
 * (LD_PRELOAD) and stands in front of the runtime's functions that PyTorch takes memory by: its allocator and its libraries
 * call cudaMalloc, cudaFree, cudaMemGetInfo and cudaHostAlloc by name, in libcudart.so.12 or .13. None of the names here
 * has a version, so that they stand for those of both. Other ways to memory (pools, managed memory, arrays, the driver's
 * cuMemCreate) are refused, for PyTorch does not need them. Libraries that carry a runtime of their own inside (cuBLAS, cuDNN,
 * NCCL) do not come by here: what they take for themselves is neither counted nor overwritten.
 *
 * No header of CUDA is needed. The account lies in memory that the launcher shares with its children: each row is
 * written by one child, and cleared by the launcher when that child has ended, however it ended. */

#define _GNU_SOURCE
#include "cuda_memory.h"

#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime.h"

enum { STEP = 512 }; /* bytes in which memory is counted */

struct lease {
    pthread_mutex_t mutex; /* robust: a child may be killed while it has it */
    uint64_t limit;        /* bytes of each device; 0: none */
    uint64_t context;      /* what a session's context takes of a device */
    uint64_t used[EAI_MOST_SESSIONS][EAI_MOST_DEVICES];
};

/* What this process has been given. */
struct block {
    char *data;
    size_t bytes;
    int device; /* HOST: pinned memory of the host */
};
enum { HOST = -1 };

static struct lease *lease; /* none: nothing is counted */
static size_t row;
static pthread_mutex_t own = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* of all below */
static void *blocks;
static bool has_context[EAI_MOST_DEVICES];
static void *streams[EAI_MOST_DEVICES];

/* ---- the account ---- */

static void lock(struct lease *l) {
    /* A holder that was killed left each row as it was or as it wanted it: each is written by one store. */
    if (pthread_mutex_lock(&l->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&l->mutex);
}

static uint64_t sum(const struct lease *l, int device) {
    uint64_t total = 0;
    for (size_t i = 0; i < EAI_MOST_SESSIONS; i++)
        total += l->used[i][device];
    return total;
}

static bool take(int device, uint64_t bytes) {
    if (!lease)
        return true;
    lock(lease);
    uint64_t all = sum(lease, device);
    bool fits = !lease->limit || (bytes <= lease->limit && all <= lease->limit - bytes);
    if (fits)
        lease->used[row][device] += bytes;
    pthread_mutex_unlock(&lease->mutex);
    return fits;
}

static void give(int device, uint64_t bytes) {
    if (!lease)
        return;
    lock(lease);
    lease->used[row][device] -= bytes;
    pthread_mutex_unlock(&lease->mutex);
}

/* Counts the context that this process has on the device from its first use on. */
static bool opened(int device) {
    pthread_mutex_lock(&own);
    if (!has_context[device])
        has_context[device] = take(device, lease ? lease->context : 0);
    bool done = has_context[device];
    pthread_mutex_unlock(&own);
    return done;
}

static uint64_t counted(size_t bytes) { return ((uint64_t)bytes + STEP - 1) / STEP * STEP; }

/* ---- what was handed out ---- */

static int by_address(const void *a, const void *b) {
    const char *one = ((const struct block *)a)->data, *other = ((const struct block *)b)->data;
    return (one > other) - (one < other);
}

static bool remember(void *data, size_t bytes, int device) {
    struct block *b = malloc(sizeof *b);
    if (!b)
        return false;
    *b = (struct block){data, bytes, device};
    pthread_mutex_lock(&own);
    bool done = tsearch(b, &blocks, by_address) != NULL;
    pthread_mutex_unlock(&own);
    if (!done)
        free(b);
    return done;
}

/* The block that begins there; data NULL: none. */
static struct block known(void *data) {
    struct block wanted = {data, 0, HOST};
    pthread_mutex_lock(&own);
    struct block **at = tfind(&wanted, &blocks, by_address);
    struct block found = at ? **at : (struct block){NULL, 0, HOST};
    pthread_mutex_unlock(&own);
    return found;
}

static void forget(void *data) {
    struct block wanted = {data, 0, HOST}, *gone = NULL;
    pthread_mutex_lock(&own);
    struct block **at = tfind(&wanted, &blocks, by_address);
    if (at) {
        gone = *at;
        tdelete(&wanted, &blocks, by_address);
    }
    pthread_mutex_unlock(&own);
    free(gone);
}

/* ---- zeros ---- */

/* Zeros on the current device, there when it returns: on a stream of its own, which waits for nothing of the program's,
 * and every operator that is given the memory is called later. */
static int zero(int device, void *data, size_t bytes) {
    pthread_mutex_lock(&own);
    int error = streams[device] ? 0 : runtime.stream_create(&streams[device], CUDA_STREAM_NON_BLOCKING);
    void *stream = streams[device];
    pthread_mutex_unlock(&own);
    if (!error)
        error = runtime.memset_async(data, 0, bytes, stream);
    return error ? error : runtime.stream_synchronize(stream);
}

/* Zeros over what the program had there, once all that it had begun has ended. */
static int overwrite(struct block b) {
    int error = runtime.device_synchronize(), after = 0;
    if (b.device == HOST)
        memset(b.data, 0, b.bytes);
    else
        after = zero(b.device, b.data, b.bytes);
    return error ? error : after;
}

/* The program's current device is `to` afterwards; what it was. */
static int on_device(int to) {
    int now = to;
    if (!runtime.get_device(&now) && now != to)
        runtime.set_device(to);
    return now;
}

/* ---- what the launcher calls ---- */

size_t eai_memory_bytes(void) { return sizeof(struct lease); }

void eai_memory_make(void *memory, uint64_t limit, uint64_t context) {
    struct lease *l = memory;
    memset(l, 0, sizeof *l);
    l->limit = limit;
    l->context = context;
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&l->mutex, &shared);
    pthread_mutexattr_destroy(&shared);
}

void eai_memory_use(void *memory, size_t session) {
    lease = memory;
    row = session;
}

void eai_memory_clear(void *memory, size_t session) {
    struct lease *l = memory;
    lock(l);
    memset(l->used[session], 0, sizeof l->used[session]);
    pthread_mutex_unlock(&l->mutex);
}

uint64_t eai_memory_used(void *memory, int device) {
    struct lease *l = memory;
    lock(l);
    uint64_t all = sum(l, device);
    pthread_mutex_unlock(&l->mutex);
    return all;
}

uint64_t eai_memory_held(int device) { return lease ? lease->used[row][device] : 0; }

static uint64_t left; /* of this session's end */

static void end(const void *node, VISIT visit, int depth) {
    (void)depth;
    if (visit != postorder && visit != leaf)
        return;
    struct block b = **(struct block *const *)node;
    if (b.device != HOST)
        on_device(b.device);
    if (overwrite(b))
        left += b.bytes;
}

uint64_t eai_memory_end(void) {
    pthread_mutex_lock(&own); /* and nothing more is handed out */
    left = 0;
    twalk(blocks, end);
    pthread_mutex_unlock(&own);
    return left;
}

/* ---- what the program calls ---- */

PUBLIC int cudaMalloc(void **where, size_t bytes) {
    int device = 0, error = runtime_error(CALLER);
    if (error || (error = runtime.get_device(&device)))
        return error;
    if (!where)
        return CUDA_INVALID_VALUE;
    if (device < 0 || device >= EAI_MOST_DEVICES)
        return CUDA_INVALID_DEVICE;
    if (bytes > UINT64_MAX - STEP || !opened(device) || !take(device, counted(bytes)))
        return CUDA_OUT_OF_MEMORY;
    void *data = NULL;
    error = runtime.malloc(&data, bytes);
    if (!error && data) {
        error = zero(device, data, bytes);
        if (!error && !remember(data, bytes, device))
            error = CUDA_OUT_OF_MEMORY;
        if (error)
            runtime.free(data);
    }
    if (error || !data)
        give(device, counted(bytes));
    if (!error)
        *where = data;
    return error;
}

PUBLIC int cudaFree(void *data) {
    int error = runtime_error(CALLER);
    struct block b = known(data);
    if (error || !b.data || b.device == HOST)
        return error ? error : runtime.free(data);
    int before = on_device(b.device);
    overwrite(b); /* where a broken device refuses, it goes with the process, and is zero for who has it next */
    forget(data); /* before it is free: another thread may be given the address at once */
    error = runtime.free(data);
    if (error)
        remember(data, b.bytes, b.device);
    else
        give(b.device, counted(b.bytes));
    if (before != b.device)
        runtime.set_device(before);
    return error;
}

PUBLIC int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    int device = 0, error = runtime_error(CALLER);
    if (error || (error = runtime.get_device(&device)))
        return error;
    if (!free_bytes || !total)
        return CUDA_INVALID_VALUE;
    if (device < 0 || device >= EAI_MOST_DEVICES)
        return CUDA_INVALID_DEVICE;
    if (!opened(device))
        return CUDA_OUT_OF_MEMORY;
    error = runtime.mem_get_info(free_bytes, total);
    if (error || !lease || !lease->limit)
        return error;
    uint64_t used = eai_memory_used(lease, device), rest = lease->limit > used ? lease->limit - used : 0;
    if (*total > lease->limit)
        *total = lease->limit;
    if (*free_bytes > rest)
        *free_bytes = rest;
    return 0;
}

/* Pinned memory of the host, which kernels read too. It counts in the unit's memory, not in the device's. */
static int host(void **where, size_t bytes, unsigned flags) {
    void *data = NULL;
    int error = where ? runtime.host_alloc(&data, bytes, flags) : CUDA_INVALID_VALUE;
    if (!error && data) {
        memset(data, 0, bytes);
        if (!remember(data, bytes, HOST)) {
            runtime.free_host(data);
            return CUDA_OUT_OF_MEMORY;
        }
    }
    if (!error)
        *where = data;
    return error;
}

PUBLIC int cudaHostAlloc(void **where, size_t bytes, unsigned flags) {
    int error = runtime_error(CALLER);
    return error ? error : host(where, bytes, flags);
}

PUBLIC int cudaMallocHost(void **where, size_t bytes) {
    int error = runtime_error(CALLER);
    return error ? error : host(where, bytes, 0);
}

PUBLIC int cudaFreeHost(void *data) {
    int error = runtime_error(CALLER);
    if (error)
        return error;
    struct block b = known(data);
    bool ours = b.data && b.device == HOST;
    if (ours) {
        overwrite(b);
        forget(data);
    }
    error = runtime.free_host(data);
    if (error && ours)
        remember(data, b.bytes, HOST);
    return error;
}
