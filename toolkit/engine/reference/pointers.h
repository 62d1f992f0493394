/* Which device memory the program has: whose a pointer is, without asking. */
#ifndef ELASTIC_AI_POINTERS_H
#define ELASTIC_AI_POINTERS_H

#include "client.h"

struct allocation {
    CUdeviceptr at;
    size_t bytes;
    struct object *context;
    const void *module; /* NULL, or that whose variable it is */
    uint64_t id;
};

CUresult pointer_add(CUdeviceptr at, size_t bytes, struct object *context, const void *module);
void pointer_drop(CUdeviceptr at);
/* What was of that context, or of that module. */
void pointers_forget(const struct object *context, const void *module);
bool pointer_find(CUdeviceptr pointer, struct allocation *found);

#endif
