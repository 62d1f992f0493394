/* libnvidia-ml.so.1 of a lease's client: its devices, which are on other machines. What nobody tells this machine is
 * NOT_SUPPORTED, as NVML says it of GPUs that have it not; functions that are not here: others.c. */
#define _GNU_SOURCE
#include "../shared/nvml_both.h"
#include "lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct leased *nvmlDevice_t;

static struct leased devices[MAX_LEASED];
static int count;

static int begin(void) {
    count = lease_read(devices);
    if (count >= 0) return OK;
    count = 0;
    return DRIVER_NOT_LOADED;
}
BEGINS_BY(begin)

/* The device's position, or a negative error. */
static int index_of(nvmlDevice_t device) {
    if (!opened()) return -UNINITIALIZED;
    if (device < devices || device >= devices + count || (size_t)((char *)device - (char *)devices) % sizeof *devices)
        return -INVALID_ARGUMENT;
    return (int)(device - devices);
}

/* Of servers with several drivers the oldest: what that can do all can. */
static int older(const char *a, const char *b) {
    return strverscmp(a, b) < 0;
}

EXPORT int nvmlSystemGetDriverVersion(char *to, unsigned size);
int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    const char *oldest = "";
    for (int i = 0; i < count; i++) {
        if (!devices[i].driver[0]) return text(to, size, "");
        if (!i || older(devices[i].driver, oldest)) oldest = devices[i].driver;
    }
    return text(to, size, oldest);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (!version) return INVALID_ARGUMENT;
    if (!opened()) return UNINITIALIZED;
    int64_t oldest = count ? devices[0].cuda : UNTOLD;
    for (int i = 1; i < count; i++)
        if (devices[i].cuda < oldest) oldest = devices[i].cuda;
    if (oldest == UNTOLD) return NOT_SUPPORTED;
    *version = (int)oldest;
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
    *device = &devices[index];
    return OK;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (!opened()) return UNINITIALIZED;
    if (!uuid || !device) return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++)
        if (!strcasecmp(uuid, devices[i].uuid)) return *device = &devices[i], OK;
    return NOT_FOUND;
}

DEVICE(nvmlDeviceGetName, (nvmlDevice_t device, char *to, unsigned size), return text(to, size, devices[i].name);)
DEVICE(nvmlDeviceGetUUID, (nvmlDevice_t device, char *to, unsigned size), return text(to, size, devices[i].uuid);)
DEVICE(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned *to),
       if (!to) return INVALID_ARGUMENT; *to = (unsigned)i; return OK;)
DEVICE(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor),
       if (!major || !minor) return INVALID_ARGUMENT;
       if (devices[i].major == UNTOLD) return NOT_SUPPORTED;
       *major = devices[i].major; *minor = devices[i].minor; return OK;)

/* A MIG instance that is leased is a device as any other, not divided any further. */
DEVICE(nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t device, unsigned *to),
       if (!to) return INVALID_ARGUMENT; *to = 0; return OK;)

/* The lease's part is all that there is. What is in use of it is not known without its server's word: NO_DATA, for by
 * NOT_SUPPORTED nvitop takes it for a GPU that shares the host's memory, and shows that of this machine. */
DEVICE(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *to),
       if (!to) return INVALID_ARGUMENT;
       int64_t used = lease_use(i).used_bytes, all = devices[i].part_bytes;
       if (used == UNTOLD) return NO_DATA;
       if (used > all) used = all;
       *to = (nvmlMemory_t){(unsigned long long)all, (unsigned long long)(all - used), (unsigned long long)used};
       return OK;)
DEVICE(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *to),
       if (!to) return INVALID_ARGUMENT;
       if (to->version != NVML_VERSION(nvmlMemory_v2_t, 2)) return ARGUMENT_VERSION_MISMATCH;
       nvmlMemory_t found;
       int status = nvmlDeviceGetMemoryInfo(device, &found);
       if (!status) *to = (nvmlMemory_v2_t){to->version, found.total, 0, found.free, found.used};
       return status;)

DEVICE(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *to),
       if (!to) return INVALID_ARGUMENT;
       struct use use = lease_use(i);
       if (use.percent == UNTOLD || use.memory_percent == UNTOLD) return NOT_SUPPORTED;
       *to = (nvmlUtilization_t){(unsigned)use.percent, (unsigned)use.memory_percent}; return OK;)

/* This machine's processes are none of the server's, and the server's are not this user's to see. */
#define NO_PROCESSES(name) DEVICE(name, (nvmlDevice_t device, unsigned *room, void *to), \
    (void)to; (void)i; if (!room) return INVALID_ARGUMENT; *room = 0; return OK;)
#define OF_ALL_FORMS(kind) \
    NO_PROCESSES(nvmlDeviceGet##kind##RunningProcesses) NO_PROCESSES(nvmlDeviceGet##kind##RunningProcesses_v2) \
    NO_PROCESSES(nvmlDeviceGet##kind##RunningProcesses_v3)
OF_ALL_FORMS(Compute)
OF_ALL_FORMS(Graphics)
OF_ALL_FORMS(MPSCompute)

EXPORT elastic_lease_f elasticAiLeased;
int elasticAiLeased(unsigned index, struct elastic_lease *to, size_t size) {
    if (!opened() || !to || size != sizeof *to || index >= (unsigned)count) return -1;
    const char *lease = getenv("ELASTIC_AI_LEASE");
    snprintf(to->lease, sizeof to->lease, "%s", lease ? lease : "");
    to->device = devices[index];
    return 0;
}
OLDER_NAMES
