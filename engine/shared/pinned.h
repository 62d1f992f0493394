/* What pinned.c needs of the library that it is part of. */
#ifndef ELASTIC_AI_PINNED_H
#define ELASTIC_AI_PINNED_H

#include "cu.h"

CUresult pinned_ready(void); /* whether host memory may be asked for now */

#endif
