/* Peer access between emulated devices. Which reach each other directly the description says (`peer_group`); a copy
 * between two devices is the same copy of host memory either way, so this changes what CUDA says and not how fast it is. */
#define _GNU_SOURCE
#include "current.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult look(CUdevice device, CUdevice peer, bool *reaches) {
    int count;
    TRY(cuDeviceGetCount(&count));
    if (device < 0 || device >= count || peer < 0 || peer >= count) return CUDA_ERROR_INVALID_DEVICE;
    const struct gpu *a = &gpus[visible[device]], *b = &gpus[visible[peer]];
    /* NVIDIA Multi-Instance GPU User Guide: no peer to peer between MIG instances. */
    *reaches = device != peer && a->parent < 0 && b->parent < 0 && a->peer_group == b->peer_group;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    bool reaches;
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    TRY(look(device, peer, &reaches));
    *can = reaches;
    return CUDA_SUCCESS;
}

/* CUdevice_P2PAttribute: performance rank, access, native atomics, access to arrays. There are no kernels for the latter. */
CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to) {
    bool reaches;
    if (!value || attribute < 1 || attribute > 4) return CUDA_ERROR_INVALID_VALUE;
    TRY(look(from, to, &reaches));
    if (from == to) return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == 2 && reaches;
    return CUDA_SUCCESS;
}

/* Where the context stands in the list of those that `c` has access to, the end of the list if it does not. */
static int place(const struct context *c, const struct context *peer) {
    int i = 0;
    while (i < c->peer_count && (c->peers[i].context != peer || c->peers[i].life != peer->life)) i++;
    return i;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
    struct context *c = current(), *peer = (struct context *)handle;
    CUresult status = CUDA_SUCCESS;
    bool reaches;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!c || !peer || peer->kind != CONTEXT || !peer->alive || peer == c) return CUDA_ERROR_INVALID_CONTEXT;
    TRY(look(c->device, peer->device, &reaches));
    if (!reaches) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    if (place(c, peer) < c->peer_count) status = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    else if (c->peer_count == MAX_PEERS) status = CUDA_ERROR_TOO_MANY_PEERS;
    else c->peers[c->peer_count].context = peer, c->peers[c->peer_count++].life = peer->life;
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
    struct context *c = current(), *peer = (struct context *)handle;
    if (!c || !peer || peer->kind != CONTEXT || !peer->alive) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    int i = place(c, peer);
    bool found = i < c->peer_count;
    if (found) c->peers[i] = c->peers[--c->peer_count];
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
