/* Whether NVML is initialised. */
#ifndef ELASTIC_AI_NVML_OPENED_H
#define ELASTIC_AI_NVML_OPENED_H
#include <stdbool.h>
bool opened(void);
#endif
