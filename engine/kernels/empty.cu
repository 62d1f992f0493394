/* A kernel that does nothing: what a launch itself takes. */
#include "kernel.h"

extern "C" __global__ void empty() {}

HOST_MODULE(KERNELS(KERNEL(empty)), GLOBALS())
