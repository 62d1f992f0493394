/* What client and server say to each other. Little-endian, fixed sizes; requests of a connection are handled in order,
 * and so are the replies of those that want one. Hello and welcome keep their form over all releases. */
#ifndef ELASTIC_AI_WIRE_H
#define ELASTIC_AI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC "EAIREF1\n"
#define WIRE_JOIN "EAIJOIN\n" /* instead of the magic: a data connection of a session, with a ticket for its token */
#define WIRE_PROTOCOL 6
#define WIRE_TOKEN 256
#define WIRE_ATTRIBUTES 192 /* those of the driver below it are passed on: room beyond CU_DEVICE_ATTRIBUTE_MAX */
#define MAX_DEVICES 16
#define CHUNK ((size_t)1 << 20) /* of a copy: small enough to stay in a processor's cache between two steps */
#define MOST_LANES 4 /* data connections of a session: lanes.h */
#define LANE_END UINT64_MAX
#define WIRE_TICKET 33 /* 128 random bits as text, and the zero behind it; good for one data connection */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

struct hello {
    char magic[8];
    uint32_t protocol, pid;
    char release[64];
    char client[64];
    char token[WIRE_TOKEN]; /* padded with zeros */
};

/* STARTING comes first where token and release are right, at once; then, when the driver has started, WELCOME or
 * NO_DRIVER. A driver without persistence mode starts for seconds, by GPU. */
enum { WELCOME = 0, WRONG_RELEASE = 1, WRONG_TOKEN = 2, NO_DRIVER = 3, STARTING = 4 };
#define STARTING_S 60 /* the longest from one to the other */

struct welcome {
    char magic[8];
    uint32_t protocol, verdict;
    char release[64];
    char why[120]; /* of NO_DRIVER; of WELCOME: the transports that the server offers, "tcp,verbs" */
    int32_t cuda_version;
    uint32_t devices; /* that many struct device_info follow */
};

struct device_info {
    char name[128];
    uint8_t uuid[16];
    char pci_bus_id[32];
    uint64_t total_bytes;
    int32_t attribute[WIRE_ATTRIBUTES], attribute_status[WIRE_ATTRIBUTES];
};

enum op {
    OP_ENVIRONMENT = 1, /* -> JSON text */
    OP_PRIMARY_RETAIN, /* device -> context */
    OP_CTX_CREATE, /* flags, device -> context */
    OP_CTX_DESTROY, /* context; also gives a primary context back */
    OP_CTX_SYNC,
    OP_ALLOC, /* bytes -> pointer */
    OP_FREE, /* pointer */
    OP_MEM_INFO, /* -> free, total */
    OP_HTOD, /* pointer, bytes, stream; payload */
    OP_DTOH, /* pointer, bytes, stream -> payload */
    OP_DTOD, /* to, from, bytes, stream */
    OP_PEER, /* to, to_context, from, from_context, bytes, stream */
    OP_MEMSET, /* pointer, value, count, width, stream */
    OP_STREAM_CREATE, /* flags, priority -> stream */
    OP_STREAM_DESTROY,
    OP_STREAM_QUERY,
    OP_STREAM_SYNC,
    OP_STREAM_WAIT, /* stream, event */
    OP_EVENT_CREATE, /* flags -> event */
    OP_EVENT_DESTROY,
    OP_EVENT_RECORD, /* event, stream */
    OP_EVENT_QUERY,
    OP_EVENT_SYNC,
    OP_EVENT_ELAPSED, /* start, end -> bits of a float, milliseconds */
    OP_MODULE_LOAD, /* options; payload: these, image -> module, length of the first text; what the compiler says, and
                       what it objects to */
    OP_MODULE_UNLOAD, /* module */
    OP_MODULE_FUNCTION, /* module; payload: name -> function; struct function_info, its parameters */
    OP_MODULE_GLOBAL, /* module; payload: name -> pointer, bytes */
    OP_FUNC_SET, /* function, attribute or FUNC_CACHE_CONFIG, value -> the attribute then */
    OP_LAUNCH, /* function, stream, grid x y, grid z block x, block y z, shared memory and attributes (each pair: the
                  first in the lower half); payload: parameters, attributes */
    OP_OCCUPANCY, /* enum occupancy, function, block size, dynamic shared memory, flags -> what was asked for */
    OP_LIMIT_GET, /* CUlimit -> value */
    OP_LIMIT_SET, /* CUlimit, value */
    OP_PRIORITIES, /* -> least, greatest, of streams */
    /* Concerns the connection, so it is apart. By TCP, payload struct verbs_end -> struct verbs_end, or a sentence; all
     * that follows goes by verbs, and the first of it is the same request without payload -> nothing. */
    OP_VERBS = 64,
    OP_TICKETS, /* -> MOST_LANES tickets */
    OP_LANES, /* count: data connections that have been welcomed, which the session now has */
};

/* Of OP_OCCUPANCY: blocks of that size on a multiprocessor; the block size that fills the device (the block size of the
 * request is the largest) -> grid size, block size; shared memory for that many blocks (flags) -> bytes. */
enum occupancy { ACTIVE_BLOCKS, BEST_BLOCK_SIZE, SHARED_LEFT };

#define FUNC_CACHE_CONFIG 0xffff
#define FUNC_ATTRIBUTES 32 /* room beyond CU_FUNC_ATTRIBUTE_MAX */
#define MOST_PARAMETERS 4096
#define MOST_PARAMETER_BYTES 32764 /* CUDA C++ Programming Guide: of a kernel, from compute capability 7.0 */
#define MOST_ATTRIBUTES 16
#define MOST_OPTIONS 32

struct jit_option { uint32_t option, unused; uint64_t value; };
struct parameter { uint32_t offset, bytes; };
struct function_info {
    uint32_t parameters; /* that many struct parameter follow */
    int32_t layout_status; /* of a driver that does not tell parameters (before CUDA 12.4): 801 */
    int32_t attribute[FUNC_ATTRIBUTES], attribute_status[FUNC_ATTRIBUTES];
};
struct launch_attribute { int32_t id, unused; uint8_t value[64]; };

/* WAIT for the device, before replying. STRIPED: the bytes of a copy go by the lanes, and the request and its reply have
 * no payload; those of a copy to the host come behind a reply that says that it succeeds. */
enum { FLAG_REPLY = 1, FLAG_WAIT = 2, FLAG_STRIPED = 4 };

struct request {
    uint32_t op, flags, seq, unused;
    uint64_t bytes; /* of the payload that follows */
    uint64_t context; /* 0: none, or that of the memory */
    uint64_t arg[6];
};

struct reply {
    uint32_t seq;
    int32_t status;
    uint64_t bytes; /* of the payload that follows */
    uint64_t value[2];
};

/* All of it or an error: 0, or -1 with errno (0 in errno: the other side closed the connection). */
int read_all(int fd, void *to, size_t bytes);
int write_all(int fd, const void *from, size_t bytes);
/* Header and payload in as few packets as fit. */
int write_both(int fd, const void *head, size_t head_bytes, const void *body, size_t body_bytes);
struct iovec;
int write_parts(int fd, struct iovec *parts, size_t count); /* which are used up */
int look_ms(void); /* who waits for the other side looks that often whether the network is cut */
bool is_cut(int fd);
bool may_go_on(int fd); /* by errno of a read or a write that failed */
/* Small messages leave at once; a peer that vanished is noticed within 30 s: while nothing is on its way by this, */
void tune_socket(int fd);
/* and else by this, from the moment on at which the connection has no other limit. */
void watch_socket(int fd);
/* The time does not tell where the first difference is. */
bool equal_secret(const char *a, const char *b, size_t bytes);

#endif
