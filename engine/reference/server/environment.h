/* What the server says of itself, as JSON. */
#ifndef ELASTIC_AI_ENVIRONMENT_H
#define ELASTIC_AI_ENVIRONMENT_H

#include <stddef.h>

size_t environment(char *to, size_t size); /* length of the text */

#endif
