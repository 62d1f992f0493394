/* Launches, and what bounds them. */
#ifndef ELASTIC_AI_LAUNCH_H
#define ELASTIC_AI_LAUNCH_H

#include "../wire.h"
#include "../../shared/cu.h"

CUresult launch(const struct request *r, uint64_t *value);
CUresult occupancy(const struct request *r, uint64_t *value);
CUresult limit_get(const struct request *r, uint64_t *value);
CUresult limit_set(const struct request *r, uint64_t *value);
CUresult priorities(const struct request *r, uint64_t *value);

#endif
