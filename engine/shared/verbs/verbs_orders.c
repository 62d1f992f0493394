/* The orders that go to the device, what it completes, and how a thread waits for that: below the bytes of verbs.c. */
#define _GNU_SOURCE
#ifdef WITH_VERBS /* else verbs_none.c */

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "verbs_inside.h"

#define CREDIT 0x80000000u /* the word says what was taken */
#define DATA 1 /* wr_id of a message with data */
#define STUCK_NS 25000000000u /* as CUT_S in wire.c: nobody says of what was sent that it came */
#define SPIN_NS 30000 /* before a thread sleeps: a round trip on a fabric is less than waking up costs */

uint64_t verbs_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void verbs_fail(struct verbs *v, int error) {
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
    if (error) verbs_fail(v, error);
    else if (!v->posted++) v->heard_ns = verbs_now_ns();
}

void verbs_post_segment(struct verbs *v, size_t bytes) {
    size_t at = v->sent % RING;
    v->sent += bytes;
    v->out_ends.at[v->out_ends.next++ % SLOTS] = v->sent;
    post_write(v, DATA, at, (uint32_t)bytes, (uint32_t)bytes);
}

void verbs_give_credit(struct verbs *v) {
    uint64_t bytes = v->taken - v->told;
    if (bytes < RING / 4 && v->untold < SLOTS / 4) return;
    if (v->failed || v->posted == SLOTS + CREDITS) return; /* the next completion comes here again */
    v->told = v->taken;
    v->untold = 0;
    post_write(v, 0, 0, 0, CREDIT | (uint32_t)bytes);
}

bool verbs_ends_full(const struct ends *e) {
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
        verbs_fail(v, error);
    } else if (word & CREDIT) {
        if (bytes > v->sent - v->credited) verbs_fail(v, EPROTO);
        else v->credited += bytes;
    } else if (!bytes || bytes > SEGMENT || bytes > RING - (v->arrived - v->taken) || verbs_ends_full(&v->in_ends)) {
        verbs_fail(v, EPROTO);
    } else {
        v->arrived += bytes;
        v->in_ends.at[v->in_ends.next++ % SLOTS] = v->arrived;
    }
}

void verbs_drain(struct verbs *v) {
    struct ibv_wc all[16];
    int count;
    bool any = false;
    while ((count = ibv_poll_cq(v->cq, 16, all)) > 0) {
        any = true;
        for (int i = 0; i < count; i++) {
            struct ibv_wc *one = &all[i];
            if (one->status != IBV_WC_SUCCESS) {
                verbs_fail(v, error_of(one->status));
            } else if (one->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
                arrive(v, ntohl(one->imm_data));
            } else if (one->opcode == IBV_WC_RDMA_WRITE) {
                v->posted--;
                v->heard_ns = verbs_now_ns();
                if (one->wr_id == DATA) v->arrived_there = v->out_ends.at[v->done++ % SLOTS];
            } else {
                verbs_fail(v, EPROTO);
            }
        }
    }
    if (count < 0) verbs_fail(v, EIO);
    if (!any) return;
    release(v);
    verbs_give_credit(v);
    if (v->waiting) pthread_cond_broadcast(&v->moved);
}

int verbs_ended(int fd) {
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

uint64_t verbs_stuck_at(const struct verbs *v) {
    return v->posted ? v->heard_ns + STUCK_NS : 0;
}

/* Sleeps until the device or TCP has something, or to that moment. Called, and returns, with the lock held. */
static void sleep_once(struct verbs *v, verbs_condition *enough, size_t bytes, uint64_t until) {
    if (ibv_req_notify_cq(v->cq, 0)) verbs_fail(v, EIO);
    verbs_drain(v); /* what came before that would not wake us */
    if (v->failed || enough(v, bytes)) return;
    struct pollfd waits[3] = {{.fd = v->channel->fd, .events = POLLIN}, {.fd = v->fd, .events = POLLIN | POLLRDHUP},
                              {.fd = v->context->async_fd, .events = POLLIN}};
    uint64_t now = verbs_now_ns(), patience = v->patience_ms ? now + (uint64_t)v->patience_ms * 1000000u : 0;
    uint64_t give_up = earlier(patience, verbs_stuck_at(v));
    int limit_ms = ms_until(earlier(give_up, until), now);
    pthread_mutex_unlock(&v->lock);
    int count = poll(waits, 3, limit_ms), error = errno;
    pthread_mutex_lock(&v->lock);
    if (waits[0].revents && count > 0) {
        struct ibv_cq *cq;
        void *own;
        if (verbs_library.get_cq_event(v->channel, &cq, &own)) verbs_fail(v, EIO);
        else verbs_library.ack_cq_events(cq, 1);
    }
    verbs_drain(v); /* before TCP's end counts: what was said came before it */
    if (count > 0 && waits[1].revents && !enough(v, bytes)) verbs_fail(v, verbs_ended(v->fd));
    if (count > 0 && waits[2].revents && device_lost(v)) verbs_fail(v, ENODEV);
    if (count == 0 && give_up && verbs_now_ns() >= give_up) verbs_fail(v, ETIMEDOUT);
    if (count < 0 && error != EINTR) verbs_fail(v, error);
}

/* Until another thread has looked, or to that moment. */
static void sleep_beside(struct verbs *v, uint64_t until) {
    struct timespec moment = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    v->waiting++;
    if (until) pthread_cond_timedwait(&v->moved, &v->lock, &moment);
    else pthread_cond_wait(&v->moved, &v->lock);
    v->waiting--;
}

int verbs_wait_for(struct verbs *v, verbs_condition *enough, size_t bytes, uint64_t until) {
    uint64_t spin_until = 0;
    for (verbs_drain(v); !enough(v, bytes) && !v->failed; verbs_drain(v)) {
        uint64_t now = verbs_now_ns();
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

#endif
