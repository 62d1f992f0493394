/* Device memory, and copies between it and the program's. */
#define _GNU_SOURCE
#include "client.h"

#include <stdlib.h>

#include "connections.h"
#include "current.h"
#include "joining.h"
#include "pointers.h"
#include "rpc.h"
#include "say.h"
#include "start.h"
#include "stream.h"

#define CROSS_CHUNK ((size_t)4 << 20)
#define CROSS_SLOTS 4
#define ADDRESS_TRIES 16

static CUresult give_back(struct connection *c, CUdeviceptr pointer) {
    struct request r = {.op = OP_FREE, .arg = {pointer}};
    return call(c, &r, NULL, NULL);
}

/* Servers know nothing of each other, so one may give an address that another one has given. It is then asked again, and
 * holds the first meanwhile. */
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    CUdeviceptr aside[ADDRESS_TRIES];
    unsigned tries = 0;
    CUresult status;
    if (!pointer) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct object *o = current();
    if (!o) return CUDA_ERROR_INVALID_CONTEXT;
    do {
        struct request r = {.op = OP_ALLOC, .context = o->number, .arg = {bytes}};
        struct reply reply;
        status = call(o->c, &r, NULL, &reply);
        if (status) break;
        status = pointer_add(reply.value[0], bytes, o, NULL);
        if (!status) *pointer = reply.value[0];
        else aside[tries++] = reply.value[0];
    } while (status == ADDRESS_TAKEN && tries < ADDRESS_TRIES);
    if (status == ADDRESS_TAKEN) {
        say("%s gives no memory at an address that no other server has given", o->c->name);
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    while (tries) (void)give_back(o->c, aside[--tries]);
    return status;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    TRY(ready());
    if (!pointer) return CUDA_SUCCESS;
    struct allocation a;
    bool known = pointer_find(pointer, &a) && a.at == pointer;
    if (known) pointer_drop(pointer); /* before another thread is given the same */
    CUresult status = give_back(known ? a.context->c : pointer_server(pointer), pointer);
    if (status && known && !lost) (void)pointer_add(a.at, a.bytes, a.context, a.module);
    return status;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    if (!free_bytes || !total_bytes) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct object *o = current();
    if (!o) return CUDA_ERROR_INVALID_CONTEXT;
    struct request r = {.op = OP_MEM_INFO, .context = o->number};
    struct reply reply;
    TRY(call(o->c, &r, NULL, &reply));
    *free_bytes = reply.value[0];
    *total_bytes = reply.value[1];
    return CUDA_SUCCESS;
}

/* The server of `pointer`, the stream's number there, and the context of the request: that of the stream, else the
 * current one if it lives on that server, else 0, which means that of the memory. */
static CUresult place(CUdeviceptr pointer, CUstream stream, struct connection **c, struct request *r, int stream_arg) {
    struct object *context = NULL;
    uint64_t number = 0;
    TRY(ready());
    if (!current() && !stream) return CUDA_ERROR_INVALID_CONTEXT;
    TRY(stream_find(stream, &context, &number));
    *c = pointer_server(pointer);
    if (!*c) return CUDA_ERROR_INVALID_VALUE;
    if (number && context->c != *c) return CUDA_ERROR_INVALID_HANDLE;
    r->context = context->c == *c ? context->number : 0;
    r->arg[stream_arg] = number;
    return CUDA_SUCCESS;
}

static bool striped(struct connection *c, size_t bytes) {
    return bytes >= STRIPED_BYTES && lanes_ready(c);
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes, CUstream stream, bool wait) {
    struct connection *c;
    struct request r = {.op = OP_HTOD, .flags = wait ? FLAG_WAIT : 0, .arg = {to, bytes}};
    TRY(place(to, stream, &c, &r, 2));
    if (!bytes) return CUDA_SUCCESS;
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    if (striped(c, bytes)) r.flags |= FLAG_STRIPED;
    else r.bytes = bytes;
    return wait ? call(c, &r, from, NULL) : post(c, &r, from);
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    struct connection *c;
    struct request r = {.op = OP_DTOH, .flags = wait ? FLAG_WAIT : 0, .arg = {from, bytes}};
    TRY(place(from, stream, &c, &r, 2));
    if (!bytes) return CUDA_SUCCESS;
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    if (striped(c, bytes)) r.flags |= FLAG_STRIPED;
    return wait ? call_for_data(c, &r, to, bytes, false, NULL) : post_for_data(c, &r, to, bytes);
}

/* From one server to another, through this machine: no server can reach another one's port. Chunks come and go at the
 * same time. It is complete on return, which an asynchronous copy may be. */
static CUresult across(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    struct connection *source = pointer_server(from), *target = pointer_server(to);
    struct pending waits[CROSS_SLOTS];
    char *buffer = malloc(CROSS_SLOTS * CROSS_CHUNK);
    size_t asked = 0, done = 0;
    unsigned slot_in = 0, slot_out = 0, ahead = 0;
    CUresult status = buffer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    while (!status && done < bytes) {
        while (!status && asked < bytes && ahead < CROSS_SLOTS) {
            size_t step = bytes - asked < CROSS_CHUNK ? bytes - asked : CROSS_CHUNK;
            struct request r = {.op = OP_DTOH, .flags = FLAG_WAIT, .arg = {from + asked, step}};
            unsigned slot = slot_in % CROSS_SLOTS;
            waits[slot] = (struct pending){.to = buffer + slot * CROSS_CHUNK, .room = step};
            status = ask(source, &r, NULL, &waits[slot]);
            if (status) break;
            slot_in++, ahead++;
            asked += step;
        }
        if (status) break;
        unsigned slot = slot_out++ % CROSS_SLOTS;
        size_t step = bytes - done < CROSS_CHUNK ? bytes - done : CROSS_CHUNK;
        status = await(source, &waits[slot]);
        ahead--;
        if (status) break;
        bool last = done + step == bytes;
        struct request r = {.op = OP_HTOD, .flags = last ? FLAG_WAIT : 0, .bytes = step,
                            .arg = {to + done, step}};
        const void *data = buffer + slot * CROSS_CHUNK;
        status = last ? call(target, &r, data, NULL) : post(target, &r, data);
        done += step;
    }
    while (ahead) { /* replies that nobody waits for would find their places gone */
        CUresult other = await(source, &waits[slot_out++ % CROSS_SLOTS]);
        if (!status) status = other;
        ahead--;
    }
    free(buffer);
    return status;
}

static CUresult copy_on(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    struct connection *c, *other = pointer_server(from);
    struct request r = {.op = OP_DTOD, .flags = wait ? FLAG_WAIT : 0,
                        .arg = {to, from, bytes}};
    if (!other) return CUDA_ERROR_INVALID_VALUE;
    if (other != pointer_server(to)) {
        TRY(ready());
        TRY(stream ? cuStreamSynchronize(stream) : CUDA_SUCCESS);
        return pointer_server(to) ? across(to, from, bytes) : CUDA_ERROR_INVALID_VALUE;
    }
    TRY(place(to, stream, &c, &r, 3));
    if (!bytes) return CUDA_SUCCESS;
    return wait ? call(c, &r, NULL, NULL) : post(c, &r, NULL);
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                          CUstream stream, bool wait) {
    struct object *a = object_of(to_context, CONTEXT), *b = object_of(from_context, CONTEXT);
    TRY(ready());
    if (!a || !b) return CUDA_ERROR_INVALID_CONTEXT;
    if (a->c != pointer_server(to) || b->c != pointer_server(from)) return CUDA_ERROR_INVALID_VALUE;
    if (a->c != b->c) return copy_on(to, from, bytes, stream, wait);
    struct connection *c;
    struct request r = {.op = OP_PEER, .flags = wait ? FLAG_WAIT : 0,
                        .arg = {to, a->number, from, b->number, bytes}};
    TRY(place(to, stream, &c, &r, 5));
    if (!bytes) return CUDA_SUCCESS;
    return wait ? call(c, &r, NULL, NULL) : post(c, &r, NULL);
}

static CUresult set(CUdeviceptr to, unsigned value, size_t count, unsigned width, CUstream stream, bool wait) {
    struct connection *c;
    struct request r = {.op = OP_MEMSET, .flags = wait ? FLAG_WAIT : 0,
                        .arg = {to, value, count, width}};
    TRY(place(to, stream, &c, &r, 4));
    if (!count) return CUDA_SUCCESS;
    return wait ? call(c, &r, NULL, NULL) : post(c, &r, NULL);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return copy_in(to, from, bytes, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    return copy_out(to, from, bytes, NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_on(to, from, bytes, NULL, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return copy_in(to, from, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_out(to, from, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_on(to, from, bytes, stream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
    return copy_peer(to, to_context, from, from_context, bytes, NULL, true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream) {
    return copy_peer(to, to_context, from, from_context, bytes, stream, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return set(to, value, count, 1, NULL, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    return set(to, value, count, 4, NULL, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    return set(to, value, count, 2, NULL, true);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    return set(to, value, count, 2, stream, false);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return set(to, value, count, 1, stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return set(to, value, count, 4, stream, false);
}
