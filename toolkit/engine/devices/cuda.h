/* Parts of the emulated driver. */
#ifndef ELASTIC_AI_EMULATED_CUDA_H
#define ELASTIC_AI_EMULATED_CUDA_H

#include <pthread.h>

#include "../shared/cu.h"
#include "emulated.h"

#define MAX_PEERS 8 /* CUDA C++ Programming Guide, "Peer-to-Peer Memory Access": eight connections of a device */

enum kind { CONTEXT = 0x454d4301, STREAM, EVENT };

struct context {
    enum kind kind;
    int gpu; /* of the node */
    CUdevice device; /* of this process */
    bool alive;
    int streams, events; /* of it, for the accounts of objects */
    unsigned life; /* how often it has begun: a primary context that has ended begins anew */
    struct { const struct context *context; unsigned life; } peers[MAX_PEERS]; /* to whose memory it has access */
    int peer_count;
};

extern struct gpu gpus[MAX_GPUS];
extern int visible[MAX_GPUS]; /* of the process's devices, which GPU of the node each is */
struct context *current(void); /* NULL: none, or destroyed */
void memory_forget(const struct context *context);
CUresult stream_check(CUstream stream);

#endif
