/* Further connections of a session: its client shows the parent a ticket that the session's child has given it, and the
 * parent hands the connection to that child. */
#ifndef ELASTIC_AI_JOIN_H
#define ELASTIC_AI_JOIN_H

#include <stdbool.h>

#include "../wire.h"

/* The parent: tickets for the session of a client that has shown the token, before its child is forked. False: there is
 * nothing to be had for it. */
bool join_open(int child, const char *peer);
void join_forked(int child);
/* Whose ticket this is, which is then used up; -1: nobody's, or of a client at another address. */
int join_take(const char ticket[WIRE_TOKEN], const char *peer);
int join_pass(int child, int fd); /* 0, or -1 */
void join_close(int child); /* of a child that has ended, or that there is none of */

/* The child: forgets the others'. */
void join_keep(int child);
void join_tell(const struct request *r); /* OP_TICKETS */
void join_lanes(const struct request *r); /* OP_LANES */

#endif
