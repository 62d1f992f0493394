#define _GNU_SOURCE
#include "queue.h"
#include "grid.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define NON_BLOCKING CU_STREAM_NON_BLOCKING /* neither waits for the default stream nor keeps it waiting */
#define THREAD_STACK ((size_t)512 << 10)
#define AGAIN_NS 10000000 /* how often a kernel is told to end */

struct lane {
    struct lane *next; /* of all there are: they are never freed, since marks name them, and are taken again */
    const struct context *context; /* NULL: no stream's */
    bool standard, apart; /* the context's default stream; non-blocking */
    struct task *first, **last;
    uint64_t asked, done; /* tickets */
    pthread_t thread;
    bool started, left; /* left: its stream is gone */
    volatile bool stop;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct lane *lanes;

void queue_lock(void) { pthread_mutex_lock(&lock); }
void queue_unlock(void) { pthread_mutex_unlock(&lock); }

static bool met(const struct task *task) {
    for (int i = 0; i < task->need_count; i++)
        if (task->needs[i].lane->done < task->needs[i].ticket) return false;
    return true;
}

static bool over(const struct task *task) {
    return !task->context->alive || task->context->fault;
}

static void *serve(void *given) {
    struct lane *l = given;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!l->first) pthread_cond_wait(&changed, &lock);
        struct task *task = l->first;
        while (!met(task) && !over(task)) pthread_cond_wait(&changed, &lock);
        bool skip = over(task);
        struct mark *needs = task->needs;
        l->first = task->next;
        if (!l->first) l->last = &l->first;
        pthread_mutex_unlock(&lock);
        task->run(task, &l->stop, skip);
        free(needs);
        pthread_mutex_lock(&lock);
        l->done++;
        if (l->done == l->asked) l->stop = false;
        if (l->done == l->asked && l->left) l->context = NULL, l->left = false;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

/* A forked child has no threads, and no work of its parent's. */
static void in_child(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
    for (struct lane *l = lanes; l; l = l->next) {
        l->done = l->asked;
        l->first = NULL;
        l->last = &l->first;
        l->started = false;
    }
}

/* The thread takes no signals but those of its own kernels. */
static bool begin(struct lane *l) {
    sigset_t all, before;
    pthread_attr_t attributes;
    static bool watched;
    if (l->started) return true;
    if (!watched) watched = !pthread_atfork(NULL, NULL, in_child);
    sigfillset(&all);
    const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, GRID_STOP};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->started = !pthread_create(&l->thread, &attributes, serve, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return l->started;
}

/* Called with the lock. */
static struct lane *standard_of(const struct context *c) {
    struct lane *l = lanes;
    while (l && (l->context != c || !l->standard)) l = l->next;
    return l;
}

static struct lane *lane_of(CUstream stream) {
    return (uintptr_t)stream <= 2 ? standard_of(current()) : ((struct stream *)stream)->lane;
}

static struct lane *lane_make(CUstream stream) {
    struct lane *l = lane_of(stream);
    bool standard = (uintptr_t)stream <= 2;
    if (l) return l;
    for (l = lanes; l && (l->context || l->done < l->asked); l = l->next) {}
    if (!l) {
        l = calloc(1, sizeof *l);
        if (!l) return NULL;
        l->last = &l->first;
        l->next = lanes;
        lanes = l;
    }
    l->context = standard ? current() : ((struct stream *)stream)->context;
    l->standard = standard;
    l->apart = !standard && ((struct stream *)stream)->flags & NON_BLOCKING;
    if (!standard) ((struct stream *)stream)->lane = l;
    return l;
}

/* Whether work on `later`, which may have no lane yet, waits for that on `l`, beside its own. */
static bool precedes(const struct lane *l, CUstream later) {
    bool standard = (uintptr_t)later <= 2;
    const struct context *c = standard ? current() : ((struct stream *)later)->context;
    if (l->context != c || l == lane_of(later)) return false;
    return standard ? !l->apart : l->standard && !(((struct stream *)later)->flags & NON_BLOCKING);
}

bool queue_need(struct task *task, struct mark mark) {
    struct mark *more = realloc(task->needs, (size_t)(task->need_count + 1) * sizeof *more);
    if (!more) return false;
    task->needs = more;
    task->needs[task->need_count++] = mark;
    return true;
}

bool queue_add(CUstream stream, struct task *task, struct mark *at) {
    pthread_mutex_lock(&lock);
    struct lane *l = lane_make(stream);
    bool fine = l && begin(l);
    for (struct lane *other = lanes; fine && other; other = other->next)
        if (precedes(other, stream) && other->done < other->asked)
            fine = queue_need(task, (struct mark){other, other->asked});
    if (fine) {
        task->next = NULL;
        *l->last = task;
        l->last = &task->next;
        l->asked++;
        if (at) *at = (struct mark){l, l->asked};
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return fine;
}

/* Called with the lock. */
static bool busy(CUstream stream, bool before) {
    struct lane *l = lane_of(stream);
    bool found = l && l->done < l->asked;
    for (l = lanes; before && l && !found; l = l->next) found = precedes(l, stream) && l->done < l->asked;
    return found;
}

bool queue_busy(CUstream stream, bool before) {
    pthread_mutex_lock(&lock);
    bool found = busy(stream, before);
    pthread_mutex_unlock(&lock);
    return found;
}

/* For what was asked until now: what other threads ask meanwhile is not waited for. */
void queue_wait(CUstream stream, bool before) {
    struct lane *l;
    struct mark marks[64];
    int count = 0;
    pthread_mutex_lock(&lock);
    l = lane_of(stream);
    if (l && l->done < l->asked) marks[count++] = (struct mark){l, l->asked};
    for (l = lanes; before && l && count < 64; l = l->next)
        if (precedes(l, stream) && l->done < l->asked) marks[count++] = (struct mark){l, l->asked};
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++) queue_wait_mark(marks[i]);
    if (count == 64) queue_wait(stream, before);
}

bool queue_done(struct mark mark) {
    pthread_mutex_lock(&lock);
    bool done = !mark.lane || mark.lane->done >= mark.ticket;
    pthread_mutex_unlock(&lock);
    return done;
}

void queue_wait_mark(struct mark mark) {
    pthread_mutex_lock(&lock);
    while (mark.lane && mark.lane->done < mark.ticket) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static struct lane *unfinished(const struct context *c) {
    struct lane *l = lanes;
    while (l && (l->context != c || l->done == l->asked)) l = l->next;
    return l;
}

void queue_wait_context(const struct context *c) {
    pthread_mutex_lock(&lock);
    while (c && unfinished(c)) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void queue_leave(struct stream *stream) {
    pthread_mutex_lock(&lock);
    if (stream->lane && stream->lane->done == stream->lane->asked) stream->lane->context = NULL;
    else if (stream->lane) stream->lane->left = true;
    pthread_mutex_unlock(&lock);
}

void queue_end(const struct context *c) {
    struct lane *l;
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    while ((l = unfinished(c)) != NULL) {
        struct timespec until;
        l->stop = true;
        pthread_kill(l->thread, GRID_STOP); /* nothing, unless a kernel runs */
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += AGAIN_NS;
        if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
        pthread_cond_timedwait(&changed, &lock, &until);
    }
    for (l = lanes; l; l = l->next)
        if (l->context == c) l->context = NULL, l->left = false;
    pthread_mutex_unlock(&lock);
}
