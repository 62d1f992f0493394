/* Requests and replies. */
#ifndef ELASTIC_AI_RPC_H
#define ELASTIC_AI_RPC_H

#include "client.h"

CUresult call(struct connection *c, struct request *r, const void *body, struct reply *reply);
CUresult call_for_data(struct connection *c, struct request *r, void *to, uint64_t room, bool text, uint64_t *got);
/* Payload both ways: what comes back is at *to, of malloc, or NULL. */
CUresult call_for_text(struct connection *c, struct request *r, const void *body, struct reply *reply, void **to);
CUresult post(struct connection *c, struct request *r, const void *body); /* no reply: errors come with a later call */
CUresult post_for_data(struct connection *c, struct request *r, void *to, uint64_t room);
/* The same in two steps: the reply is for `pending`, which must live until `await` returns. */
CUresult ask(struct connection *c, struct request *r, const void *body, struct pending *pending);
CUresult await(struct connection *c, struct pending *pending);

#endif
