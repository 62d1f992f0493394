/* Parts of the emulated driver. */
#ifndef ELASTIC_AI_EMULATED_CUDA_H
#define ELASTIC_AI_EMULATED_CUDA_H

#include <pthread.h>

#include "../shared/cu.h"
#include "emulated.h"

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

extern struct gpu gpus[MAX_GPUS];
extern int visible[MAX_GPUS]; /* of the process's devices, which GPU of the node each is */
struct context *current(void); /* NULL: none, or destroyed */
struct context *context_of(CUcontext handle); /* NULL: it is none */
CUresult current_check(void); /* whether there is one, and none of its kernels failed */
void memory_forget(const struct context *context);
bool memory_show(void); /* device addresses become addresses of this process: kernels use them */
bool memory_lend(const struct context *context, void *at, size_t bytes); /* a module's variable is device memory */
void memory_return(void *at);
void memory_slow(int gpu, uint64_t began); /* a slow GPU takes longer for what began then */
CUresult memory_broken(int gpu); /* of what is described to end its work */
void limits_end(struct context *context);
void code_forget(const struct context *context);
CUresult stream_check(CUstream stream);
extern CUresult ended; /* of an error that leaves no context of this process usable, what every call then says */
CUresult stream_settle(CUstream stream); /* and waits for what comes before its next work */
struct context *stream_context(CUstream stream);

#endif
