/* What a client holds: contexts, streams, events, modules and functions by number, never the driver's own pointers; memory by address. */
#ifndef ELASTIC_AI_HANDLES_H
#define ELASTIC_AI_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "../../shared/cu.h"

enum handle_kind { NO_HANDLE = 0, CONTEXT, STREAM, EVENT, MODULE, FUNCTION };

#define LIMITS 3 /* CUlimit: those that take memory of the device: stack, printf's buffer, heap */

struct staging; /* staging.h */
struct layout; /* code.c: a function's parameters */

struct handle {
    enum handle_kind kind;
    void *real; /* the driver's */
    int device;
    uint64_t context; /* of all but contexts */
    uint64_t module; /* of a function */
    uint64_t bytes; /* accounted for: of a module; of a context, beside its own and its memory */
    uint64_t limit[LIMITS], local_bytes; /* of a context: what of them is accounted for */
    struct layout *layout;
    CUresult late; /* of a context: first error of a request that had no reply */
    bool primary;
    struct staging *staging;
    unsigned staging_events; /* of it */
};

struct memory {
    CUdeviceptr at;
    uint64_t bytes;
    uint64_t context;
    uint64_t module; /* 0, or that whose variable it is: accounted for with the module */
};

uint64_t handle_add(enum handle_kind kind, void *real, int device, uint64_t context);
struct handle *handle_get(uint64_t number, enum handle_kind kind); /* NULL: no such */
void handle_drop(uint64_t number);
/* Number of the client's context on `device`, 0 while it has none. There is one at most: two numbers of the primary one
 * would be two accounts of it, and more contexts would take memory without end. */
uint64_t context_find(int device);
uint64_t handles_count(enum handle_kind kind);
uint64_t staging_events(void);
/* Forgets a context and all that lived in it, and gives back what these were accounted for. */
void context_forget(uint64_t number, int child);
/* Number of the function of that module which the driver knows by this; 0: none. */
uint64_t function_find(uint64_t module, const void *real);
/* Forgets a module, its functions and variables, and gives back what it was accounted for. */
void module_forget(uint64_t number, int child);
void memory_add(CUdeviceptr at, uint64_t bytes, uint64_t context, uint64_t module);
/* The memory that holds all of [at, at + bytes); NULL: none does. */
struct memory *memory_find(CUdeviceptr at, uint64_t bytes);
void memory_drop(struct memory *memory);

#endif
