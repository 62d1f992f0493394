/* Memory of emulated devices. */
#ifndef ELASTIC_AI_DEVICE_MEMORY_H
#define ELASTIC_AI_DEVICE_MEMORY_H

#include "current.h"

void memory_forget(const struct context *context);
bool memory_show(void); /* device addresses become addresses of this process: kernels use them */
bool memory_lend(const struct context *context, void *at, size_t bytes); /* a module's variable is device memory */
void memory_return(void *at);
void memory_slow(int gpu, uint64_t began); /* a slow GPU takes longer for what began then */
CUresult memory_broken(int gpu); /* of what is described to end its work */

#endif
