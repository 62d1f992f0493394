/* What a client holds: contexts, streams and events by number, never the driver's own pointers; memory by address. */
#ifndef ELASTIC_AI_HANDLES_H
#define ELASTIC_AI_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "../shared/cu.h"

enum handle_kind { NO_HANDLE = 0, CONTEXT, STREAM, EVENT };

struct staging; /* copy.c */

struct handle {
    enum handle_kind kind;
    void *real; /* the driver's */
    int device;
    uint64_t context; /* of a stream or event */
    bool primary;
    struct staging *staging;
};

struct memory {
    CUdeviceptr at;
    uint64_t bytes;
    uint64_t context;
};

uint64_t handle_add(enum handle_kind kind, void *real, int device, uint64_t context);
struct handle *handle_get(uint64_t number, enum handle_kind kind); /* NULL: no such */
void handle_drop(uint64_t number);
/* Number of the primary context of `device`, 0 while the client has none: two numbers would be two accounts of it. */
uint64_t primary_find(int device);
/* Forgets all that lived in a context, and gives back what its memory was accounted for. */
void context_forget(uint64_t number, int child);
void memory_add(CUdeviceptr at, uint64_t bytes, uint64_t context);
/* The memory that holds all of [at, at + bytes); NULL: none does. */
struct memory *memory_find(CUdeviceptr at, uint64_t bytes);
void memory_drop(struct memory *memory);

#endif
