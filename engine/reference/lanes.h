/* Data connections of a session, "lanes": large copies go over all of them at once, in chunks; whichever has room takes
 * the next one, so that a slow one holds nobody up. For each copy a lane carries chunks, each behind its number, and then
 * LANE_END. Requests, replies and small copies never go this way. */
#ifndef ELASTIC_AI_LANES_H
#define ELASTIC_AI_LANES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

/* A copy's bytes, at this end. Both functions are called by the lanes' threads, several at a time. */
struct lane_copy {
    uint64_t bytes;
    bool sends;
    /* Where a chunk is, or is to go. For a copy that is sent it says which one, too; NULL: there is none any more. */
    char *(*get)(struct lane_copy *copy, uint64_t *chunk);
    void (*put)(struct lane_copy *copy, uint64_t chunk, char *at); /* it went or came; LANE_END: a lane is done */
};

struct lanes {
    unsigned count; /* 0: there are none */
    int fd[MOST_LANES];
    void (*broken)(int error); /* a lane failed; NULL: `lanes_end` says so */
    unsigned ways; /* 2: a copy in each direction at a time; 1: one at a time */
    bool stopped;
    struct way { /* a thread for each lane */
        pthread_mutex_t lock;
        pthread_cond_t begun, ended;
        struct lane_copy *copy;
        unsigned turn, left; /* how many copies have begun; lanes that are not done with this one */
        int error;
        bool failed;
    } way[2];
};

static inline uint64_t chunks_of(uint64_t bytes) {
    return bytes / CHUNK + (bytes % CHUNK != 0);
}

static inline size_t chunk_bytes(uint64_t bytes, uint64_t chunk) {
    return bytes - chunk * CHUNK < CHUNK ? (size_t)(bytes - chunk * CHUNK) : CHUNK;
}

/* Takes connected sockets, and starts their threads. 0, or -1: it took none. */
int lanes_start(struct lanes *l, const int *fd, unsigned count, unsigned ways);
void lanes_stop(struct lanes *l); /* before the first copy; the sockets stay open */
/* A copy begins. It is over with `lanes_end`: 0, or -1 with errno as of a link. */
void lanes_begin(struct lanes *l, struct lane_copy *copy);
int lanes_end(struct lanes *l, const struct lane_copy *copy);
void lanes_shut(const struct lanes *l); /* whoever waits for one fails */

#endif
