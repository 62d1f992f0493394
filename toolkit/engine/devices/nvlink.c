/* NVLinks and fabric of emulated devices in NVML, as the node's description says them; all links go to NVSwitches. A
 * device that is described without NVLinks has none. */
#include "nvml.h"

#include <string.h>

typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; } nvmlValue_t;
typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType, nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
typedef struct { unsigned char clusterUuid[16]; int status; unsigned cliqueId; unsigned char state; } nvmlGpuFabricInfo_t;
typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    int status;
    unsigned cliqueId;
    unsigned char state;
    unsigned healthMask;
} nvmlGpuFabricInfo_v2_t;

enum { LINKS = 18, SWITCH = 2, UNSIGNED_INT = 1, NVLINK_GET_SPEED = 164, VERSION_MISMATCH = 25 };
#define FABRIC_V2 (unsigned)(sizeof(nvmlGpuFabricInfo_v2_t) | 2 << 24)

/* 0 and up or down, or why there is no such link. */
static int link_state(const struct health *h, unsigned link, unsigned *up) {
    if (!up || link >= LINKS) return INVALID_ARGUMENT;
    if (h->nvlinks == UNSAID || link >= h->nvlinks) return NOT_SUPPORTED;
    *up = h->nvlinks_up == UNSAID || link < h->nvlinks_up;
    return OK;
}

DEVICE(nvmlDeviceGetNvLinkState, (nvmlDevice_t device, unsigned link, unsigned *to),
       return link_state(&gpus[i].health, link, to);)
DEVICE(nvmlDeviceGetNvLinkRemoteDeviceType, (nvmlDevice_t device, unsigned link, int *to),
       unsigned up;
       int status = to ? link_state(&gpus[i].health, link, &up) : INVALID_ARGUMENT;
       if (!status) *to = SWITCH;
       return status;)
DEVICE(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t device, unsigned link, void *to),
       (void)link; (void)to; return NOT_SUPPORTED;)

DEVICE(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int wanted, nvmlFieldValue_t *to),
       if (!to || wanted < 1) return INVALID_ARGUMENT;
       for (int k = 0; k < wanted; k++) {
           unsigned up;
           const struct health *h = &gpus[i].health;
           bool told = to[k].fieldId == NVLINK_GET_SPEED && h->nvlink_mb_s != UNSAID && !link_state(h, to[k].scopeId, &up);
           to[k].timestamp = to[k].latencyUsec = 0;
           to[k].valueType = UNSIGNED_INT;
           to[k].nvmlReturn = told ? OK : NOT_SUPPORTED;
           to[k].value = (nvmlValue_t){.ull = 0};
           if (told && up) to[k].value.u = (unsigned)h->nvlink_mb_s;
       }
       return OK;)

DEVICE(nvmlDeviceGetGpuFabricInfoV, (nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *to),
       const struct health *h = &gpus[i].health;
       if (!to) return INVALID_ARGUMENT;
       if (to->version != FABRIC_V2) return VERSION_MISMATCH;
       memset(to, 0, sizeof *to);
       to->version = FABRIC_V2;
       if (h->fabric_state == UNSAID) return NOT_SUPPORTED;
       to->state = (unsigned char)h->fabric_state;
       to->status = h->fabric_status == UNSAID ? OK : (int)h->fabric_status;
       to->cliqueId = h->fabric_clique == UNSAID ? 0 : (unsigned)h->fabric_clique;
       to->healthMask = h->fabric_health == UNSAID ? 0 : (unsigned)h->fabric_health;
       if (to->cliqueId) memset(to->clusterUuid, 0xee, sizeof to->clusterUuid);
       return OK;)
DEVICE(nvmlDeviceGetGpuFabricInfo, (nvmlDevice_t device, nvmlGpuFabricInfo_t *to),
       nvmlGpuFabricInfo_v2_t found = {.version = FABRIC_V2};
       if (!to) return INVALID_ARGUMENT;
       (void)i;
       int status = nvmlDeviceGetGpuFabricInfoV(device, &found);
       memcpy(to, found.clusterUuid, sizeof *to);
       return status;)
