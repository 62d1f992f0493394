/* Host memory that a program pins. */
#ifndef ELASTIC_AI_PINNED_H
#define ELASTIC_AI_PINNED_H

#include "cu.h"

/* The library that this is part of says whether host memory may be asked for now; until then it may not. */
void pinned_allow(CUresult (*may)(void));

#endif
