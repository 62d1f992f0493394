/* A stream of bytes over a queue pair. Each end has a ring that the other one writes into, by RDMA WRITE with a word
 * beside it: how many bytes came, or how many the peer has taken. So a writer never has more under way than there is room
 * and orders to receive for, and the word alone decides how far a reader goes. What the peer writes into the ring at any
 * time is only ever copied out once. */
#define _GNU_SOURCE
#ifdef WITH_VERBS /* else verbs_none.c */

#include "verbs.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>

#include "verbs_inside.h"

static bool readable(const struct verbs *v, size_t bytes) {
    (void)bytes;
    return v->arrived != v->taken;
}

/* An end that has failed sends nothing more, whatever room there is. */
static bool writable(const struct verbs *v, size_t bytes) {
    return !v->failed && !verbs_ends_full(&v->out_ends) && RING - (v->sent - v->released) >= bytes &&
           v->posted < SLOTS + CREDITS;
}

static uint64_t after_ms(int ms) {
    return verbs_now_ns() + (uint64_t)ms * 1000000u;
}

static void unlock_with(struct verbs *v, int error) {
    pthread_mutex_unlock(&v->lock);
    errno = error;
}

/* Some of what is there. Called, and returns, with the lock held. */
static size_t take_some(struct verbs *v, void *to, size_t most) {
    size_t at = v->taken % RING, step = RING - at;
    if (step > v->arrived - v->taken) step = (size_t)(v->arrived - v->taken);
    if (step > most) step = most;
    pthread_mutex_unlock(&v->lock);
    memcpy(to, v->in + at, step);
    pthread_mutex_lock(&v->lock);
    v->taken += step;
    struct ends *e = &v->in_ends;
    for (; e->first != e->next && e->at[e->first % SLOTS] <= v->taken; e->first++) v->untold++;
    verbs_give_credit(v);
    return step;
}

int verbs_read(struct verbs *v, void *to, size_t least, size_t most, size_t *got) {
    pthread_mutex_lock(&v->lock);
    for (*got = 0; *got < least;) {
        if (verbs_wait_for(v, readable, 0, 0)) {
            unlock_with(v, errno);
            return -1;
        }
        *got += take_some(v, (char *)to + *got, most - *got);
    }
    pthread_mutex_unlock(&v->lock);
    return 0;
}

ssize_t verbs_read_within(struct verbs *v, void *to, size_t most, int ms) {
    pthread_mutex_lock(&v->lock);
    if (verbs_wait_for(v, readable, 0, after_ms(ms))) {
        int error = errno;
        unlock_with(v, error);
        return error ? -1 : 0;
    }
    ssize_t got = (ssize_t)take_some(v, to, most);
    pthread_mutex_unlock(&v->lock);
    return got;
}

/* Copies the next bytes of the parts, which there are. */
static void gather(char *to, size_t bytes, struct iovec **parts) {
    while (bytes) {
        struct iovec *p = *parts;
        size_t step = bytes < p->iov_len ? bytes : p->iov_len;
        memcpy(to, p->iov_base, step);
        p->iov_base = (char *)p->iov_base + step;
        p->iov_len -= step;
        to += step;
        bytes -= step;
        if (!p->iov_len) ++*parts;
    }
}

/* How many of these bytes one message takes: up to the ring's end. */
static size_t segment(const struct verbs *v, size_t left) {
    size_t step = RING - v->sent % RING;
    if (step > SEGMENT) step = SEGMENT;
    return step < left ? step : left;
}

int verbs_write(struct verbs *v, struct iovec *parts, size_t count) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) left += parts[i].iov_len;
    while (left) {
        pthread_mutex_lock(&v->lock);
        size_t at = v->sent % RING, step = segment(v, left);
        if (verbs_wait_for(v, writable, step, 0)) {
            unlock_with(v, errno);
            return -1;
        }
        pthread_mutex_unlock(&v->lock);
        while (!parts->iov_len) parts++;
        gather(v->out + at, step, &parts);
        pthread_mutex_lock(&v->lock);
        verbs_post_segment(v, step);
        pthread_mutex_unlock(&v->lock);
        left -= step;
    }
    return 0;
}

ssize_t verbs_write_now(struct verbs *v, const void *from, size_t bytes) {
    size_t done = 0;
    pthread_mutex_lock(&v->lock);
    for (verbs_drain(v); done < bytes && writable(v, 1); verbs_drain(v)) {
        size_t at = v->sent % RING, step = segment(v, bytes - done), room = RING - (size_t)(v->sent - v->released);
        if (step > room) step = room;
        pthread_mutex_unlock(&v->lock);
        memcpy(v->out + at, (const char *)from + done, step);
        pthread_mutex_lock(&v->lock);
        verbs_post_segment(v, step);
        done += step;
    }
    unlock_with(v, !v->failed ? EAGAIN : v->error ? v->error : EPIPE);
    return done ? (ssize_t)done : -1;
}

static bool readable_or_writable(const struct verbs *v, size_t bytes) {
    return readable(v, 0) || writable(v, bytes);
}

void verbs_wait(struct verbs *v, bool reads, int ms) {
    pthread_mutex_lock(&v->lock);
    (void)verbs_wait_for(v, reads ? readable_or_writable : writable, 1, after_ms(ms));
    pthread_mutex_unlock(&v->lock);
}

bool verbs_is_ready(struct verbs *v) {
    struct pollfd tcp = {.fd = v->fd, .events = POLLIN | POLLRDHUP};
    pthread_mutex_lock(&v->lock);
    verbs_drain(v);
    if (!readable(v, 0) && !v->failed) {
        uint64_t stuck = verbs_stuck_at(v);
        bool over = poll(&tcp, 1, 0) > 0;
        verbs_drain(v); /* what was said came before TCP's end */
        if (over && !readable(v, 0)) verbs_fail(v, verbs_ended(v->fd));
        if (stuck && verbs_now_ns() >= stuck && stuck == verbs_stuck_at(v)) verbs_fail(v, ETIMEDOUT);
    }
    bool ready = readable(v, 0) || v->failed;
    pthread_mutex_unlock(&v->lock);
    return ready;
}

bool verbs_has_room(struct verbs *v, size_t bytes) {
    pthread_mutex_lock(&v->lock);
    verbs_drain(v);
    bool has = writable(v, bytes);
    pthread_mutex_unlock(&v->lock);
    return has;
}

bool verbs_is_idle(struct verbs *v, size_t bytes) {
    pthread_mutex_lock(&v->lock);
    verbs_drain(v);
    /* What was taken is said in steps of a quarter, so that a peer that takes all comes to this. */
    bool is = v->sent - v->arrived_there < bytes && v->sent - v->released <= RING / 2 && writable(v, 1);
    is = is || v->failed;
    pthread_mutex_unlock(&v->lock);
    return is;
}

static bool all_gone(const struct verbs *v, size_t bytes) {
    (void)bytes;
    return !v->posted;
}

void verbs_flush(struct verbs *v, int ms) {
    pthread_mutex_lock(&v->lock);
    (void)verbs_wait_for(v, all_gone, 0, after_ms(ms));
    pthread_mutex_unlock(&v->lock);
}

void verbs_patience(struct verbs *v, int ms) {
    v->patience_ms = ms;
}

#endif
