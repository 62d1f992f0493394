/* Running grids of host modules. */
#ifndef ELASTIC_AI_GRID_H
#define ELASTIC_AI_GRID_H

#include <signal.h>
#include <stdbool.h>

#include "../shared/cu.h"
#include "host_module.h"

/* CUDA C++ Programming Guide, technical specifications for each compute capability: 7.0. */
#define MAX_BLOCK_THREADS 1024
#define MAX_BLOCK_Z 64
#define MAX_GRID_YZ 65535
#define MAX_SHARED_BYTES (96 << 10) /* of a block that asks for it, and of a multiprocessor */
#define USUAL_SHARED_BYTES (48 << 10) /* of a block that does not */
#define MAX_SM_THREADS 2048
#define MAX_SM_BLOCKS 32
#define WARP 32
#define GRID_STOP SIGURG /* ends the kernel of the thread that gets it; nothing otherwise, as by default */

struct grid {
    const struct host_kernel *kernel;
    const unsigned char *params;
    unsigned grid[3], block[3];
    volatile bool *stop; /* set by others: the kernel ends at its next barrier or block */
};

CUresult grid_run(const struct grid *grid);

#endif
