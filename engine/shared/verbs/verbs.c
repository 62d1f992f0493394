/* A stream of bytes over a queue pair. Each end has a ring that the other one writes into, by RDMA WRITE with a word
 * beside it: how many bytes came, or how many the peer has taken. So a writer never has more under way than there is room
 * and orders to receive for, and the word alone decides how far a reader goes. What the peer writes into the ring at any
 * time is only ever copied out once. */
#define _GNU_SOURCE
#ifdef WITH_VERBS /* else verbs_none.c */

#include "verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "verbs_inside.h"

#define CREDIT 0x80000000u /* the word says what was taken */
#define DATA 1 /* wr_id of a message with data */
#define STUCK_NS 25000000000u /* as CUT_S in wire.c: nobody says of what was sent that it came */
#define SPIN_NS 30000 /* before a thread sleeps: a round trip on a fabric is less than waking up costs */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The first reason stays. */
static void fail(struct verbs *v, int error) {
    if (!v->failed) v->error = error;
    v->failed = true;
    if (v->waiting) pthread_cond_broadcast(&v->moved);
}

static int error_of(enum ibv_wc_status status) {
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR: return ETIMEDOUT;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR: return EREMOTEIO;
    case IBV_WC_WR_FLUSH_ERR: return ECONNABORTED;
    default: return EIO;
    }
}

static void post_write(struct verbs *v, uint64_t kind, size_t at, uint32_t bytes, uint32_t word) {
    struct ibv_sge part = {.addr = (uintptr_t)v->out + at, .length = bytes, .lkey = v->out_mr->lkey};
    struct ibv_send_wr order = {.wr_id = kind, .sg_list = &part, .num_sge = bytes ? 1 : 0,
                                .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(word),
                                .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (bytes && bytes <= v->inline_bytes) order.send_flags |= IBV_SEND_INLINE;
    order.wr.rdma.remote_addr = v->their_ring + at;
    order.wr.rdma.rkey = v->their_key;
    int error = ibv_post_send(v->qp, &order, &bad);
    if (error) fail(v, error);
    else if (!v->posted++) v->heard_ns = now_ns();
}

/* Says what was taken, when it is so much that the peer may wait for it. */
static void give_credit(struct verbs *v) {
    uint64_t bytes = v->taken - v->told;
    if (bytes < RING / 4 && v->untold < SLOTS / 4) return;
    if (v->failed || v->posted == SLOTS + CREDITS) return; /* the next completion comes here again */
    v->told = v->taken;
    v->untold = 0;
    post_write(v, 0, 0, 0, CREDIT | (uint32_t)bytes);
}

static bool ends_full(const struct ends *e) {
    return e->next - e->first == SLOTS;
}

static void release(struct verbs *v) {
    struct ends *e = &v->out_ends;
    while (e->first != e->next && e->first != v->done && e->at[e->first % SLOTS] <= v->credited)
        v->released = e->at[e->first++ % SLOTS];
}

static void arrive(struct verbs *v, uint32_t word) {
    uint64_t bytes = word & ~CREDIT;
    int error = verbs_post_receive(v);
    if (error) {
        fail(v, error);
    } else if (word & CREDIT) {
        if (bytes > v->sent - v->credited) fail(v, EPROTO);
        else v->credited += bytes;
    } else if (!bytes || bytes > SEGMENT || bytes > RING - (v->arrived - v->taken) || ends_full(&v->in_ends)) {
        fail(v, EPROTO);
    } else {
        v->arrived += bytes;
        v->in_ends.at[v->in_ends.next++ % SLOTS] = v->arrived;
    }
}

/* Takes what the device has. Called with the lock held. */
static void drain(struct verbs *v) {
    struct ibv_wc all[16];
    int count;
    bool any = false;
    while ((count = ibv_poll_cq(v->cq, 16, all)) > 0) {
        any = true;
        for (int i = 0; i < count; i++) {
            struct ibv_wc *one = &all[i];
            if (one->status != IBV_WC_SUCCESS) {
                fail(v, error_of(one->status));
            } else if (one->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
                arrive(v, ntohl(one->imm_data));
            } else if (one->opcode == IBV_WC_RDMA_WRITE) {
                v->posted--;
                v->heard_ns = now_ns();
                if (one->wr_id == DATA) v->arrived_there = v->out_ends.at[v->done++ % SLOTS];
            } else {
                fail(v, EPROTO);
            }
        }
    }
    if (count < 0) fail(v, EIO);
    if (!any) return;
    release(v);
    give_credit(v);
    if (v->waiting) pthread_cond_broadcast(&v->moved);
}

/* TCP has something: nothing is said there any more, so it has ended, or the peer breaks the protocol. */
static int ended(int fd) {
    char one;
    ssize_t n = recv(fd, &one, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 ? EPROTO : n == 0 || errno == EAGAIN ? 0 : errno;
}

static bool device_lost(struct verbs *v) {
    struct ibv_async_event event;
    if (verbs_library.get_async_event(v->context, &event)) return true;
    bool gone = event.event_type == IBV_EVENT_DEVICE_FATAL || event.event_type == IBV_EVENT_CQ_ERR;
    verbs_library.ack_async_event(&event);
    return gone;
}

/* The earlier one of two moments; 0 is never. */
static uint64_t earlier(uint64_t a, uint64_t b) {
    return !a || (b && b < a) ? b : a;
}

static int ms_until(uint64_t moment, uint64_t now) {
    return !moment ? -1 : moment <= now ? 0 : (int)((moment - now + 999999) / 1000000);
}

/* When nobody waits any longer for what was sent to be acknowledged; 0: nothing is under way. */
static uint64_t stuck_at(const struct verbs *v) {
    return v->posted ? v->heard_ns + STUCK_NS : 0;
}

typedef bool condition(const struct verbs *v, size_t bytes);

/* Sleeps until the device or TCP has something, or to that moment. Called, and returns, with the lock held. */
static void sleep_once(struct verbs *v, condition *enough, size_t bytes, uint64_t until) {
    if (ibv_req_notify_cq(v->cq, 0)) fail(v, EIO);
    drain(v); /* what came before that would not wake us */
    if (v->failed || enough(v, bytes)) return;
    struct pollfd waits[3] = {{.fd = v->channel->fd, .events = POLLIN}, {.fd = v->fd, .events = POLLIN | POLLRDHUP},
                              {.fd = v->context->async_fd, .events = POLLIN}};
    uint64_t now = now_ns(), patience = v->patience_ms ? now + (uint64_t)v->patience_ms * 1000000u : 0;
    uint64_t give_up = earlier(patience, stuck_at(v));
    int limit_ms = ms_until(earlier(give_up, until), now);
    pthread_mutex_unlock(&v->lock);
    int count = poll(waits, 3, limit_ms), error = errno;
    pthread_mutex_lock(&v->lock);
    if (waits[0].revents && count > 0) {
        struct ibv_cq *cq;
        void *own;
        if (verbs_library.get_cq_event(v->channel, &cq, &own)) fail(v, EIO);
        else verbs_library.ack_cq_events(cq, 1);
    }
    drain(v); /* before TCP's end counts: what was said came before it */
    if (count > 0 && waits[1].revents && !enough(v, bytes)) fail(v, ended(v->fd));
    if (count > 0 && waits[2].revents && device_lost(v)) fail(v, ENODEV);
    if (count == 0 && give_up && now_ns() >= give_up) fail(v, ETIMEDOUT);
    if (count < 0 && error != EINTR) fail(v, error);
}

/* Until another thread has looked, or to that moment. */
static void sleep_beside(struct verbs *v, uint64_t until) {
    struct timespec moment = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    v->waiting++;
    if (until) pthread_cond_timedwait(&v->moved, &v->lock, &moment);
    else pthread_cond_wait(&v->moved, &v->lock);
    v->waiting--;
}

/* Until `enough` says so: 0; -1 with errno, EAGAIN at that moment (0: never). Called with the lock held. One of those that
 * wait looks for all. */
static int wait_for(struct verbs *v, condition *enough, size_t bytes, uint64_t until) {
    uint64_t spin_until = 0;
    for (drain(v); !enough(v, bytes) && !v->failed; drain(v)) {
        uint64_t now = now_ns();
        if (until && now >= until) {
            errno = EAGAIN;
            return -1;
        }
        if (v->pumping) {
            sleep_beside(v, until);
            continue;
        }
        if (!spin_until) spin_until = now + SPIN_NS;
        if (now < spin_until) {
            pthread_mutex_unlock(&v->lock);
            pthread_mutex_lock(&v->lock);
            continue;
        }
        v->pumping = true;
        sleep_once(v, enough, bytes, until);
        v->pumping = false;
        spin_until = 0;
        if (v->waiting) pthread_cond_broadcast(&v->moved); /* another one looks from now on */
    }
    if (enough(v, bytes)) return 0;
    errno = v->error;
    return -1;
}

static bool readable(const struct verbs *v, size_t bytes) {
    (void)bytes;
    return v->arrived != v->taken;
}

/* An end that has failed sends nothing more, whatever room there is. */
static bool writable(const struct verbs *v, size_t bytes) {
    return !v->failed && !ends_full(&v->out_ends) && RING - (v->sent - v->released) >= bytes &&
           v->posted < SLOTS + CREDITS;
}

static uint64_t after_ms(int ms) {
    return now_ns() + (uint64_t)ms * 1000000u;
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
    give_credit(v);
    return step;
}

int verbs_read(struct verbs *v, void *to, size_t least, size_t most, size_t *got) {
    pthread_mutex_lock(&v->lock);
    for (*got = 0; *got < least;) {
        if (wait_for(v, readable, 0, 0)) {
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
    if (wait_for(v, readable, 0, after_ms(ms))) {
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

/* A message of what was put where the ring goes on. Called with the lock held. */
static void post_segment(struct verbs *v, size_t bytes) {
    size_t at = v->sent % RING;
    v->sent += bytes;
    v->out_ends.at[v->out_ends.next++ % SLOTS] = v->sent;
    post_write(v, DATA, at, (uint32_t)bytes, (uint32_t)bytes);
}

int verbs_write(struct verbs *v, struct iovec *parts, size_t count) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) left += parts[i].iov_len;
    while (left) {
        pthread_mutex_lock(&v->lock);
        size_t at = v->sent % RING, step = segment(v, left);
        if (wait_for(v, writable, step, 0)) {
            unlock_with(v, errno);
            return -1;
        }
        pthread_mutex_unlock(&v->lock);
        while (!parts->iov_len) parts++;
        gather(v->out + at, step, &parts);
        pthread_mutex_lock(&v->lock);
        post_segment(v, step);
        pthread_mutex_unlock(&v->lock);
        left -= step;
    }
    return 0;
}

ssize_t verbs_write_now(struct verbs *v, const void *from, size_t bytes) {
    size_t done = 0;
    pthread_mutex_lock(&v->lock);
    for (drain(v); done < bytes && writable(v, 1); drain(v)) {
        size_t at = v->sent % RING, step = segment(v, bytes - done), room = RING - (size_t)(v->sent - v->released);
        if (step > room) step = room;
        pthread_mutex_unlock(&v->lock);
        memcpy(v->out + at, (const char *)from + done, step);
        pthread_mutex_lock(&v->lock);
        post_segment(v, step);
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
    (void)wait_for(v, reads ? readable_or_writable : writable, 1, after_ms(ms));
    pthread_mutex_unlock(&v->lock);
}

bool verbs_is_ready(struct verbs *v) {
    struct pollfd tcp = {.fd = v->fd, .events = POLLIN | POLLRDHUP};
    pthread_mutex_lock(&v->lock);
    drain(v);
    if (!readable(v, 0) && !v->failed) {
        uint64_t stuck = stuck_at(v);
        bool over = poll(&tcp, 1, 0) > 0;
        drain(v); /* what was said came before TCP's end */
        if (over && !readable(v, 0)) fail(v, ended(v->fd));
        if (stuck && now_ns() >= stuck && stuck == stuck_at(v)) fail(v, ETIMEDOUT);
    }
    bool ready = readable(v, 0) || v->failed;
    pthread_mutex_unlock(&v->lock);
    return ready;
}

bool verbs_has_room(struct verbs *v, size_t bytes) {
    pthread_mutex_lock(&v->lock);
    drain(v);
    bool has = writable(v, bytes);
    pthread_mutex_unlock(&v->lock);
    return has;
}

bool verbs_is_idle(struct verbs *v, size_t bytes) {
    pthread_mutex_lock(&v->lock);
    drain(v);
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
    (void)wait_for(v, all_gone, 0, after_ms(ms));
    pthread_mutex_unlock(&v->lock);
}

void verbs_patience(struct verbs *v, int ms) {
    v->patience_ms = ms;
}

#endif
