#define _GNU_SOURCE
#include "current.h"

#include <stdlib.h>

#define STACK 64

static _Thread_local struct object *stack[STACK];
static _Thread_local int depth;

struct object *current(void) {
    return depth ? stack[depth - 1] : NULL;
}

struct object *object_of(void *handle, enum kind kind) {
    struct object *o = handle;
    return plausible(o) && o->kind == kind ? o : NULL;
}

/* CUDA's documentation says of these that the process must be ended to go on: what a kernel did to its context. */
CUresult context_says(struct object *context, CUresult status) {
    bool stays = status == CUDA_ERROR_ILLEGAL_ADDRESS || status == CUDA_ERROR_LAUNCH_TIMEOUT ||
                 status == CUDA_ERROR_ASSERT ||
                 (status >= CUDA_ERROR_HARDWARE_STACK_ERROR && status <= CUDA_ERROR_LAUNCH_FAILED);
    if (stays) context->fault = status;
    return status;
}

struct object *object_make(enum kind kind, struct connection *c, uint64_t number, struct object *context) {
    struct object *o = calloc(1, sizeof *o);
    if (o) *o = (struct object){kind, c, number, context ? context->device : -1, context, 0, 0};
    return o;
}

CUresult current_push(struct object *context) {
    if (depth == STACK) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

struct object *current_pop(void) {
    return depth ? stack[--depth] : NULL;
}
