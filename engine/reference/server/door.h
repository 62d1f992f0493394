/* Connections whose clients have not shown the lease's token yet. Such a one costs a descriptor: no process, no row of
 * the accounts, nothing of what clients with the token may have. */
#ifndef ELASTIC_AI_DOOR_H
#define ELASTIC_AI_DOOR_H

#include <netinet/in.h>
#include <poll.h>

#define MAX_WAITING 16
#define TOKEN_S 5.0 /* from the connection to its whole hello */

/* Takes a connection, the newest always: where MAX_WAITING wait already, the oldest of the address that has most of
 * them is closed. */
void door_open(int fd, const struct in6_addr *address, const char *peer, double now_s);
/* What to poll for; the number of entries. */
int door_polls(struct pollfd to[MAX_WAITING]);
/* When the first of them must have shown its token; 0: none waits. */
double door_until_s(void);
/* Reads what has come, and closes what is late or wrong, with the reason to its client. A connection that has shown
 * the token: its descriptor, and who it is; -1: no (more) such. *session: -1, or that whose ticket it has shown. */
int door_proven(double now_s, char peer[INET6_ADDRSTRLEN], int *session);
/* Tells of a connection that was refused, within bounds. */
void door_refused(const char *peer, const char *why);
/* In a child: closes the others, and forgets what they said, and the token. */
void door_leave(void);

#endif
