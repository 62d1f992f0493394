/* What a host module is: kernels compiled by g++ with kernels/kernel.h, which an emulated device loads and runs. For C and
 * C++. A module exports `elasticAiHostModule`. */
#ifndef ELASTIC_AI_HOST_MODULE_H
#define ELASTIC_AI_HOST_MODULE_H

#include <stddef.h>
#include <stdint.h>

#define HOST_MODULE_MAGIC 0x4b4d4145u /* "EAMK" */
#define HOST_MODULE_VERSION 1
#define HOST_MODULE_SYMBOL "elasticAiHostModule"

struct host_index { unsigned x, y, z; };

/* Who a thread of a grid is. */
struct host_thread { struct host_index thread, block, block_size, grid_size; };

/* What a kernel may ask of the device that runs it. */
struct host_calls {
    void (*barrier)(void); /* of the block */
    void *(*shared)(void); /* the block's dynamic shared memory */
};

struct host_param { uint32_t offset, bytes; };

struct host_kernel {
    const char *name;
    void (*run)(const unsigned char *params, const struct host_thread *thread, const struct host_calls *calls);
    const struct host_param *params;
    uint32_t param_count, param_bytes;
};

struct host_global {
    const char *name;
    void *at;
    uint64_t bytes;
};

struct host_module {
    uint32_t magic, version;
    uint64_t ptx_hash; /* of the PTX text that was made of the same source */
    const struct host_kernel *kernels;
    const struct host_global *globals;
    uint32_t kernel_count, global_count;
};

/* FNV-1a, 64 bits (draft-eastlake-fnv): tells texts apart, and keeps nobody out. */
static inline uint64_t host_module_hash(const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

#endif
