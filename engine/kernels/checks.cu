/* Kernels that show whether a device, or an engine before it, does what a launch says. */
#include "kernel.h"

struct Pair {
    short first;
    double second;
};

__device__ unsigned launches;
__constant__ int table[4];

extern "C" __global__ void scale(float *data, float by, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] *= by;
}

/* Which thread of which block was there, in all three dimensions. */
extern "C" __global__ void place(unsigned *to) {
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    to[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 10000 + thread;
}

/* Sums of whole blocks of 256 threads, added up. */
extern "C" __global__ void sum(const int *from, int *to, unsigned count) {
    __shared__ int part[256];
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = i < count ? from[i] : 0;
    for (unsigned half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (!threadIdx.x) atomicAdd(to, part[0]);
}

/* Each block turns its part of the data round, in dynamic shared memory. */
extern "C" __global__ void turn(int *data) {
    DYNAMIC_SHARED(int, held);
    int *mine = data + blockIdx.x * blockDim.x;
    held[threadIdx.x] = mine[threadIdx.x];
    __syncthreads();
    mine[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

/* Parameters of many sizes. */
extern "C" __global__ void take(char a, short b, char c, int d, char e, long long f, Pair g, double *to) {
    to[0] = a, to[1] = b, to[2] = c, to[3] = d, to[4] = e, to[5] = f, to[6] = g.first, to[7] = g.second;
}

extern "C" __global__ void count(int *to) {
    unsigned before = atomicAdd(&launches, 1u);
    if (to) to[before] = table[before & 3];
}

/* Some threads leave before the barrier. */
extern "C" __global__ void leave(int *to) {
    if (threadIdx.x & 1) return;
    __syncthreads();
    to[threadIdx.x / 2] = (int)threadIdx.x;
}

extern "C" __global__ void stray(int *to, long long by) { to[by] = 1; }

/* Runs until `flag` is no longer 0, for ever if it stays so. */
extern "C" __global__ void wait(volatile int *flag) {
    while (!*flag) {}
}

/* The device is busy with so many steps of a whole number's sequence, and what they come to can be told. */
extern "C" __global__ void spin(unsigned *to, unsigned steps) {
    unsigned value = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = 0; i < steps; i++) value = value * 1664525u + 1013904223u;
    to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

HOST_MODULE(KERNELS(KERNEL(scale), KERNEL(place), KERNEL(sum), KERNEL(turn), KERNEL(take), KERNEL(count), KERNEL(leave),
                    KERNEL(stray), KERNEL(wait), KERNEL(spin)),
            GLOBALS(GLOBAL(launches), GLOBAL(table)))
