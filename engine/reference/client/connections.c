#define _GNU_SOURCE
#include "connections.h"

#include <sys/socket.h>

#include "say.h"

struct connection connections[MAX_SERVERS];
int connection_count, device_count;
volatile bool lost;

CUresult lose(struct connection *c, const char *why) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once);
    if (!lost) {
        __atomic_store_n(&lost, true, __ATOMIC_SEQ_CST); /* before the lanes are looked for: who makes some looks here */
        say("the connection to %s is lost (%s): its lease has ended or the network is cut; every CUDA call fails now",
            c->name, why);
        for (int i = 0; i < connection_count; i++) { /* wakes who waits */
            shutdown(connections[i].link.fd, SHUT_RDWR);
            lanes_shut(&connections[i].lanes);
        }
    }
    pthread_mutex_unlock(&once);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

struct connection *device_server(CUdevice device, int *local) {
    for (int i = 0; i < connection_count; i++) {
        *local = device - connections[i].device_base;
        if (*local >= 0 && *local < connections[i].devices) return &connections[i];
    }
    return NULL;
}
