/* What a program of a lease is told of its devices, by ELASTIC_AI_GPUS and ELASTIC_AI_LEASE alone: nothing is asked of
 * anybody. toolkit/lease/endpoint.py writes it (gpus_text). */
#ifndef ELASTIC_AI_NVML_LEASE_H
#define ELASTIC_AI_NVML_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_LEASED 256
#define UNTOLD (-1)

/* A device of the lease. Texts are "" and numbers UNTOLD where nothing is told. */
struct leased {
    char uuid[128];
    char name[96];
    char server[256]; /* whose it is */
    char part[32]; /* of the whole device, "1/2"; "1" for all of it */
    char driver[80]; /* the server's */
    int64_t part_bytes, total_bytes; /* the lease's memory, and the whole device's */
    int64_t server_index; /* its number on the server */
    int64_t cuda; /* the server's newest CUDA, as 13000 */
    int major, minor; /* compute capability */
    bool emulated;
};

/* Its devices: their number, or -1, after a sentence on stderr where what is told is damaged. */
int lease_read(struct leased to[MAX_LEASED]);

/* What they did when their server last said so (ELASTIC_AI_GPUS_USE, a file that toolkit run keeps, a line of three numbers for
 * each): bytes in use, and percent of time in which kernels ran and in which memory was busy. UNTOLD where that is not
 * known, or is older than USE_FRESH_S. */
#define USE_FRESH_S 60
struct use {
    int64_t used_bytes, percent, memory_percent;
};
struct use lease_use(int device);

/* Exported beside NVML for our nvidia-smi, which says more than NVML has names for: the lease's number ("" outside
 * Slurm), and what is told of a device. `size`: of *to. 0, or -1 where there is none. */
struct elastic_lease {
    char lease[32];
    struct leased device;
};
typedef int elastic_lease_f(unsigned index, struct elastic_lease *to, size_t size);
elastic_lease_f elasticAiLeased;

#endif
