/* Entry points that are the same in the client's library and in the emulated driver: error texts and symbol look-up. */
#include "cu.h"

#include <string.h>

static const struct { CUresult error; const char *name, *text; } errors[] = {
#define CU_ERROR(name, number, text) {number, #name, text},
    CU_ERRORS(CU_ERROR)
#undef CU_ERROR
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

/* That there is no such function is no failure of the second version: it says so by NULL and its status. */
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
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known   ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    TRY(cuGetProcAddress_v2(symbol, function, version, flags, NULL));
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
