/* The client's library: the driver API on one side, a connection per server on the other. */
#ifndef ELASTIC_AI_CLIENT_H
#define ELASTIC_AI_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../shared/cu.h"
#include "lanes.h"
#include "link.h"
#include "wire.h"

#define MAX_SERVERS 16

/* A reply that is waited for. Replies come in the order of requests, so a queue finds them. */
struct pending {
    struct pending *next;
    uint32_t seq;
    bool done, detached; /* detached: nobody waits; data go to their place when they come */
    void *to;
    uint64_t room; /* payload that fits in `to`, which must come in full unless `text` */
    bool text;
    bool striped; /* its payload comes by the lanes */
    bool grows; /* `to` is made by malloc when the reply has come, for as much as there is */
    struct reply reply;
};

/* Requests without reply that have not left yet: batch.c. */
struct batch {
    char *data;
    size_t bytes;
    uint64_t sent_ns; /* when something left last */
};

struct connection {
    char host[288], port[8], name[300];
    struct link link;
    struct lanes lanes; /* by the locks of `send` and of `receive`, one way each */
    pthread_mutex_t joining;
    int joined; /* whether there are lanes: joining.c */
    int number;
    pthread_mutex_t send, receive, queue; /* taken in this order */
    pthread_cond_t came; /* detached requests are in the queue */
    struct pending *first, **last;
    uint32_t seq;
    struct batch batch; /* of requests that leave together */
    bool draining; /* the thread that takes detached replies has been started */
    int device_base, devices;
    int cuda_version;
    struct device_info info[MAX_DEVICES];
};

enum kind { CONTEXT = 0x45414943, STREAM, EVENT, MODULE, FUNCTION, LIBRARY, KERNEL };

/* What CUcontext, CUstream, CUevent and the handles of code.h of the program point to. */
struct object {
    enum kind kind;
    struct connection *c;
    uint64_t number; /* the server's */
    int device; /* of a context, over all servers */
    struct object *context; /* of a stream, event, module or function */
    CUresult fault; /* of a context: of a kernel, what every call returns from then on, as the server has said */
    unsigned life; /* of a context, how often it has ended: a primary one begins anew */
};

/* connect.c */
extern struct connection connections[MAX_SERVERS];
extern int connection_count, device_count;
CUresult connect_all(void);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
int64_t now_ms(void);
struct sockaddr;
/* A connected socket, from that address where there is one (`here`); -1 with errno. */
int reach(const struct sockaddr *here, unsigned here_bytes, const struct sockaddr *there, unsigned there_bytes,
          int64_t until_ms);
void limit_socket(int fd, int64_t until_ms); /* to send and to receive; 0: for ever */

/* joining.c */
#define STRIPED_BYTES ((size_t)4 << 20) /* from here on a copy is striped */
bool lanes_ready(struct connection *c); /* the lanes of that server; the first call makes them */
int lanes_copy(struct connection *c, void *at, uint64_t bytes, bool sends); /* 0, or -1 with errno as of a link */

/* transport.c */
CUresult transport_wanted(bool *verbs); /* what the environment asks for, before anybody is asked */
CUresult transport_offered(const struct connection *c, const char *offered); /* whether the server has that */
CUresult transport_verbs(struct connection *c); /* takes the connection from TCP to verbs, or says why that is not possible */

/* rpc.c */
extern volatile bool lost; /* a connection broke: all calls fail from then on */
CUresult call(struct connection *c, struct request *r, const void *body, struct reply *reply);
CUresult call_for_data(struct connection *c, struct request *r, void *to, uint64_t room, bool text, uint64_t *got);
/* Payload both ways: what comes back is at *to, of malloc, or NULL. */
CUresult call_for_text(struct connection *c, struct request *r, const void *body, struct reply *reply, void **to);
CUresult post(struct connection *c, struct request *r, const void *body); /* no reply: errors come with a later call */
CUresult post_for_data(struct connection *c, struct request *r, void *to, uint64_t room);
/* The same in two steps: the reply is for `pending`, which must live until `await` returns. */
CUresult ask(struct connection *c, struct request *r, const void *body, struct pending *pending);
CUresult await(struct connection *c, struct pending *pending);

/* batch.c: called with the connection's `send` held. 0, or -1 with errno. */
int batch_add(struct connection *c, const struct request *r, const void *body); /* leaves soon */
int batch_send(struct connection *c, const struct request *r, const void *body); /* all of it leaves now */

static inline bool plausible(const void *handle) { /* malloc gives no others */
    return handle && !((uintptr_t)handle % _Alignof(max_align_t));
}

/* device.c */
CUresult ready(void); /* the error of every call before cuInit, after a loss, and in a forked child */
struct connection *device_server(CUdevice device, int *local);

/* context.c */
struct object *current(void); /* NULL: none */
struct object *object_of(void *handle, enum kind kind); /* NULL: no such */
CUresult context_says(struct object *context, CUresult status); /* `status`, which is kept where it stays */
struct object *object_make(enum kind kind, struct connection *c, uint64_t number, struct object *context);

/* stream.c: the server's number of a stream (0: the default one) and whose it is */
CUresult stream_find(CUstream stream, struct object **context, uint64_t *number);

#endif
