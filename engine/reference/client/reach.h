/* Sockets that are connected within a time. */
#ifndef ELASTIC_AI_REACH_H
#define ELASTIC_AI_REACH_H

#include <stdint.h>

int64_t now_ms(void);
struct sockaddr;
/* A connected socket, from that address where there is one (`here`); -1 with errno. */
int reach(const struct sockaddr *here, unsigned here_bytes, const struct sockaddr *there, unsigned there_bytes,
          int64_t until_ms);
void limit_socket(int fd, int64_t until_ms); /* to send and to receive; 0: for ever */
/* However this process ends, the server is told at once: else it would first do all that is on its way, for a full window
 * lets no end of a connection through either. */
void end_at_once(int fd);

#endif
