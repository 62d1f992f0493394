#define _GNU_SOURCE
#include "staging.h"

#include <stdlib.h>

#include "driver.h"
#include "session.h"

/* Of the current context, which `context` is. */
static CUresult staging_get(struct handle *context, unsigned slots, struct staging **out) {
    CUresult status = CUDA_SUCCESS;
    if (!context->staging) context->staging = calloc(1, sizeof *context->staging);
    struct staging *s = context->staging;
    if (!s) return CUDA_ERROR_OPERATING_SYSTEM;
    for (unsigned i = context->staging_events; i < slots && !status; i++) {
        status = driver.cuMemAllocHost_v2(&s->host[i], CHUNK);
        if (!status) status = driver.cuEventCreate(&s->done[i], CU_EVENT_DISABLE_TIMING);
        if (!status) context->staging_events++;
    }
    if (status) staging_free(context);
    *out = context->staging;
    return status;
}

void staging_free(struct handle *context) {
    struct staging *s = context->staging;
    if (!s) return;
    for (int i = 0; i < MOST_SLOTS; i++) {
        if (s->busy[i]) driver.cuEventSynchronize(s->done[i]);
        if (s->done[i]) driver.cuEventDestroy_v2(s->done[i]);
        if (s->host[i]) driver.cuMemFreeHost(s->host[i]);
    }
    free(s);
    context->staging = NULL;
    context->staging_events = 0;
}

CUresult slot_free(struct staging *s, unsigned slot) {
    if (!s->busy[slot]) return CUDA_SUCCESS;
    s->busy[slot] = false;
    return driver.cuEventSynchronize(s->done[slot]);
}

CUresult copy_begin(const struct request *r, unsigned slots, CUstream *stream, struct staging **s) {
    struct memory *memory = memory_find(r->arg[0], r->arg[1]);
    struct handle *on = r->arg[2] ? handle_get(r->arg[2], STREAM) : NULL;
    if (!memory) return CUDA_ERROR_INVALID_VALUE;
    if (r->arg[2] && !on) return CUDA_ERROR_INVALID_HANDLE;
    *stream = on ? on->real : NULL;
    uint64_t context = on ? on->context : r->context ? r->context : memory->context;
    CUresult status = use_context(context);
    return status ? status : staging_get(handle_get(context, CONTEXT), slots, s);
}

void copy_out_failed(const struct request *r, CUresult status) {
    if (!(r->flags & FLAG_WAIT)) keep_late(r, status);
    struct request failed = *r;
    failed.flags |= FLAG_REPLY;
    answer(&failed, status, 0, 0, NULL, 0);
}
