/* The CUDA runtime behind cuda_memory.c. No header of CUDA: the types are ours, the numbers are the runtime's. */
#pragma once

#include <stddef.h>

enum {
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_INVALID_DEVICE = 101,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_STREAM_NON_BLOCKING = 1,
};

/* Who called the function in which this stands. */
#define CALLER __builtin_return_address(0)

struct runtime {
    int (*malloc)(void **, size_t);
    int (*free)(void *);
    int (*mem_get_info)(size_t *, size_t *);
    int (*host_alloc)(void **, size_t, unsigned);
    int (*free_host)(void *);
    int (*get_device)(int *);
    int (*set_device)(int);
    int (*device_synchronize)(void);
    int (*memset_async)(void *, int, size_t, void *);
    int (*stream_create)(void **, unsigned);
    int (*stream_synchronize)(void *);
    /* of some releases alone: */
    int (*entry_point)(const char *, void **, unsigned long long, int *);
    int (*entry_point_by_version)(const char *, void **, unsigned, unsigned long long, int *);
};
extern struct runtime runtime;

/* Finds it, by who calls; 0, or the error that its functions answer where there is none. */
int runtime_error(const void *caller);
