/* Where the real runtime is, and what of it is refused.
 *
 * PyTorch's wheels bring libcudart as a library of its own, which is loaded long after this one, and mostly where names
 * are not looked up (RTLD_LOCAL). So it is asked for by who calls: a library finds there what it was linked to. */

#define _GNU_SOURCE
#include "cuda_runtime.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cuda_memory.h"

struct runtime runtime;

static const struct {
    const char *name;
    size_t at;
    bool must;
} FUNCTIONS[] = {
    {"cudaMalloc", offsetof(struct runtime, malloc), true},
    {"cudaFree", offsetof(struct runtime, free), true},
    {"cudaMemGetInfo", offsetof(struct runtime, mem_get_info), true},
    {"cudaHostAlloc", offsetof(struct runtime, host_alloc), true},
    {"cudaFreeHost", offsetof(struct runtime, free_host), true},
    {"cudaGetDevice", offsetof(struct runtime, get_device), true},
    {"cudaSetDevice", offsetof(struct runtime, set_device), true},
    {"cudaDeviceSynchronize", offsetof(struct runtime, device_synchronize), true},
    {"cudaMemsetAsync", offsetof(struct runtime, memset_async), true},
    {"cudaStreamCreateWithFlags", offsetof(struct runtime, stream_create), true},
    {"cudaStreamSynchronize", offsetof(struct runtime, stream_synchronize), true},
    {"cudaGetDriverEntryPoint", offsetof(struct runtime, entry_point), false},
    {"cudaGetDriverEntryPointByVersion", offsetof(struct runtime, entry_point_by_version), false},
};

/* Whether a function is of this library itself. */
static bool is_ours(void *function) {
    Dl_info theirs, ours;
    return dladdr(function, &theirs) && dladdr(&runtime, &ours) && theirs.dli_fbase == ours.dli_fbase;
}

static bool has_runtime(void *handle) {
    void *function = handle ? dlsym(handle, "cudaMalloc") : NULL;
    return function && !is_ours(function);
}

/* The library that this address is in. */
static void *library_of(const void *address) {
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_name[0])
        return NULL; /* the program itself */
    return dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
}

static int is_runtime(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    if (strncmp(name, "libcudart.so", 12))
        return 0;
    snprintf(found, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

/* What the caller was linked to; what was loaded for all; what is loaded at all. */
static void *find(const void *caller) {
    void *handle = library_of(caller);
    if (has_runtime(handle))
        return handle;
    if (has_runtime(RTLD_NEXT))
        return RTLD_NEXT;
    char path[PATH_MAX] = "";
    /* Two steps, for the loader's lock is held in the first. */
    if (dl_iterate_phdr(is_runtime, path))
        handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    return has_runtime(handle) ? handle : NULL;
}

int runtime_error(const void *caller) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool found;
    if (__atomic_load_n(&found, __ATOMIC_ACQUIRE))
        return 0;
    pthread_mutex_lock(&mutex);
    void *handle = found ? NULL : find(caller);
    bool whole = handle != NULL;
    for (size_t i = 0; whole && i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        void *function = dlsym(handle, FUNCTIONS[i].name);
        whole = (function && !is_ours(function)) || !FUNCTIONS[i].must;
        if (whole && function && !is_ours(function))
            memcpy((char *)&runtime + FUNCTIONS[i].at, &function, sizeof function);
    }
    if (whole)
        __atomic_store_n(&found, true, __ATOMIC_RELEASE);
    whole = found;
    pthread_mutex_unlock(&mutex);
    return whole ? 0 : CUDA_NOT_INITIALIZED;
}

/* ---- ways to memory that PyTorch does not need ---- */

#define REFUSED(name) \
    PUBLIC int name(void) { return CUDA_NOT_SUPPORTED; }

REFUSED(cudaMallocAsync)
REFUSED(cudaMallocAsync_ptsz)
REFUSED(cudaMallocFromPoolAsync)
REFUSED(cudaMallocFromPoolAsync_ptsz)
REFUSED(cudaMallocManaged)
REFUSED(cudaMallocPitch)
REFUSED(cudaMalloc3D)
REFUSED(cudaMallocArray)
REFUSED(cudaMalloc3DArray)
REFUSED(cudaMallocMipmappedArray)
REFUSED(cudaMemPoolCreate)
REFUSED(cudaIpcOpenMemHandle)

static int refused(void) { return CUDA_NOT_SUPPORTED; }

/* PyTorch asks the runtime for functions of the driver; those that give memory do nothing. */
static void closed(const char *name, void **function) {
    static const char *const GIVE[] = {"cuMemAlloc", "cuMemCreate", "cuMemHostAlloc", "cuMemImport", "cuMemPoolCreate",
                                       "cuMemPoolImport", "cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate",
                                       "cuIpcOpenMemHandle"};
    for (size_t i = 0; name && function && *function && i < sizeof GIVE / sizeof *GIVE; i++)
        if (!strncmp(name, GIVE[i], strlen(GIVE[i])))
            *function = (void *)refused;
}

PUBLIC int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    int error = runtime_error(CALLER);
    if (!error)
        error = runtime.entry_point ? runtime.entry_point(name, function, flags, status) : CUDA_NOT_SUPPORTED;
    if (!error)
        closed(name, function);
    return error;
}

PUBLIC int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                            unsigned long long flags, int *status) {
    int error = runtime_error(CALLER);
    if (!error)
        error = runtime.entry_point_by_version
                    ? runtime.entry_point_by_version(name, function, version, flags, status)
                    : CUDA_NOT_SUPPORTED;
    if (!error)
        closed(name, function);
    return error;
}
