/* Copies between the network and a device. */
#ifndef ELASTIC_AI_COPY_H
#define ELASTIC_AI_COPY_H

#include "../wire.h"

void copy_in(const struct request *r);
void copy_out(const struct request *r);

#endif
