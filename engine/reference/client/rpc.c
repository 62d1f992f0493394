/* Requests and replies. What wants no reply leaves by batch.c. Whoever waits for a reply reads the socket himself, so that
 * a call costs no change of thread; a thread of our own reads only while data of asynchronous copies are under way and
 * nobody waits. It keeps a program that sends and receives much at once from waiting for a server that waits for it. */
#define _GNU_SOURCE
#include "rpc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "connections.h"
#include "lanes_copy.h"

#define MOST_TEXT ((uint64_t)64 << 20)

/* Of a request whose caller goes before its reply has come. Called with `receive` held, so that nobody fills it. */
static void forget(struct connection *c, struct pending *p) {
    pthread_mutex_lock(&c->queue);
    struct pending **at = &c->first;
    while (*at && *at != p) at = &(*at)->next;
    if (*at) *at = p->next;
    for (c->last = &c->first; *c->last;) c->last = &(*c->last)->next;
    pthread_mutex_unlock(&c->queue);
}

static const char *reason(void) {
    return errno ? strerror(errno) : "closed by the server";
}

/* Takes the reply that comes next. Called with `receive` held. */
static CUresult take(struct connection *c) {
    struct reply reply;
    if (link_read_all(&c->link, &reply, sizeof reply)) return lose(c, reason());
    pthread_mutex_lock(&c->queue);
    struct pending *p = c->first;
    pthread_mutex_unlock(&c->queue);
    bool fits = p && reply.seq == p->seq && reply.bytes <= (p->grows ? MOST_TEXT : p->room);
    if (fits && p->grows && reply.bytes) fits = (p->to = malloc(reply.bytes)) != NULL;
    else if (fits && !p->text) fits = reply.bytes == (reply.status || p->striped ? 0 : p->room);
    if (!fits) return lose(c, "its reply makes no sense");
    bool striped = p->striped && !reply.status;
    if (striped ? lanes_copy(c, p->to, p->room, false) : reply.bytes && link_read_all(&c->link, p->to, reply.bytes))
        return lose(c, reason());
    pthread_mutex_lock(&c->queue);
    c->first = p->next;
    if (!c->first) c->last = &c->first;
    pthread_mutex_unlock(&c->queue);
    p->reply = reply;
    if (p->detached) free(p);
    else __atomic_store_n(&p->done, true, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static void *drain(void *argument) {
    struct connection *c = argument;
    for (;;) {
        pthread_mutex_lock(&c->queue);
        while (!(c->first && c->first->detached)) pthread_cond_wait(&c->came, &c->queue);
        pthread_mutex_unlock(&c->queue);
        pthread_mutex_lock(&c->receive);
        pthread_mutex_lock(&c->queue);
        bool ours = !lost && c->first && c->first->detached; /* a caller may have taken it meanwhile */
        pthread_mutex_unlock(&c->queue);
        CUresult status = ours ? take(c) : CUDA_SUCCESS;
        pthread_mutex_unlock(&c->receive);
        if (status || lost) return NULL;
    }
}

static void start_draining(struct connection *c) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    c->draining = pthread_create(&thread, NULL, drain, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (c->draining) pthread_detach(thread);
}

static CUresult transmit(struct connection *c, struct request *r, const void *body, struct pending *p) {
    pthread_mutex_lock(&c->send);
    if (lost) {
        if (p && p->detached) free(p);
        pthread_mutex_unlock(&c->send);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    r->seq = ++c->seq;
    if (p) {
        p->seq = r->seq;
        p->next = NULL;
        pthread_mutex_lock(&c->queue);
        *c->last = p;
        c->last = &p->next;
        if (p->detached && !c->draining) start_draining(c);
        /* Whatever stands before a detached one is its waiter's, who looks again when that has come. */
        if (c->draining && c->first && c->first->detached) pthread_cond_signal(&c->came);
        pthread_mutex_unlock(&c->queue);
    }
    bool striped = r->flags & FLAG_STRIPED && body;
    int failed = p || striped ? batch_send(c, r, body) : batch_add(c, r, body);
    if (!failed && striped) failed = lanes_copy(c, (void *)(uintptr_t)body, r->arg[1], true);
    CUresult status = failed ? lose(c, reason()) : CUDA_SUCCESS;
    if (failed && p) {
        pthread_mutex_lock(&c->receive);
        forget(c, p);
        if (p->detached) free(p);
        pthread_mutex_unlock(&c->receive);
    }
    pthread_mutex_unlock(&c->send);
    return status;
}

CUresult await(struct connection *c, struct pending *p) {
    CUresult status = CUDA_SUCCESS;
    if (__atomic_load_n(&p->done, __ATOMIC_ACQUIRE)) return p->reply.status;
    pthread_mutex_lock(&c->receive);
    while (!status && !__atomic_load_n(&p->done, __ATOMIC_ACQUIRE))
        status = lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : take(c);
    if (status) forget(c, p);
    if (c->draining) {
        pthread_mutex_lock(&c->queue);
        if (c->first && c->first->detached) pthread_cond_signal(&c->came);
        pthread_mutex_unlock(&c->queue);
    }
    pthread_mutex_unlock(&c->receive);
    return status ? status : p->reply.status;
}

CUresult ask(struct connection *c, struct request *r, const void *body, struct pending *p) {
    r->flags |= FLAG_REPLY;
    return transmit(c, r, body, p);
}

CUresult call(struct connection *c, struct request *r, const void *body, struct reply *reply) {
    struct pending p = {0};
    TRY(ask(c, r, body, &p));
    CUresult status = await(c, &p);
    if (reply) *reply = p.reply;
    return status;
}

CUresult call_for_data(struct connection *c, struct request *r, void *to, uint64_t room, bool text, uint64_t *got) {
    struct pending p = {.to = to, .room = room, .text = text, .striped = r->flags & FLAG_STRIPED};
    TRY(ask(c, r, NULL, &p));
    CUresult status = await(c, &p);
    if (got) *got = p.reply.bytes;
    return status;
}

CUresult call_for_text(struct connection *c, struct request *r, const void *body, struct reply *reply, void **to) {
    struct pending p = {.text = true, .grows = true};
    CUresult status = ask(c, r, body, &p);
    if (!status) status = await(c, &p);
    *reply = p.reply;
    *to = p.to;
    return status;
}

CUresult post(struct connection *c, struct request *r, const void *body) {
    return transmit(c, r, body, NULL);
}

CUresult post_for_data(struct connection *c, struct request *r, void *to, uint64_t room) {
    struct pending *p = calloc(1, sizeof *p);
    if (!p) return CUDA_ERROR_OUT_OF_MEMORY;
    p->to = to;
    p->room = room;
    p->detached = true;
    p->striped = r->flags & FLAG_STRIPED;
    r->flags |= FLAG_REPLY; /* its data are the reply; whether it failed, the server says later as of any other */
    CUresult status = transmit(c, r, NULL, p);
    return status;
}
