/* NVLinks and fabric of emulated devices in NVML, as the node's description says them: to NVSwitches, or so many to each
 * other GPU of the peer group, in their order. A device that is described without NVLinks has none. */
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

enum { LINKS = 18, GPU = 0, SWITCH = 2, UNSIGNED_INT = 1, NVLINK_GET_SPEED = 164, VERSION_MISMATCH = 25 };
#define FABRIC_V2 (unsigned)(sizeof(nvmlGpuFabricInfo_v2_t) | 2 << 24)

/* Whether both GPUs are described with so many links to each other. */
static bool joined(int one, int other) {
    return one != other && gpus[other].uuid_text[0] && gpus[other].parent < 0 && gpus[one].parent < 0 &&
           gpus[one].peer_group == gpus[other].peer_group && gpus[one].health.nvlinks_each > 0 &&
           gpus[one].health.nvlinks_each == gpus[other].health.nvlinks_each;
}

/* The GPU at the other end of a link, and the link's number there; -1: there is no such link between GPUs. */
static int other_end(int gpu, unsigned link, unsigned *back) {
    int64_t each = gpus[gpu].health.nvlinks_each, place = 0, mine = 0;
    for (int other = 0; other < MAX_GPUS && each > 0; other++) {
        if (!joined(gpu, other) || place++ != link / each) continue;
        for (int k = 0; k < gpu; k++) mine += joined(other, k);
        *back = (unsigned)(mine * each + link % each);
        return other;
    }
    return -1;
}

static bool works(int gpu, unsigned link) {
    return gpus[gpu].health.nvlinks_up == UNSAID || link < gpus[gpu].health.nvlinks_up;
}

/* 0 and up or down, or why there is no such link. A link between GPUs is up where both of its ends are. */
static int link_state(int gpu, unsigned link, unsigned *up) {
    const struct health *h = &gpus[gpu].health;
    unsigned back;
    if (!up || link >= LINKS) return INVALID_ARGUMENT;
    int other = other_end(gpu, link, &back);
    if (other < 0 && (h->nvlinks == UNSAID || link >= h->nvlinks)) return NOT_SUPPORTED;
    *up = works(gpu, link) && (other < 0 || works(other, back));
    return OK;
}

DEVICE(nvmlDeviceGetNvLinkState, (nvmlDevice_t device, unsigned link, unsigned *to), return link_state(i, link, to);)
DEVICE(nvmlDeviceGetNvLinkRemoteDeviceType, (nvmlDevice_t device, unsigned link, int *to),
       unsigned up, back;
       int status = to ? link_state(i, link, &up) : INVALID_ARGUMENT;
       if (!status) *to = other_end(i, link, &back) < 0 ? SWITCH : GPU;
       return status;)
DEVICE(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t device, unsigned link, nvmlPciInfo_t *to),
       unsigned back;
       int other = link < LINKS ? other_end(i, link, &back) : -1;
       return other < 0 ? NOT_SUPPORTED : pci_info(other, to);)

DEVICE(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int wanted, nvmlFieldValue_t *to),
       if (!to || wanted < 1) return INVALID_ARGUMENT;
       for (int k = 0; k < wanted; k++) {
           unsigned up;
           const struct health *h = &gpus[i].health;
           bool told = to[k].fieldId == NVLINK_GET_SPEED && h->nvlink_mb_s != UNSAID && !link_state(i, to[k].scopeId, &up);
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
