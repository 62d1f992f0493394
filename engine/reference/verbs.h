/* The bytes of one connection over the queue pair of verbs_port.h. */
#ifndef ELASTIC_AI_VERBS_H
#define ELASTIC_AI_VERBS_H

#include <stddef.h>

#include "verbs_port.h"

struct iovec;

/* As read_all and write_parts of wire.h. One thread reads and one writes at a time, which may be two. */
int verbs_read(struct verbs *v, void *to, size_t least, size_t most, size_t *got);
int verbs_write(struct verbs *v, struct iovec *parts, size_t count);
/* The longest that the two wait from now on; 0: as long as the peer lives. */
void verbs_patience(struct verbs *v, int ms);

#endif
