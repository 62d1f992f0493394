/* The client's library: the driver API on one side, a connection per server on the other. */
#ifndef ELASTIC_AI_CLIENT_H
#define ELASTIC_AI_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../shared/cu.h"
#include "../lanes.h"
#include "../link.h"
#include "../wire.h"

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

static inline bool plausible(const void *handle) { /* malloc gives no others */
    return handle && !((uintptr_t)handle % _Alignof(max_align_t));
}

#endif
