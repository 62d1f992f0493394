#define _GNU_SOURCE
#include "start.h"

#include <unistd.h>

#include "../../shared/pinned.h"
#include "connect.h"
#include "connections.h"

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static volatile bool started;
static volatile bool forked;
static CUresult start_status;

/* A connection belongs to the process that made it. A forked child must not keep it open for a parent that died. */
static void in_child(void) {
    if (!started) return;
    forked = true;
    for (int i = 0; i < connection_count; i++) {
        link_forget(&connections[i].link);
        for (unsigned lane = 0; lane < connections[i].lanes.count; lane++) close(connections[i].lanes.fd[lane]);
    }
}

CUresult start(void) {
    if (forked) return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&starting);
    if (!started) {
        start_status = connect_all();
        if (!start_status) pthread_atfork(NULL, NULL, in_child);
        pinned_allow(ready);
        started = true;
    }
    pthread_mutex_unlock(&starting);
    return start_status;
}

CUresult ready(void) {
    if (!started || forked) return CUDA_ERROR_NOT_INITIALIZED;
    if (lost) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return start_status;
}
