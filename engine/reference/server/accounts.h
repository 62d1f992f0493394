/* Memory in use, by child and device, shared by parent and children. A sum over it is exact after any child's death:
 * the parent clears a dead child's row, and the mutex survives its holder. */
#ifndef ELASTIC_AI_ACCOUNTS_H
#define ELASTIC_AI_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_CHILDREN 128

void accounts_make(void);
bool account_take(int child, int device, uint64_t bytes); /* false: over the limit */
void account_give(int child, int device, uint64_t bytes);
void account_clear(int child);
uint64_t account_used(int device);

#endif
