/* TCP or verbs, as the program's environment asks. */
#ifndef ELASTIC_AI_TRANSPORT_H
#define ELASTIC_AI_TRANSPORT_H

#include "client.h"

CUresult transport_wanted(bool *verbs); /* what the environment asks for, before anybody is asked */
CUresult transport_offered(const struct connection *c, const char *offered); /* whether the server has that */
CUresult transport_verbs(struct connection *c); /* takes the connection from TCP to verbs, or says why that is not possible */

#endif
