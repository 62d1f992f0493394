/* Copies whose bytes go by the session's lanes. The lanes' threads move chunks between the network and pinned memory; all
 * calls of the driver are of the child's own thread, which has the context. Chunks come in any order, and go as they are
 * ready. */
#define _GNU_SOURCE
#include "striped.h"

#include <pthread.h>

#include "driver.h"
#include "session.h"
#include "staging.h"

enum state { FREE, MOVING /* by a lane */, READY /* come, or to be sent */, ON_DEVICE };

struct striped {
    struct lane_copy copy; /* the first: what the lanes' threads know */
    pthread_mutex_t lock;
    pthread_cond_t offered; /* to the lanes: a slot that is free or ready, or the end */
    pthread_cond_t moved; /* by a lane */
    struct staging *staging;
    enum state state[MOST_SLOTS];
    uint64_t chunk[MOST_SLOTS];
    unsigned issued[MOST_SLOTS], first, issues; /* slots on the device, the oldest first: a stream keeps their order */
    unsigned lanes_done;
    bool complete; /* nothing more is to be sent */
};

/* A slot in that state, of which that with the lowest chunk; -1: there is none. */
static int find(const struct striped *s, enum state state) {
    int found = -1;
    for (int i = 0; i < MOST_SLOTS; i++)
        if (s->state[i] == state && (found < 0 || (state == READY && s->chunk[i] < s->chunk[found]))) found = i;
    return found;
}

/* For a lane: a free slot for what comes, a ready one of what is sent. */
static char *get(struct lane_copy *copy, uint64_t *chunk) {
    struct striped *s = (struct striped *)copy;
    enum state wanted = copy->sends ? READY : FREE;
    int slot;
    pthread_mutex_lock(&s->lock);
    while ((slot = find(s, wanted)) < 0 && !s->complete) pthread_cond_wait(&s->offered, &s->lock);
    if (slot >= 0) {
        s->state[slot] = MOVING;
        if (copy->sends) *chunk = s->chunk[slot];
        else s->chunk[slot] = *chunk;
    }
    pthread_mutex_unlock(&s->lock);
    return slot < 0 ? NULL : s->staging->host[slot];
}

static void put(struct lane_copy *copy, uint64_t chunk, char *at) {
    struct striped *s = (struct striped *)copy;
    (void)chunk;
    pthread_mutex_lock(&s->lock);
    if (!at) s->lanes_done++;
    for (int i = 0; at && i < MOST_SLOTS; i++)
        if (s->staging->host[i] == at) s->state[i] = copy->sends ? FREE : READY;
    pthread_cond_signal(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

static void set(struct striped *s, unsigned slot, enum state state) {
    pthread_mutex_lock(&s->lock);
    s->state[slot] = state;
    if (state != ON_DEVICE) pthread_cond_signal(&s->offered);
    pthread_mutex_unlock(&s->lock);
}

static CUresult issue(struct striped *s, unsigned slot, CUdeviceptr base, CUstream stream) {
    CUdeviceptr at = base + s->chunk[slot] * CHUNK;
    size_t step = chunk_bytes(s->copy.bytes, s->chunk[slot]);
    void *host = s->staging->host[slot];
    CUresult status = s->copy.sends ? driver.cuMemcpyDtoHAsync_v2(host, at, step, stream)
                                    : driver.cuMemcpyHtoDAsync_v2(at, host, step, stream);
    if (!status) status = driver.cuEventRecord(s->staging->done[slot], stream);
    s->staging->busy[slot] = true;
    set(s, slot, ON_DEVICE);
    s->issued[(s->first + s->issues++) % MOST_SLOTS] = slot;
    return status;
}

/* Waits for the oldest on the device, which is then for the lanes. */
static CUresult finish(struct striped *s) {
    unsigned slot = s->issued[s->first++ % MOST_SLOTS];
    s->issues--;
    CUresult status = slot_free(s->staging, slot);
    set(s, slot, s->copy.sends ? READY : FREE);
    return status;
}

static CUresult open_striped(struct striped *s, const struct request *r, bool sends, CUstream *stream) {
    *s = (struct striped){.copy = {r->arg[1], sends, get, put}};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->offered, NULL);
    pthread_cond_init(&s->moved, NULL);
    CUresult status = copy_begin(r, MOST_SLOTS, stream, &s->staging);
    for (unsigned i = 0; i < MOST_SLOTS && !status; i++) status = slot_free(s->staging, i); /* of an earlier copy */
    return status;
}

/* Of a copy that failed before there was a place for its bytes. */
static char *get_nowhere(struct lane_copy *copy, uint64_t *chunk) {
    static char nowhere[CHUNK]; /* of all lanes: what is in it matters to nobody */
    (void)copy, (void)chunk;
    return nowhere;
}

static void put_nowhere(struct lane_copy *copy, uint64_t chunk, char *at) {
    (void)copy, (void)chunk, (void)at;
}

static void close_lanes(struct lane_copy *copy) {
    if (lanes_end(&session.lanes, copy)) session_end(1);
}

static void discard_striped(uint64_t bytes) {
    struct lane_copy copy = {bytes, false, get_nowhere, put_nowhere};
    lanes_begin(&session.lanes, &copy);
    close_lanes(&copy);
}

/* The next chunk that has come; -1: all lanes are done and there is none. Meanwhile slots are taken back. */
static int next_come(struct striped *s, CUresult *status) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        int slot = find(s, READY);
        bool waits = slot < 0 && !s->issues && s->lanes_done < session.lanes.count;
        if (waits) pthread_cond_wait(&s->moved, &s->lock);
        pthread_mutex_unlock(&s->lock);
        if (slot >= 0 || (!waits && !s->issues)) return slot;
        if (s->issues) {
            CUresult failed = finish(s);
            if (!*status) *status = failed;
        }
    }
}

void striped_in(const struct request *r) {
    struct striped s;
    CUstream stream = NULL;
    CUresult status = open_striped(&s, r, false, &stream);
    uint64_t come = 0;
    if (status) {
        discard_striped(r->arg[1]);
        answer(r, status, 0, 0, NULL, 0);
        return;
    }
    lanes_begin(&session.lanes, &s.copy);
    for (int slot; (slot = next_come(&s, &status)) >= 0; come++) {
        if (status) set(&s, (unsigned)slot, FREE);
        else status = issue(&s, (unsigned)slot, r->arg[0], stream);
    }
    close_lanes(&s.copy);
    if (come != chunks_of(r->arg[1])) session_end(1); /* no client of ours leaves chunks out */
    if (!status && r->flags & FLAG_WAIT) status = with_late(driver.cuStreamSynchronize(stream));
    answer(r, status, 0, 0, NULL, 0);
}

/* A free slot, with `wait` in any case; else -1 where there is none. */
static int next_free(struct striped *s, bool wait) {
    pthread_mutex_lock(&s->lock);
    int slot;
    while ((slot = find(s, FREE)) < 0 && wait) pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return slot;
}

void striped_out(const struct request *r) {
    struct striped s;
    CUstream stream = NULL;
    CUresult status = open_striped(&s, r, true, &stream);
    uint64_t chunks = chunks_of(r->arg[1]), asked = 0, ready = 0;
    while (!status && ready < chunks) {
        /* The first chunk is alone: until it is there, the client can be told that the copy fails. */
        int slot = asked < chunks && s.issues < (ready ? SLOTS : 1) ? next_free(&s, !s.issues) : -1;
        if (slot >= 0) {
            s.chunk[slot] = asked++;
            status = issue(&s, (unsigned)slot, r->arg[0], stream);
            continue;
        }
        status = finish(&s);
        if (status || ready++) continue;
        answer(r, CUDA_SUCCESS, 0, 0, NULL, 0);
        lanes_begin(&session.lanes, &s.copy);
    }
    if (status && ready) session_end(1); /* half of the data is under way, and the device failed */
    if (status) {
        copy_out_failed(r, status);
        return;
    }
    pthread_mutex_lock(&s.lock);
    s.complete = true;
    pthread_cond_broadcast(&s.offered);
    pthread_mutex_unlock(&s.lock);
    close_lanes(&s.copy);
}
