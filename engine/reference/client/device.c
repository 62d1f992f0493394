/* Devices, and what their servers say of themselves. */
#define _GNU_SOURCE
#include "client.h"

#include <stdio.h>
#include <string.h>

#include "connections.h"
#include "current.h"
#include "rpc.h"
#include "start.h"

CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    TRY(start());
    return lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    TRY(start());
    *version = connections[0].cuda_version;
    for (int i = 1; i < connection_count; i++) /* what all of them have */
        if (connections[i].cuda_version < *version) *version = connections[i].cuda_version;
    return CUDA_SUCCESS;
}

static CUresult info_of(CUdevice device, const struct device_info **info) {
    int local;
    TRY(ready());
    struct connection *c = device_server(device, &local);
    if (!c) return CUDA_ERROR_INVALID_DEVICE;
    *info = &c->info[local];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    *count = device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    if (ordinal < 0 || ordinal >= device_count) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    const struct device_info *info;
    if (!name || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(info_of(device, &info));
    snprintf(name, (size_t)size, "%s", info->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    const struct device_info *info;
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    TRY(info_of(device, &info));
    memcpy(uuid->bytes, info->uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    const struct device_info *info;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    TRY(info_of(device, &info));
    *bytes = info->total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    const struct device_info *info;
    if (!value || attribute < 0 || attribute >= WIRE_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
    TRY(info_of(device, &info));
    *value = info->attribute[attribute];
    return info->attribute_status[attribute];
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device) {
    const struct device_info *info;
    if (!id || size <= 0) return CUDA_ERROR_INVALID_VALUE;
    TRY(info_of(device, &info));
    snprintf(id, (size_t)size, "%s", info->pci_bus_id);
    return CUDA_SUCCESS;
}

/* Devices of several servers of one machine may have the same address; the first one is meant. */
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    const struct device_info *info;
    if (!device || !id) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    for (int i = 0; i < device_count; i++)
        if (!info_of(i, &info) && !strcasecmp(info->pci_bus_id, id)) return *device = i, CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_DEVICE;
}

/* No direct path is offered between devices: of one server its driver copies, between servers the client. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    const struct device_info *info;
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    TRY(info_of(device, &info));
    TRY(info_of(peer, &info));
    *can = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to) {
    if (!value || attribute < 1 || attribute > 4) return CUDA_ERROR_INVALID_VALUE; /* CUdevice_P2PAttribute */
    TRY(cuDeviceCanAccessPeer(value, from, to));
    return from == to ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
    TRY(ready());
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    return object_of(handle, CONTEXT) && current() ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
    TRY(ready());
    return object_of(handle, CONTEXT) && current() ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult elasticAiServerInfo(char *json, size_t size);

/* A JSON array, one object per server, each with the "server" it is of. No more than `size` bytes with the zero. */
CUresult elasticAiServerInfo(char *json, size_t size) {
    if (!json || size < 3) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    size_t at = (size_t)snprintf(json, size, "[");
    char text[32768];
    for (int i = 0; i < connection_count; i++) {
        struct request r = {.op = OP_ENVIRONMENT};
        uint64_t got = 0;
        TRY(call_for_data(&connections[i], &r, text, sizeof text - 1, true, &got));
        text[got] = '\0';
        if (text[0] != '{') return CUDA_ERROR_UNKNOWN;
        int length = snprintf(json + at, size - at, "%s{\"server\": \"%s\", %s", i ? ", " : "", connections[i].name,
                              text + 1);
        if (length < 0 || (size_t)length >= size - at - 1) return CUDA_ERROR_INVALID_VALUE;
        at += (size_t)length;
    }
    memcpy(json + at, "]", 2);
    return CUDA_SUCCESS;
}
