/* A stream of bytes over a queue pair. Each end has a ring that the other one writes into, by RDMA WRITE with a word
 * beside it: how many bytes came, or how many the peer has taken. So a writer never has more under way than there is room
 * and orders to receive for, and the word alone decides how far a reader goes. What the peer writes into the ring at any
 * time is only ever copied out once. */
#define _GNU_SOURCE
#include "verbs.h"

#ifdef WITH_VERBS

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "verbs_inside.h"

#define CREDIT 0x80000000u /* the word says what was taken */
#define DATA 1 /* wr_id of a message with data */
#define STUCK_MS 25000 /* as CUT_S in wire.c: nobody says of what was sent that it came */
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
    else v->posted++;
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
                v->done += one->wr_id == DATA;
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

/* Sleeps until the device or TCP has something. Called, and returns, with the lock held. */
static void sleep_once(struct verbs *v, bool (*enough)(const struct verbs *v, size_t bytes), size_t bytes) {
    if (ibv_req_notify_cq(v->cq, 0)) fail(v, EIO);
    drain(v); /* what came before that would not wake us */
    if (v->failed || enough(v, bytes)) return;
    struct pollfd waits[3] = {{.fd = v->channel->fd, .events = POLLIN}, {.fd = v->fd, .events = POLLIN | POLLRDHUP},
                              {.fd = v->context->async_fd, .events = POLLIN}};
    int limit_ms = v->patience_ms ? v->patience_ms : v->posted ? STUCK_MS : -1;
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
    if (count == 0) fail(v, ETIMEDOUT);
    if (count < 0 && error != EINTR) fail(v, error);
}

/* Until `enough` says so: 0; -1 with errno. Called with the lock held. One of those that wait looks for all. */
static int wait_for(struct verbs *v, bool (*enough)(const struct verbs *v, size_t bytes), size_t bytes) {
    uint64_t spin_until = 0;
    for (drain(v); !enough(v, bytes) && !v->failed; drain(v)) {
        if (v->pumping) {
            v->waiting++;
            pthread_cond_wait(&v->moved, &v->lock);
            v->waiting--;
            continue;
        }
        uint64_t now = now_ns();
        if (!spin_until) spin_until = now + SPIN_NS;
        if (now < spin_until) {
            pthread_mutex_unlock(&v->lock);
            pthread_mutex_lock(&v->lock);
            continue;
        }
        v->pumping = true;
        sleep_once(v, enough, bytes);
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

int verbs_read(struct verbs *v, void *to, size_t least, size_t most, size_t *got) {
    pthread_mutex_lock(&v->lock);
    for (*got = 0; *got < least;) {
        if (wait_for(v, readable, 0)) {
            int error = errno;
            pthread_mutex_unlock(&v->lock);
            errno = error;
            return -1;
        }
        size_t at = v->taken % RING, step = RING - at;
        if (step > v->arrived - v->taken) step = (size_t)(v->arrived - v->taken);
        if (step > most - *got) step = most - *got;
        pthread_mutex_unlock(&v->lock);
        memcpy((char *)to + *got, v->in + at, step);
        pthread_mutex_lock(&v->lock);
        v->taken += step;
        *got += step;
        struct ends *e = &v->in_ends;
        for (; e->first != e->next && e->at[e->first % SLOTS] <= v->taken; e->first++) v->untold++;
        give_credit(v);
    }
    pthread_mutex_unlock(&v->lock);
    return 0;
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

int verbs_write(struct verbs *v, struct iovec *parts, size_t count) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) left += parts[i].iov_len;
    while (left) {
        pthread_mutex_lock(&v->lock);
        size_t at = v->sent % RING, step = RING - at;
        if (step > SEGMENT) step = SEGMENT;
        if (step > left) step = left;
        int error = wait_for(v, writable, step) ? errno : -1;
        pthread_mutex_unlock(&v->lock);
        if (error >= 0) {
            errno = error;
            return -1;
        }
        while (!parts->iov_len) parts++;
        gather(v->out + at, step, &parts);
        pthread_mutex_lock(&v->lock);
        v->sent += step;
        v->out_ends.at[v->out_ends.next++ % SLOTS] = v->sent;
        post_write(v, DATA, at, (uint32_t)step, (uint32_t)step);
        pthread_mutex_unlock(&v->lock);
        left -= step;
    }
    return 0;
}

void verbs_patience(struct verbs *v, int ms) {
    v->patience_ms = ms;
}

#else /* without libibverbs' header */

#include <errno.h>

int verbs_read(struct verbs *v, void *to, size_t least, size_t most, size_t *got) {
    (void)v, (void)to, (void)least, (void)most, (void)got;
    errno = ENOTSUP;
    return -1;
}

int verbs_write(struct verbs *v, struct iovec *parts, size_t count) {
    (void)v, (void)parts, (void)count;
    errno = ENOTSUP;
    return -1;
}

void verbs_patience(struct verbs *v, int ms) { (void)v, (void)ms; }

#endif
