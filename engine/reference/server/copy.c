/* Copies between the network and a device, in chunks through pinned memory: while the device takes one chunk, the next
 * arrives (and the other way round). */
#define _GNU_SOURCE
#include "copy.h"

#include "driver.h"
#include "session.h"
#include "staging.h"
#include "striped.h"

void copy_in(const struct request *r) {
    if (r->flags & FLAG_STRIPED && r->arg[1] && !r->bytes && session.lanes.count) {
        striped_in(r);
        return;
    }
    CUstream stream = NULL;
    struct staging *s = NULL;
    CUresult status = r->bytes == r->arg[1] ? copy_begin(r, SLOTS, &stream, &s) : CUDA_ERROR_INVALID_VALUE;
    uint64_t at = 0;
    while (at < r->bytes && !status) {
        unsigned slot = s->next++ % SLOTS;
        size_t step = r->bytes - at < CHUNK ? (size_t)(r->bytes - at) : CHUNK;
        status = slot_free(s, slot);
        if (status) break;
        receive(s->host[slot], step);
        status = driver.cuMemcpyHtoDAsync_v2(r->arg[0] + at, s->host[slot], step, stream);
        if (!status) status = driver.cuEventRecord(s->done[slot], stream);
        s->busy[slot] = true;
        at += step;
    }
    discard(r->bytes - at); /* of a copy that failed */
    if (!status && r->flags & FLAG_WAIT) status = with_late(driver.cuStreamSynchronize(stream));
    answer(r, status, 0, 0, NULL, 0);
}

void copy_out(const struct request *r) {
    if (r->flags & FLAG_STRIPED && r->arg[1] && session.lanes.count) {
        striped_out(r);
        return;
    }
    CUstream stream = NULL;
    struct staging *s = NULL;
    uint64_t bytes = r->arg[1], asked = 0, sent = 0;
    CUresult status = copy_begin(r, SLOTS, &stream, &s);
    if (!status && bytes == 0) {
        answer(r, status, 0, 0, NULL, 0);
        return;
    }
    unsigned first = s ? s->next : 0, ahead = 0;
    while (!status && sent < bytes) {
        while (!status && asked < bytes && ahead < SLOTS) {
            unsigned slot = s->next % SLOTS;
            size_t step = bytes - asked < CHUNK ? (size_t)(bytes - asked) : CHUNK;
            status = slot_free(s, slot);
            if (!status) status = driver.cuMemcpyDtoHAsync_v2(s->host[slot], r->arg[0] + asked, step, stream);
            if (!status) status = driver.cuEventRecord(s->done[slot], stream);
            s->busy[slot] = true;
            s->next++;
            asked += step;
            ahead++;
            if (sent == 0 && ahead == 1) break; /* the first chunk leaves as early as it can */
        }
        unsigned slot = first++ % SLOTS;
        size_t step = bytes - sent < CHUNK ? (size_t)(bytes - sent) : CHUNK;
        if (!status) status = slot_free(s, slot);
        if (status) break;
        struct reply head = {r->seq, CUDA_SUCCESS, bytes, {0, 0}};
        if (link_write_both(&session.link, &head, sent ? 0 : sizeof head, s->host[slot], step)) session_end(1);
        sent += step;
        ahead--;
    }
    if (!status) return;
    if (sent) session_end(1); /* half of the data is under way, and the device failed */
    copy_out_failed(r, status);
}
