#define _GNU_SOURCE
#include "current.h"

#define STACK 64

static _Thread_local struct context *stack[STACK];
static _Thread_local int depth;

struct context *current_top(void) {
    return depth ? stack[depth - 1] : NULL;
}

struct context *current(void) {
    struct context *c = current_top();
    return c && c->alive ? c : NULL;
}

CUresult current_check(void) {
    const struct context *c = current();
    return ended ? ended : c ? c->fault : CUDA_ERROR_INVALID_CONTEXT;
}

struct context *context_of(CUcontext handle) {
    struct context *c = (struct context *)handle;
    return c && c->kind == CONTEXT ? c : NULL;
}

CUresult current_push(struct context *context) {
    if (depth == STACK) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

struct context *current_pop(void) {
    return depth ? stack[--depth] : NULL;
}
