/* How long a code image is. */
#ifndef ELASTIC_AI_IMAGE_BYTES_H
#define ELASTIC_AI_IMAGE_BYTES_H

#include <stddef.h>

/* Bytes of the image, of which up to `room` are there (SIZE_MAX where that is not known): a cubin's and a fat binary's by
 * their headers, PTX's with its terminating zero. 0: it is none, or says that it is longer. */
size_t image_bytes(const void *image, size_t room);

#endif
