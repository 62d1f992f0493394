/* Start and devices of the emulated libcuda.so.1. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "../shared/pinned.h"
#include "current.h"
#include "grid.h"

CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    pinned_allow(current_check);
    return seen_start();
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = EMULATED_CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    TRY(seen_status());
    *count = visible_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    const struct gpu *gpu;
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(ordinal, &gpu));
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    const struct gpu *gpu;
    if (!name || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    snprintf(name, (size_t)size, "%s", gpu->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    const struct gpu *gpu;
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    memcpy(uuid->bytes, gpu->uuid, 16);
    return CUDA_SUCCESS;
}

/* The first version knows no MIG: of an instance it says its GPU's. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    const struct gpu *gpu;
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    memcpy(uuid->bytes, gpu->parent < 0 ? gpu->uuid : gpus[gpu->parent].uuid, 16);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    const struct gpu *gpu;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    *bytes = gpu->memory_bytes - gpu->reserved_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device) {
    const struct gpu *gpu;
    if (!id || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    snprintf(id, (size_t)size, "%04X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    unsigned domain, bus, number;
    if (!device || !id || sscanf(id, "%x:%x:%x", &domain, &bus, &number) != 3) return CUDA_ERROR_INVALID_VALUE;
    TRY(seen_status());
    for (int i = 0; i < visible_count; i++) {
        const struct gpu *g = &gpus[visible[i]];
        if (g->pci_domain == domain && g->pci_bus == bus && g->pci_device == number) return *device = i, CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* CUdevice_attribute; those that an emulated device has nothing to say about are 0. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    const struct gpu *gpu;
    if (!value || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    TRY(gpu_of(device, &gpu));
    switch (attribute) {
#define SAY(name, number) case CU_DEVICE_ATTRIBUTE_##name: *value = number; break;
        SAY(MAX_THREADS_PER_BLOCK, MAX_BLOCK_THREADS)
        SAY(MAX_BLOCK_DIM_X, MAX_BLOCK_THREADS)
        SAY(MAX_BLOCK_DIM_Y, MAX_BLOCK_THREADS)
        SAY(MAX_BLOCK_DIM_Z, MAX_BLOCK_Z)
        SAY(MAX_GRID_DIM_X, 0x7fffffff)
        SAY(MAX_GRID_DIM_Y, MAX_GRID_YZ)
        SAY(MAX_GRID_DIM_Z, MAX_GRID_YZ)
        SAY(MAX_SHARED_MEMORY_PER_BLOCK, USUAL_SHARED_BYTES)
        SAY(WARP_SIZE, WARP)
        SAY(MAX_PITCH, 0x7fffffff)
        SAY(MULTIPROCESSOR_COUNT, gpu->sm_count)
        SAY(CONCURRENT_KERNELS, 1)
        SAY(PCI_BUS_ID, (int)gpu->pci_bus)
        SAY(PCI_DEVICE_ID, (int)gpu->pci_device)
        SAY(PCI_DOMAIN_ID, (int)gpu->pci_domain)
        SAY(MAX_THREADS_PER_MULTIPROCESSOR, MAX_SM_THREADS)
        SAY(UNIFIED_ADDRESSING, 1)
        SAY(COMPUTE_CAPABILITY_MAJOR, gpu->capability_major)
        SAY(COMPUTE_CAPABILITY_MINOR, gpu->capability_minor)
        SAY(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, MAX_SHARED_BYTES)
        SAY(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, MAX_SHARED_BYTES)
        SAY(COOPERATIVE_LAUNCH, 1)
        SAY(MAX_BLOCKS_PER_MULTIPROCESSOR, MAX_SM_BLOCKS)
#undef SAY
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}
