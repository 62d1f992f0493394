/* Copies of the program's memory by the lanes. */
#ifndef ELASTIC_AI_LANES_COPY_H
#define ELASTIC_AI_LANES_COPY_H

#include "client.h"

int lanes_copy(struct connection *c, void *at, uint64_t bytes, bool sends); /* 0, or -1 with errno as of a link */

#endif
