/* Limits of a context. */
#ifndef ELASTIC_AI_LIMITS_H
#define ELASTIC_AI_LIMITS_H

#include "current.h"

void limits_end(struct context *context);

#endif
