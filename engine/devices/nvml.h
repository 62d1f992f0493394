/* Parts of the emulated NVML. Names, values and signatures are those of NVIDIA's public nvml.h. */
#ifndef ELASTIC_AI_EMULATED_NVML_H
#define ELASTIC_AI_EMULATED_NVML_H

#include "emulated.h"

#include "../shared/nvml_both.h"

typedef struct gpu *nvmlDevice_t;
extern struct gpu gpus[MAX_GPUS];
int index_of(nvmlDevice_t device); /* in gpus, or a negative error */
int pci_info(int gpu, nvmlPciInfo_t *to); /* OK, or why not */

#endif
