/* The GPUs that this process sees, from its first call on. */
#ifndef ELASTIC_AI_SEEN_H
#define ELASTIC_AI_SEEN_H

#include "../shared/cu.h"
#include "emulated.h"

extern struct gpu gpus[MAX_GPUS];
extern int visible[MAX_GPUS], visible_count; /* of the process's devices, which GPU of the node each is */
extern CUresult ended; /* of an error that leaves no context of this process usable, what every call then says */
CUresult seen_start(void); /* reads what there is, once */
CUresult seen_status(void); /* what that said; before it, that nothing was started */
CUresult gpu_of(CUdevice device, const struct gpu **gpu);

#endif
