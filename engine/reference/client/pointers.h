/* Which device memory the program has: whose a pointer is, without asking. */
#ifndef ELASTIC_AI_POINTERS_H
#define ELASTIC_AI_POINTERS_H

#include "client.h"

#define ADDRESS_TAKEN CUDA_ERROR_ALREADY_MAPPED

struct allocation {
    CUdeviceptr at;
    size_t bytes;
    struct object *context;
    const void *module; /* NULL, or that whose variable it is */
    uint64_t id;
};

/* ADDRESS_TAKEN: another server has given the program memory there. */
CUresult pointer_add(CUdeviceptr at, size_t bytes, struct object *context, const void *module);
void pointer_drop(CUdeviceptr at);
/* What was of that context, or of that module. */
void pointers_forget(const struct object *context, const void *module);
/* Whose memory it is; that of the current context where the program has none there, NULL without one. */
struct connection *pointer_server(CUdeviceptr pointer);
bool pointer_find(CUdeviceptr pointer, struct allocation *found);

#endif
