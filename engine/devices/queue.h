/* Streams' work that is under way: each stream with kernels has a thread of its own, so that streams keep their order and
 * run beside each other. What is no kernel and no event waits for what comes before it, and is done by its caller. */
#ifndef ELASTIC_AI_QUEUE_H
#define ELASTIC_AI_QUEUE_H

#include "current.h"

struct lane; /* a stream's work, in order; numbered by tickets */

struct stream {
    enum kind kind;
    struct context *context;
    unsigned flags;
    struct lane *lane; /* NULL: nothing was ever under way */
};

/* Where in the work of a stream something is. */
struct mark { struct lane *lane; uint64_t ticket; };

struct task {
    struct task *next;
    struct context *context;
    /* `skip`: its context has ended or failed. `stop` becomes true when the context ends meanwhile. Frees the task. */
    void (*run)(struct task *task, volatile bool *stop, bool skip);
    struct mark *needs; /* what has to be done before, beside the stream's own */
    int need_count;
};

/* Puts it behind the stream's work; `at` (or NULL) gets where it is. False: no memory or no thread, nothing was done. */
bool queue_add(CUstream stream, struct task *task, struct mark *at);
bool queue_need(struct task *task, struct mark mark); /* false: no memory */
bool queue_busy(CUstream stream, bool before); /* `before`: or what comes before its next work */
void queue_wait(CUstream stream, bool before);
bool queue_done(struct mark mark);
void queue_wait_mark(struct mark mark);
void queue_wait_context(const struct context *context);
void queue_leave(struct stream *stream); /* it is gone; its work goes on */
void queue_end(const struct context *context); /* ends all its work */
void queue_lock(void); /* what tasks share with their callers */
void queue_unlock(void);

#endif
