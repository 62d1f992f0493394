/* What a program hands over as code. */
#ifndef ELASTIC_AI_IMAGE_H
#define ELASTIC_AI_IMAGE_H

#include "../shared/cu.h"
#include "host_module.h"

#define LOG_BYTES 512

/* A host module of its own, loaded for one context, and the PTX that it is of. */
struct image {
    char *ptx; /* without the host module */
    void *library;
    int file; /* of the library, open as long: dlopen knows libraries by their path, which has its number */
    const struct host_module *module;
    int target; /* 70 for .target sm_70 */
};

/* `log` gets why it is not loaded: one sentence, as the driver's compiler gives it. */
CUresult image_load(const char *text, struct image *to, char log[LOG_BYTES]);
/* The code is for a device of that compute capability, 70 for 7.0. */
CUresult image_fits(const struct image *image, int capability, char log[LOG_BYTES]);
void image_unload(struct image *image);
int image_shared_bytes(const struct image *image, const char *kernel); /* static shared memory, by the PTX */

#endif
