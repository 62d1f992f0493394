/* What both libnvidia-ml.so.1 of ours have in common: beginning and end, errors in words, older names. */
#ifndef ELASTIC_AI_NVML_BOTH_H
#define ELASTIC_AI_NVML_BOTH_H
#include "nvml_types.h"

#include <stdbool.h>

bool opened(void); /* NVML is initialised */
/* The library's own: reads its devices when the first user comes; OK, or why not. It says so by BEGINS_BY. */
extern int (*nvml_begin)(void);
#define BEGINS_BY(own) \
    __attribute__((constructor)) static void begins_by(void) { nvml_begin = own; }
int text(char *to, unsigned size, const char *from); /* OK, or why it is not copied; "" is NOT_SUPPORTED */

/* A function of a device, whose position is `i`; `index_of` is the library's own. */
#define DEVICE(name, parameters, ...) \
    EXPORT int name parameters; \
    int name parameters { \
        int i = index_of(device); \
        if (i < 0) return -i; \
        __VA_ARGS__ \
    }

/* The library's own functions by their older names. */
#define OLDER(own, name, parameters, arguments) \
    EXPORT int own parameters; \
    EXPORT int name parameters; \
    int name parameters { return own arguments; }
#define OLDER_NAMES \
    OLDER(nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion, (char *to, unsigned size), (to, size)) \
    OLDER(nvmlSystemGetCudaDriverVersion_v2, nvmlSystemGetCudaDriverVersion, (int *version), (version)) \
    OLDER(nvmlDeviceGetCount_v2, nvmlDeviceGetCount, (unsigned *number), (number)) \
    OLDER(nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *device), (index, device))

#endif
