/* Which context is current in a thread, and what the program's handles are. */
#ifndef ELASTIC_AI_CURRENT_H
#define ELASTIC_AI_CURRENT_H

#include "client.h"

struct object *current(void); /* NULL: none */
CUresult current_push(struct object *context);
struct object *current_pop(void); /* NULL: there was none */
struct object *object_of(void *handle, enum kind kind); /* NULL: no such */
CUresult context_says(struct object *context, CUresult status); /* `status`, which is kept where it stays */
struct object *object_make(enum kind kind, struct connection *c, uint64_t number, struct object *context);

#endif
