/* A copy by the processors of a GPU instead of its copy engines: each thread takes every n-th piece of 16 bytes. */
#include "kernel.h"

struct alignas(16) Piece {
    unsigned a, b, c, d;
};

extern "C" __global__ void copy(const Piece *from, Piece *to, unsigned long long pieces) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < pieces; at += step)
        to[at] = from[at];
}

HOST_MODULE(KERNELS(KERNEL(copy)), GLOBALS())
