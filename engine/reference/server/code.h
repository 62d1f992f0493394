/* Modules and functions. */
#ifndef ELASTIC_AI_CODE_H
#define ELASTIC_AI_CODE_H

#include "../wire.h"
#include "../../shared/cu.h"

/* What a launch of a function needs: its parameters, as the driver has told them. */
struct layout {
    bool known; /* false: of a driver that does not tell them */
    uint32_t count, bytes;
    uint64_t local_bytes; /* of a thread, in device memory */
    struct parameter at[];
};

void module_load(const struct request *r);
CUresult module_unload(const struct request *r, uint64_t *value);
void module_function(const struct request *r);
CUresult module_global(const struct request *r, uint64_t *value);
CUresult function_set(const struct request *r, uint64_t *value);

#endif
