/* Parts of the emulated NVML. Names, values and signatures are those of NVIDIA's public nvml.h. */
#ifndef ELASTIC_AI_EMULATED_NVML_H
#define ELASTIC_AI_EMULATED_NVML_H

#include "emulated.h"

#define EXPORT __attribute__((visibility("default")))

/* nvmlReturn_t */
enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999 };

typedef struct gpu *nvmlDevice_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

extern struct gpu gpus[MAX_GPUS];
int index_of(nvmlDevice_t device); /* in gpus, or a negative error */
int pci_info(int gpu, nvmlPciInfo_t *to); /* OK, or why not */

/* A function of a device, whose position is `i`. */
#define DEVICE(name, parameters, ...) \
    EXPORT int name parameters; \
    int name parameters { \
        int i = index_of(device); \
        if (i < 0) return -i; \
        __VA_ARGS__ \
    }

#endif
