/* Streams. */
#ifndef ELASTIC_AI_STREAM_H
#define ELASTIC_AI_STREAM_H

#include "client.h"

/* The server's number of a stream (0: the default one) and whose it is. */
CUresult stream_find(CUstream stream, struct object **context, uint64_t *number);

#endif
