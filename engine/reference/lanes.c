#define _GNU_SOURCE
#include "lanes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link.h"

struct mover {
    struct lanes *lanes;
    struct way *way;
    int fd;
};

static int send_chunks(int fd, struct lane_copy *copy) {
    uint64_t chunk = LANE_END;
    for (char *from; (from = copy->get(copy, &chunk)); copy->put(copy, chunk, from))
        if (write_both(fd, &chunk, sizeof chunk, from, chunk_bytes(copy->bytes, chunk))) return -1;
    chunk = LANE_END;
    return write_all(fd, &chunk, sizeof chunk);
}

/* The peer says which chunk: it may be none of this copy. */
static int receive_chunks(int fd, struct lane_copy *copy) {
    struct link link = {fd, NULL};
    for (;;) {
        uint64_t chunk;
        if (link_read_all(&link, &chunk, sizeof chunk)) return -1;
        if (chunk == LANE_END) return 0;
        if (chunk >= chunks_of(copy->bytes)) {
            errno = EPROTO;
            return -1;
        }
        char *to = copy->get(copy, &chunk);
        if (link_read_all(&link, to, chunk_bytes(copy->bytes, chunk))) return -1;
        copy->put(copy, chunk, to);
    }
}

static void *move(void *argument) {
    struct mover mover = *(struct mover *)argument;
    struct way *way = mover.way;
    unsigned turn = 0;
    free(argument);
    pthread_mutex_lock(&way->lock);
    for (;;) {
        while (way->turn == turn && !mover.lanes->stopped) pthread_cond_wait(&way->begun, &way->lock);
        if (mover.lanes->stopped) break;
        turn = way->turn;
        struct lane_copy *copy = way->copy;
        pthread_mutex_unlock(&way->lock);
        int failed = copy->sends ? send_chunks(mover.fd, copy) : receive_chunks(mover.fd, copy), error = errno;
        if (failed && mover.lanes->broken) mover.lanes->broken(error);
        if (failed) lanes_shut(mover.lanes); /* the others may wait for what will not come any more */
        copy->put(copy, LANE_END, NULL);
        pthread_mutex_lock(&way->lock);
        if (failed && !way->failed) way->failed = true, way->error = error;
        if (!--way->left) pthread_cond_signal(&way->ended);
    }
    pthread_mutex_unlock(&way->lock);
    return NULL;
}

static int start_mover(struct lanes *l, struct way *way, int fd) {
    struct mover *mover = malloc(sizeof *mover);
    pthread_t thread;
    if (!mover) return -1;
    *mover = (struct mover){l, way, fd};
    if (pthread_create(&thread, NULL, move, mover)) {
        free(mover);
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

int lanes_start(struct lanes *l, const int *fd, unsigned count, unsigned ways) {
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    l->stopped = false;
    l->ways = ways;
    for (unsigned w = 0; w < ways; w++) {
        struct way *way = &l->way[w];
        pthread_mutex_init(&way->lock, NULL);
        pthread_cond_init(&way->begun, NULL);
        pthread_cond_init(&way->ended, NULL);
        for (unsigned i = 0; i < count && !failed; i++) failed = start_mover(l, way, fd[i]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (unsigned i = 0; i < count; i++) l->fd[i] = fd[i];
    l->count = count;
    if (failed) lanes_stop(l);
    return failed;
}

void lanes_stop(struct lanes *l) {
    l->count = 0;
    for (unsigned w = 0; w < l->ways; w++) {
        pthread_mutex_lock(&l->way[w].lock);
        l->stopped = true;
        pthread_cond_broadcast(&l->way[w].begun);
        pthread_mutex_unlock(&l->way[w].lock);
    }
}

static struct way *way_of(struct lanes *l, const struct lane_copy *copy) {
    return &l->way[l->ways == 2 && copy->sends];
}

void lanes_begin(struct lanes *l, struct lane_copy *copy) {
    struct way *way = way_of(l, copy);
    pthread_mutex_lock(&way->lock);
    way->copy = copy;
    way->left = l->count;
    way->failed = false;
    way->turn++;
    pthread_cond_broadcast(&way->begun);
    pthread_mutex_unlock(&way->lock);
}

int lanes_end(struct lanes *l, const struct lane_copy *copy) {
    struct way *way = way_of(l, copy);
    pthread_mutex_lock(&way->lock);
    while (way->left) pthread_cond_wait(&way->ended, &way->lock);
    bool failed = way->failed;
    int error = way->error;
    pthread_mutex_unlock(&way->lock);
    errno = error;
    return failed ? -1 : 0;
}

void lanes_shut(const struct lanes *l) {
    unsigned count = __atomic_load_n(&l->count, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < count; i++) shutdown(l->fd[i], SHUT_RDWR);
}
