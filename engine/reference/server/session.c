/* One connection's state; no other room is above this one but child, copy and ops. */
#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "handles.h"

#define BUFFER ((size_t)256 << 10)
#define GRACE_S 1 /* for what a client that has gone has asked for */

struct session session;
static char *buffer; /* received, not yet taken: [from, until) */
static size_t from, until;

void session_end(int status) {
    _exit(status);
}

void session_linger(void) {
    static const struct timespec grace = {GRACE_S, 0};
    nanosleep(&grace, NULL);
    session_end(0);
}

void session_open(int fd, int child) {
    session.link.fd = fd;
    session.child = child;
    buffer = malloc(BUFFER);
    if (!buffer) session_end(1);
}

static void fill(void *to, size_t least, size_t most, size_t *got) {
    if (link_read(&session.link, to, least, most, got)) session_end(errno == 0 && *got == 0 ? 0 : 1);
}

void receive(void *to, size_t bytes) {
    size_t have = until - from, step = have < bytes ? have : bytes, got;
    memcpy(to, buffer + from, step);
    from += step;
    if (step == bytes) return;
    bytes -= step;
    to = (char *)to + step;
    if (bytes >= BUFFER / 4) {
        fill(to, bytes, bytes, &got);
        return;
    }
    fill(buffer, bytes, BUFFER, &got);
    memcpy(to, buffer, bytes);
    from = bytes;
    until = got;
}

bool received_more(void) {
    return from != until;
}

void discard(uint64_t bytes) {
    static char nowhere[65536];
    while (bytes) {
        size_t step = bytes < sizeof nowhere ? (size_t)bytes : sizeof nowhere;
        receive(nowhere, step);
        bytes -= step;
    }
}

void answer(const struct request *r, CUresult status, uint64_t v0, uint64_t v1, const void *body, uint64_t bytes) {
    if (!(r->flags & FLAG_REPLY)) {
        if (status && status != CUDA_ERROR_NOT_READY) keep_late(r, status);
        return;
    }
    struct reply reply = {r->seq, status, bytes, {v0, v1}};
    if (link_write_both(&session.link, &reply, sizeof reply, body, bytes)) session_end(1);
}

void keep_late(const struct request *r, CUresult status) {
    struct handle *context = handle_get(r->context ? r->context : session.current, CONTEXT);
    CUresult *late = context ? &context->late : &session.late;
    if (!*late) *late = status;
}

CUresult with_late(CUresult status) {
    struct handle *context = handle_get(session.current, CONTEXT);
    if (status) return status;
    CUresult *late = context && context->late ? &context->late : &session.late;
    status = *late;
    *late = CUDA_SUCCESS;
    return status;
}

CUresult use_context(uint64_t number) {
    struct handle *context = handle_get(number, CONTEXT);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (session.current == number) return CUDA_SUCCESS;
    CUresult status = driver.cuCtxSetCurrent(context->real);
    if (!status) session.current = number;
    return status;
}
