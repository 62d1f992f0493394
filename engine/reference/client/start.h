/* From the first call on, and in a forked child no more. */
#ifndef ELASTIC_AI_START_H
#define ELASTIC_AI_START_H

#include "client.h"

CUresult start(void); /* connects to all servers, once */
CUresult ready(void); /* the error of every call before cuInit, after a loss, and in a forked child */

#endif
