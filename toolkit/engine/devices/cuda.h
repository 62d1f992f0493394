/* Parts of the emulated driver. */
#ifndef ELASTIC_AI_EMULATED_CUDA_H
#define ELASTIC_AI_EMULATED_CUDA_H

#include <pthread.h>

#include "../shared/cu.h"
#include "emulated.h"

enum kind { CONTEXT = 0x454d4301, STREAM, EVENT };

struct context {
    enum kind kind;
    int gpu; /* of the node */
    CUdevice device; /* of this process */
    bool alive;
    int streams, events; /* of it, for the accounts of objects */
};

extern struct gpu gpus[MAX_GPUS];
struct context *current(void); /* NULL: none, or destroyed */
void memory_forget(const struct context *context);
CUresult stream_check(CUstream stream);

#endif
