/* libnvidia-ml.so.1 of emulated devices: inventory, memory, utilisation, processes, MIG instances. What such a device
 * has not, or is not described with, is NOT_SUPPORTED, as NVML says it of real ones. Link and health: health.c. */
#define _GNU_SOURCE
#include "nvml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct gpu gpus[MAX_GPUS];
static int count, all; /* GPUs; with their MIG instances */

static int begin(void) {
    count = config_read(gpus, &all);
    if (count < 0) return DRIVER_NOT_LOADED;
    return !state_open() ? OK : errno == EACCES || errno == EPERM ? NO_PERMISSION : DRIVER_NOT_LOADED;
}
BEGINS_BY(begin)

int index_of(nvmlDevice_t device) {
    if (!opened()) return -UNINITIALIZED;
    if (device < gpus || device >= gpus + all) return -INVALID_ARGUMENT;
    int i = (int)(device - gpus);
    return state_lost(i, gpus[i].health.lost_after) ? -GPU_IS_LOST : i;
}

EXPORT int nvmlSystemGetDriverVersion(char *to, unsigned size);
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(to, size, EMULATED_DRIVER "-emulated"); }

#define FIND(name, parameters, condition) \
    EXPORT int name parameters; \
    int name parameters { \
        if (!opened()) return UNINITIALIZED; \
        if (!device) return INVALID_ARGUMENT; \
        for (int i = 0; i < all; i++) \
            if (condition) return *device = &gpus[i], OK; \
        return NOT_FOUND; \
    }

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (!version) return INVALID_ARGUMENT;
    *version = EMULATED_CUDA_VERSION;
    return OK;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *number);
int nvmlDeviceGetCount_v2(unsigned *number) {
    if (!opened()) return UNINITIALIZED;
    if (!number) return INVALID_ARGUMENT;
    *number = (unsigned)count;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    if (!opened()) return UNINITIALIZED;
    if (!device || index >= (unsigned)count) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return state_lost((int)index, gpus[index].health.lost_after) ? GPU_IS_LOST : OK;
}

static int same_address(const struct gpu *g, const char *id) {
    unsigned domain, bus, number;
    return id && sscanf(id, "%x:%x:%x", &domain, &bus, &number) == 3 && domain == g->pci_domain && bus == g->pci_bus &&
           number == g->pci_device;
}

FIND(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *device), uuid && !strcasecmp(uuid, gpus[i].uuid_text))
FIND(nvmlDeviceGetHandleByPciBusId_v2, (const char *id, nvmlDevice_t *device), i < count && same_address(&gpus[i], id))

DEVICE(nvmlDeviceGetName, (nvmlDevice_t device, char *to, unsigned size), return text(to, size, gpus[i].name);)
DEVICE(nvmlDeviceGetUUID, (nvmlDevice_t device, char *to, unsigned size), return text(to, size, gpus[i].uuid_text);)
DEVICE(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned *to),
       if (!to) return INVALID_ARGUMENT; *to = (unsigned)i; return OK;)
DEVICE(nvmlDeviceGetMinorNumber, (nvmlDevice_t device, unsigned *to),
       if (!to) return INVALID_ARGUMENT; *to = (unsigned)i; return OK;)
DEVICE(nvmlDeviceGetComputeMode, (nvmlDevice_t device, int *to),
       if (!to) return INVALID_ARGUMENT;
       *to = gpus[i].health.compute_mode == UNSAID ? 0 : (int)gpus[i].health.compute_mode; return OK;)
DEVICE(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor),
       if (!major || !minor) return INVALID_ARGUMENT;
       *major = gpus[i].capability_major; *minor = gpus[i].capability_minor; return OK;)

/* NVML counts FP32 cores and no multiprocessors: so many of them has each, by the CUDA C++ Programming Guide. */
DEVICE(nvmlDeviceGetNumGpuCores, (nvmlDevice_t device, unsigned *to),
       if (!to) return INVALID_ARGUMENT;
       bool fewer = gpus[i].capability_major == 7 || (gpus[i].capability_major == 8 && !gpus[i].capability_minor);
       *to = (unsigned)gpus[i].sm_count * (fewer ? 64 : 128); return OK;)

/* What is in use of a GPU is in use of its instances. */
static uint64_t used_of(int gpu) {
    uint64_t used = state_used(gpu);
    for (int i = count; i < all; i++)
        if (gpus[i].parent == gpu) used += state_used(i);
    return used;
}

DEVICE(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *to),
       if (!to) return INVALID_ARGUMENT;
       uint64_t used = used_of(i) + gpus[i].reserved_bytes; /* as NVML's first version counts it */
       *to = (nvmlMemory_t){gpus[i].memory_bytes, gpus[i].memory_bytes - used, used}; return OK;)

DEVICE(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *to),
       if (!to) return INVALID_ARGUMENT;
       uint64_t used = used_of(i), total = gpus[i].memory_bytes, reserved = gpus[i].reserved_bytes;
       *to = (nvmlMemory_v2_t){to->version, total, reserved, total - reserved - used, used}; return OK;)

/* Copies are all that an emulated device does: they are its work, and its memory's. */
DEVICE(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *to),
       if (!to) return INVALID_ARGUMENT;
       unsigned percent = state_utilization(i);
       *to = (nvmlUtilization_t){percent, percent}; return OK;)

int pci_info(int gpu, nvmlPciInfo_t *to) {
    const struct gpu *g = &gpus[gpu];
    if (!to) return INVALID_ARGUMENT;
    memset(to, 0, sizeof *to);
    to->domain = g->pci_domain, to->bus = g->pci_bus, to->device = g->pci_device;
    snprintf(to->busId, sizeof to->busId, "%s", g->pci_bus_id);
    snprintf(to->busIdLegacy, sizeof to->busIdLegacy, "%.15s", g->pci_bus_id + 4);
    return OK;
}

DEVICE(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *to), return pci_info(i, to);)
EXPORT int nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *to);
int nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *to) { return nvmlDeviceGetPciInfo_v3(device, to); }

#define HOLDERS 512

/* `room` in, number of processes out; the pids are this caller's own view, as far as it shares a pid namespace. */
static int processes(int gpu, unsigned *room, struct holder holders[HOLDERS]) {
    int found = state_holders(gpu, holders, HOLDERS);
    unsigned had = *room;
    *room = (unsigned)found;
    return (unsigned)found > had ? INSUFFICIENT_SIZE : OK;
}

DEVICE(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t device, unsigned *room, nvmlProcessInfo_t *to),
       struct holder holders[HOLDERS];
       if (!room || (*room && !to)) return INVALID_ARGUMENT;
       int status = processes(i, room, holders);
       for (unsigned k = 0; !status && k < *room; k++)
           to[k] = (nvmlProcessInfo_t){(unsigned)holders[k].pid, holders[k].bytes, ~0u, ~0u};
       return status;)
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *room, nvmlProcessInfo_t *to);
int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *room, nvmlProcessInfo_t *to) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, room, to);
}
DEVICE(nvmlDeviceGetComputeRunningProcesses, (nvmlDevice_t device, unsigned *room, nvmlProcessInfo_v1_t *to),
       struct holder holders[HOLDERS];
       if (!room || (*room && !to)) return INVALID_ARGUMENT;
       int status = processes(i, room, holders);
       for (unsigned k = 0; !status && k < *room; k++)
           to[k] = (nvmlProcessInfo_v1_t){(unsigned)holders[k].pid, holders[k].bytes};
       return status;)

/* There are no graphics on it. */
DEVICE(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvmlDevice_t device, unsigned *room, nvmlProcessInfo_t *to),
       (void)to; if (!room) return INVALID_ARGUMENT; *room = 0; return OK;)

/* MIG: instances that are described with their GPU. Each has one compute instance, of all of it. */
typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

DEVICE(nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned *now, unsigned *later),
       if (!now || !later) return INVALID_ARGUMENT;
       if (!gpus[i].mig_count) return NOT_SUPPORTED;
       *now = *later = 1; return OK;)
DEVICE(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t device, unsigned *to),
       if (!to) return INVALID_ARGUMENT;
       if (!gpus[i].mig_count) return NOT_SUPPORTED;
       *to = MIG_SLICES; return OK;)
DEVICE(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t device, unsigned index, nvmlDevice_t *to),
       if (!to) return INVALID_ARGUMENT;
       if (!gpus[i].mig_count) return NOT_SUPPORTED;
       for (int k = count; k < all; k++)
           if (gpus[k].parent == i && gpus[k].id == (int)index + 1) return *to = &gpus[k], OK;
       return NOT_FOUND;)
DEVICE(nvmlDeviceGetGpuInstanceId, (nvmlDevice_t device, unsigned *to),
       if (!to || gpus[i].parent < 0) return INVALID_ARGUMENT; *to = (unsigned)gpus[i].id; return OK;)
DEVICE(nvmlDeviceGetComputeInstanceId, (nvmlDevice_t device, unsigned *to),
       if (!to || gpus[i].parent < 0) return INVALID_ARGUMENT; *to = 0; return OK;)
DEVICE(nvmlDeviceGetAttributes_v2, (nvmlDevice_t device, nvmlDeviceAttributes_t *to),
       if (!to || gpus[i].parent < 0) return INVALID_ARGUMENT;
       *to = (nvmlDeviceAttributes_t){.multiprocessorCount = (unsigned)gpus[i].sm_count,
                                      .gpuInstanceSliceCount = (unsigned)gpus[i].slices,
                                      .computeInstanceSliceCount = (unsigned)gpus[i].slices,
                                      .memorySizeMB = gpus[i].memory_bytes >> 20};
       return OK;)

#define NOT_THERE(name, parameters, ...) DEVICE(name, parameters, __VA_ARGS__ return NOT_SUPPORTED;)
NOT_THERE(nvmlDeviceGetSerial, (nvmlDevice_t device, char *to, unsigned size), (void)to; (void)size;)
NOT_THERE(nvmlDeviceGetVbiosVersion, (nvmlDevice_t device, char *to, unsigned size), (void)to; (void)size;)
OLDER_NAMES
