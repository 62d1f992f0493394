/* Copies between the network and a device. */
#ifndef ELASTIC_AI_COPY_H
#define ELASTIC_AI_COPY_H

#include "handles.h"
#include "wire.h"

#define STAGING_EVENTS 4 /* of the driver, in each context that copies */

void copy_in(const struct request *r);
void copy_out(const struct request *r);
void staging_free(struct handle *context); /* the context must be current */

#endif
