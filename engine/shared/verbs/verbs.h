/* The bytes of one connection over the queue pair of verbs_port.h. One thread reads and one writes at a time, which may be
 * two. */
#ifndef ELASTIC_AI_VERBS_H
#define ELASTIC_AI_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "verbs_port.h"

#ifdef __cplusplus
extern "C" {
#endif

struct iovec;

/* 0, or -1 with errno, which is 0 where the peer closed the connection. `read` takes at least `least` bytes, and more where
 * they are there; `write` uses its parts up. */
int verbs_read(struct verbs *v, void *to, size_t least, size_t most, size_t *got);
int verbs_write(struct verbs *v, struct iovec *parts, size_t count);
/* The longest that the two wait from now on; 0: as long as the peer lives. */
void verbs_patience(struct verbs *v, int ms);

/* For who must not wait long. As recv: what is there within `ms`; 0: the peer closed the connection; EAGAIN: nothing came. */
ssize_t verbs_read_within(struct verbs *v, void *to, size_t most, int ms);
/* As send of a socket that does not wait: what there is room for now; EAGAIN: for nothing. */
ssize_t verbs_write_now(struct verbs *v, const void *from, size_t bytes);
/* Until there is room for a byte, with `reads` or one to read, or `ms` are over. */
void verbs_wait(struct verbs *v, bool reads, int ms);
/* Whether reading would not wait; the end of the connection counts. */
bool verbs_is_ready(struct verbs *v);
/* Whether writing so few bytes (a segment at most) would not wait. */
bool verbs_has_room(struct verbs *v, size_t bytes);
/* Whether less than `bytes` of what was written are still here, and what comes next has room. */
bool verbs_is_idle(struct verbs *v, size_t bytes);
/* Until all that was written is with the peer, or `ms` are over: before this process ends. */
void verbs_flush(struct verbs *v, int ms);

#ifdef __cplusplus
}
#endif
#endif
