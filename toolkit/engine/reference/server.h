/* The server: a parent that accepts and accounts, a child per connection that drives the devices. */
#ifndef ELASTIC_AI_SERVER_H
#define ELASTIC_AI_SERVER_H

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../shared/cu.h"
#include "wire.h"

#define MAX_CHILDREN 128
#define MAX_ALLOWED 64

/* Memory in use, by child and device, shared by parent and children. A sum over it is exact after any child's death:
 * the parent clears a dead child's row, and the mutex survives its holder. */
struct accounts {
    pthread_mutex_t mutex;
    uint64_t used[MAX_CHILDREN][MAX_DEVICES];
};

struct server {
    const char *bind, *port_file, *token_file;
    int port, report_fd, idle_timeout_s;
    uint64_t memory_limit; /* bytes per device over all children; 0: none */
    struct in6_addr allowed[MAX_ALLOWED]; /* IPv4 as mapped addresses */
    int allowed_count;
    char token[WIRE_TOKEN];
    struct accounts *accounts;
    struct { pid_t pid; } children[MAX_CHILDREN];
};

/* server.c */
extern struct server server;

/* options.c: exits with 2 and a sentence when something is wrong */
void read_options(int argc, char **argv);

/* report.c: one JSON line; drops it rather than block */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* accounts.c */
void accounts_make(void);
bool account_take(int child, int device, uint64_t bytes); /* false: over the limit */
void account_give(int child, int device, uint64_t bytes);
void account_clear(int child);
uint64_t account_used(int device);

/* child.c: never returns */
_Noreturn void serve(int fd, int child, const char *peer);

/* driver.c: the functions of the host's libcuda.so.1 that the server uses */
#define DRIVER(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid) \
    X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) X(cuDeviceGetPCIBusId) X(cuDevicePrimaryCtxRetain) \
    X(cuDevicePrimaryCtxRelease_v2) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxSetCurrent) X(cuCtxSynchronize) \
    X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) X(cuMemAllocHost_v2) X(cuMemFreeHost) \
    X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyPeerAsync) \
    X(cuMemsetD8Async) X(cuMemsetD32Async) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamQuery) \
    X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) \
    X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime)

struct driver {
#define DRIVER_FIELD(name) __typeof__(&name) name;
    DRIVER(DRIVER_FIELD)
#undef DRIVER_FIELD
};
extern struct driver driver;
const char *driver_load(void); /* NULL, or why not */

/* objects.c: handles that a client has are numbers in a table of this child, never the driver's own */
enum kind { FREE_ENTRY = 0, CONTEXT, STREAM, EVENT };

struct staging; /* copy.c */

struct object {
    enum kind kind;
    void *handle;
    int device;
    uint64_t context; /* of a stream or event */
    bool primary;
    struct staging *staging;
};

struct memory {
    CUdeviceptr at;
    uint64_t bytes;
    uint64_t context;
};

uint64_t object_add(enum kind kind, void *handle, int device, uint64_t context);
struct object *object_get(uint64_t number, enum kind kind); /* NULL: no such */
void object_drop(uint64_t number);
/* Forgets all that lived in a context, and gives back what its memory was accounted for. */
void context_forget(uint64_t number, int child);
void memory_add(CUdeviceptr at, uint64_t bytes, uint64_t context);
/* The memory that holds all of [at, at + bytes); NULL: none does. */
struct memory *memory_find(CUdeviceptr at, uint64_t bytes);
void memory_drop(struct memory *memory);

/* connection state of this child */
struct connection {
    int fd, child, devices;
    uint64_t current; /* context */
    CUresult late; /* first error of a request that had no reply */
    char *buffer; /* received, not yet taken */
    size_t from, until;
    struct device_info info[MAX_DEVICES];
    uint64_t primary[MAX_DEVICES];
};
extern struct connection connection;
void receive(void *to, size_t bytes); /* ends the child when the client has gone */
void answer(const struct request *r, CUresult status, uint64_t v0, uint64_t v1, const void *body, uint64_t bytes);
CUresult use_context(uint64_t number);

/* ops.c */
void handle(struct request *r);

/* copy.c */
void copy_in(struct request *r);
void copy_out(struct request *r);
void staging_free(struct object *context);

/* environment.c */
size_t environment(char *to, size_t size);

#endif
