/* Contexts, and which is current in a thread. */
#ifndef ELASTIC_AI_DEVICE_CURRENT_H
#define ELASTIC_AI_DEVICE_CURRENT_H

#include <pthread.h>

#include "../shared/cu.h"
#include "seen.h"

#define LIMITS 3 /* CUlimit: stack, printf's buffer, heap */
#define MAX_PEERS 8 /* CUDA C++ Programming Guide, "Peer-to-Peer Memory Access": eight connections of a device */

enum kind { CONTEXT = 0x454d4301, STREAM, EVENT, MODULE, LIBRARY, FUNCTION, KERNEL };

struct context {
    enum kind kind;
    int gpu; /* of the node */
    CUdevice device; /* of this process */
    volatile bool alive;
    volatile CUresult fault; /* of a kernel: what all calls return from then on */
    int streams, events; /* of it, for the accounts of objects */
    unsigned life; /* how often it has begun: a primary context that has ended begins anew */
    struct { const struct context *context; unsigned life; } peers[MAX_PEERS]; /* to whose memory it has access */
    int peer_count;
    uint64_t limits[LIMITS], limit_bytes; /* those that were raised, 0 for the others; what that took */
};

struct context *current(void); /* NULL: none, or destroyed */
CUresult current_check(void); /* whether there is one, and none of its kernels failed */
struct context *context_of(CUcontext handle); /* NULL: it is none */
struct context *current_top(void); /* as the program has set it: NULL, or one that may have been destroyed */
CUresult current_push(struct context *context);
struct context *current_pop(void); /* NULL: there was none */

#endif
