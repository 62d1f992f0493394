/* Who the servers are, and the way to them. */
#ifndef ELASTIC_AI_CONNECT_H
#define ELASTIC_AI_CONNECT_H

#include "client.h"

CUresult connect_all(void);

#endif
