/* Entry points that are the same in the client's library and in the emulated driver: error texts, symbol look-up, and
 * the refusal of kernels. RUNS_NO_KERNELS is the sentence for the latter, given by the build. */
#include "cu.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct { CUresult error; const char *name, *text; } errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are unavailable"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_TOO_MANY_PEERS, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has mismatching driver versions"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct { const char *name; int version; void *function; } symbols[] = {
#define CU_ENTRY(base, version, symbol, params) {#base, version, (void *)(uintptr_t)symbol},
    CU_API(CU_ENTRY)
#undef CU_ENTRY
};

CUresult cuGetErrorName(CUresult error, const char **text) {
    for (size_t i = 0; text && i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return *text = errors[i].name, CUDA_SUCCESS;
    if (text) *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    for (size_t i = 0; text && i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return *text = errors[i].text, CUDA_SUCCESS;
    if (text) *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)flags; /* per-thread default streams fall back to the legacy ones, as the documentation allows */
    if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
    int best = 0, known = 0;
    *function = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (strcmp(symbols[i].name, symbol)) continue;
        known = 1;
        if (symbols[i].version <= version && symbols[i].version > best) {
            best = symbols[i].version;
            *function = symbols[i].function;
        }
    }
    if (status) *status = *function ? 0 : known ? 2 : 1; /* CUdriverProcAddressQueryResult */
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

static void say_once(void) {
    fputs("elastic-ai: " RUNS_NO_KERNELS "\n", stderr);
}

static CUresult no_kernels(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, say_once);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define UNUSED(x) (void)(x)

CUresult cuModuleLoad(CUmodule *m, const char *path) { UNUSED(m); UNUSED(path); return no_kernels(); }
CUresult cuModuleLoadData(CUmodule *m, const void *image) { UNUSED(m); UNUSED(image); return no_kernels(); }
CUresult cuModuleLoadFatBinary(CUmodule *m, const void *image) { UNUSED(m); UNUSED(image); return no_kernels(); }

CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned count, int *options, void **values) {
    UNUSED(m); UNUSED(image); UNUSED(count); UNUSED(options); UNUSED(values);
    return no_kernels();
}

CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
    UNUSED(f); UNUSED(m); UNUSED(name);
    return no_kernels();
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared_bytes, CUstream stream, void **params, void **extra) {
    UNUSED(f); UNUSED(gx); UNUSED(gy); UNUSED(gz); UNUSED(bx); UNUSED(by); UNUSED(bz);
    UNUSED(shared_bytes); UNUSED(stream); UNUSED(params); UNUSED(extra);
    return no_kernels();
}

CUresult cuLaunchKernelEx(const void *config, CUfunction f, void **params, void **extra) {
    UNUSED(config); UNUSED(f); UNUSED(params); UNUSED(extra);
    return no_kernels();
}
