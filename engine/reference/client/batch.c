/* Requests that want no reply travel together: one call of the system for each would be most of what a launch costs. The
 * first after a pause leaves at once; those that follow it wait for company, until a request wants a reply, the batch is
 * full, or a thread of our own has looked, which is awake only while there is something to look at. */
#define _GNU_SOURCE
#include "batch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "connections.h"

#define ROOM ((size_t)32 << 10)
#define SMALL ((size_t)4 << 10) /* what is larger is not worth its copy */
#define PAUSE_NS 50000 /* what came later than this after the last one is alone; the thread looks so often */
#define LOOKS 40 /* without finding anything, before the thread sleeps */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static bool running; /* the thread is there */
static int awake; /* it looks, and need not be woken */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int leave(struct connection *c, const struct request *r, const void *body) {
    struct batch *b = &c->batch;
    struct iovec parts[3] = {{b->data, b->bytes},
                             {(void *)(uintptr_t)r, r ? sizeof *r : 0},
                             {(void *)(uintptr_t)body, r ? r->bytes : 0}};
    b->bytes = 0;
    int failed = link_write(&c->link, parts, 3);
    b->sent_ns = now_ns();
    return failed;
}

/* Whether anything waited. */
static bool look(void) {
    bool found = false;
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = &connections[i];
        if (!__atomic_load_n(&c->batch.bytes, __ATOMIC_RELAXED)) continue;
        found = true;
        pthread_mutex_lock(&c->send);
        /* Where it fails, who sends or waits next finds out as well, and says so. */
        if (lost) c->batch.bytes = 0;
        else if (c->batch.bytes) (void)leave(c, NULL, NULL);
        pthread_mutex_unlock(&c->send);
    }
    return found;
}

static void *watch(void *unused) {
    static const struct timespec pause = {0, PAUSE_NS};
    (void)unused;
    for (int idle = 0;;) {
        idle = look() ? 0 : idle + 1;
        if (idle < LOOKS) {
            nanosleep(&pause, NULL);
            continue;
        }
        pthread_mutex_lock(&lock);
        __atomic_store_n(&awake, 0, __ATOMIC_SEQ_CST);
        bool empty = true; /* what was added before that was read would not wake us */
        for (int i = 0; i < connection_count; i++)
            empty = empty && !__atomic_load_n(&connections[i].batch.bytes, __ATOMIC_SEQ_CST);
        if (!empty) __atomic_store_n(&awake, 1, __ATOMIC_SEQ_CST);
        while (!awake) pthread_cond_wait(&wanted, &lock);
        pthread_mutex_unlock(&lock);
        idle = 0;
    }
    return NULL;
}

/* False: there is no thread, so nothing may wait for it. */
static bool wake(void) {
    pthread_mutex_lock(&lock);
    if (!running) {
        pthread_t thread;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
        running = pthread_create(&thread, NULL, watch, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (running) pthread_detach(thread);
    }
    if (running) {
        __atomic_store_n(&awake, 1, __ATOMIC_SEQ_CST);
        pthread_cond_signal(&wanted);
    }
    pthread_mutex_unlock(&lock);
    return running;
}

int batch_send(struct connection *c, const struct request *r, const void *body) {
    return leave(c, r, body);
}

int batch_add(struct connection *c, const struct request *r, const void *body) {
    struct batch *b = &c->batch;
    size_t bytes = sizeof *r + r->bytes;
    if (r->bytes > SMALL || (!b->data && !(b->data = malloc(ROOM)))) return leave(c, r, body);
    if (!b->bytes && now_ns() - b->sent_ns > PAUSE_NS) return leave(c, r, body);
    if (b->bytes + bytes > ROOM && leave(c, NULL, NULL)) return -1;
    memcpy(b->data + b->bytes, r, sizeof *r);
    if (r->bytes) memcpy(b->data + b->bytes + sizeof *r, body, r->bytes);
    __atomic_store_n(&b->bytes, b->bytes + bytes, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&awake, __ATOMIC_SEQ_CST) && !wake()) return leave(c, NULL, NULL);
    return 0;
}
