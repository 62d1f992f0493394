/* The servers of this process, and whether one of them was lost. */
#ifndef ELASTIC_AI_CONNECTIONS_H
#define ELASTIC_AI_CONNECTIONS_H

#include "client.h"

extern struct connection connections[MAX_SERVERS];
extern int connection_count, device_count;
extern volatile bool lost; /* a connection broke: all calls fail from then on */
CUresult lose(struct connection *c, const char *why); /* it broke: says so once, and wakes who waits */
struct connection *device_server(CUdevice device, int *local); /* NULL: no such device */

#endif
