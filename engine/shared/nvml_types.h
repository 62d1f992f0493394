/* What both libnvidia-ml.so.1 of ours are made with: names, values and structures of NVIDIA's public nvml.h. */
#ifndef ELASTIC_AI_NVML_TYPES_H
#define ELASTIC_AI_NVML_TYPES_H

#define EXPORT __attribute__((visibility("default")))

/* nvmlReturn_t */
enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, NO_DATA = 21, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999 };

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t; /* _v2 and _v3 */

/* A structure's `version` as nvml.h makes it: its size, and the number in the highest byte. */
#define NVML_VERSION(type, number) ((unsigned)sizeof(type) | (unsigned)(number) << 24)

#endif
