/* The data connections of a server. */
#ifndef ELASTIC_AI_JOINING_H
#define ELASTIC_AI_JOINING_H

#include "client.h"

#define STRIPED_BYTES ((size_t)4 << 20) /* from here on a copy is striped */
bool lanes_ready(struct connection *c); /* the lanes of that server; the first call makes them */

#endif
