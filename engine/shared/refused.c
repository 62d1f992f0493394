/* Functions of the table that a library does not have. They are weak: a library that has one has its own. RUNS_NO_KERNELS
 * is the sentence for a program that asks for kernels, given by the build. */
#include "cu.h"

#include <pthread.h>
#include <stdio.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

static void say_once(void) {
    fputs("elastic-ai: " RUNS_NO_KERNELS "\n", stderr);
}

static CUresult no_kernels(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, say_once);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define REFUSED(base, version, symbol, params) \
    __attribute__((weak)) CUresult symbol params { return no_kernels(); }
CU_KERNEL_API(REFUSED)
#undef REFUSED

#define REFUSED(base, version, symbol, params) \
    __attribute__((weak)) CUresult symbol params { return CUDA_ERROR_NOT_SUPPORTED; }
CU_MORE_API(REFUSED)
#undef REFUSED
