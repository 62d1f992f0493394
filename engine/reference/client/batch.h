/* Requests that leave together. Called with the connection's `send` held. 0, or -1 with errno. */
#ifndef ELASTIC_AI_BATCH_H
#define ELASTIC_AI_BATCH_H

#include "client.h"

int batch_add(struct connection *c, const struct request *r, const void *body); /* leaves soon */
int batch_send(struct connection *c, const struct request *r, const void *body); /* all of it leaves now */

#endif
