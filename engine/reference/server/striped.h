/* Copies between the network and a device whose bytes go by the session's lanes. */
#ifndef ELASTIC_AI_STRIPED_H
#define ELASTIC_AI_STRIPED_H

#include "../wire.h"

void striped_in(const struct request *r);
void striped_out(const struct request *r);

#endif
