/* Streams. */
#ifndef ELASTIC_AI_DEVICE_STREAM_H
#define ELASTIC_AI_DEVICE_STREAM_H

#include "current.h"

CUresult stream_check(CUstream stream);
CUresult stream_settle(CUstream stream); /* and waits for what comes before its next work */
struct context *stream_context(CUstream stream);

#endif
