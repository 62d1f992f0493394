/* What both libnvidia-ml.so.1 of ours have in common: beginning and end, errors in words, older names. */
#ifndef ELASTIC_AI_NVML_BOTH_H
#define ELASTIC_AI_NVML_BOTH_H
#include "nvml_types.h"

#include <stdbool.h>

bool opened(void);     /* NVML is initialised */
int nvml_begin(void);  /* the library's own: reads its devices when the first user comes; OK, or why not */
int text(char *to, unsigned size, const char *from); /* OK, or why it is not copied; "" is NOT_SUPPORTED */

/* A function of a device, whose position is `i`; `index_of` is the library's own. */
#define DEVICE(name, parameters, ...) \
    EXPORT int name parameters; \
    int name parameters { \
        int i = index_of(device); \
        if (i < 0) return -i; \
        __VA_ARGS__ \
    }

#endif
