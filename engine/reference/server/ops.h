/* What each request does. */
#ifndef ELASTIC_AI_OPS_H
#define ELASTIC_AI_OPS_H

#include <stdbool.h>

#include "../wire.h"

void serve_request(const struct request *r);
bool takes_payload(const struct request *r);
const char *op_name(const struct request *r); /* for reports; "unknown" where there is no such operation */

#endif
