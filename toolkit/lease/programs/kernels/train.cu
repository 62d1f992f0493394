/* The kernels of elastic-ai-train: a small network's forward and backward pass and its update. + - * / and whole numbers
 * alone, in a fixed order: the losses have the same bits on every device. Matrices are row by row. */
#include "kernel.h"

/* e^x of x <= 0: by halves of ln 2, and the series up to x^8 of what is left. */
static __device__ float power(float x) {
    if (x < -87.0f) return 0.0f;
    int twos = (int)(x * 1.44269504f - 0.5f);
    float rest = x - (float)twos * 0.693359375f + (float)twos * 2.12194440e-4f; /* ln 2 in two parts */
    float sum = 1.0f;
    for (int i = 8; i > 0; i--) sum = 1.0f + sum * rest / (float)i;
    return sum * __int_as_float((twos + 127) << 23);
}

/* ln x of x >= 1: 2 atanh((m - 1) / (m + 1)) of its mantissa. */
static __device__ float logarithm(float x) {
    int bits = __float_as_int(x), twos = (bits >> 23) - 127;
    float m = __int_as_float((bits & 0x7fffff) | 127 << 23);
    if (m > 1.41421356f) m = m * 0.5f, twos++;
    float s = (m - 1.0f) / (m + 1.0f), square = s * s, sum = 0.0f;
    for (int i = 11; i > 0; i -= 2) sum = sum * square + 1.0f / (float)i;
    return 2.0f * s * sum + (float)twos * 0.69314718f;
}

/* c[i, j] = sum over k of a[i, k] b[k, j]; how far apart neighbours are says what is transposed. */
extern "C" __global__ void gemm(const float *a, const float *b, float *c, unsigned rows, unsigned columns, unsigned depth,
                                unsigned a_row, unsigned a_step, unsigned b_step, unsigned b_column) {
    unsigned i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows || j >= columns) return;
    float sum = 0.0f;
    for (unsigned k = 0; k < depth; k++) sum += a[i * a_row + k * a_step] * b[k * b_step + j * b_column];
    c[i * columns + j] = sum;
}

extern "C" __global__ void add_bias(float *values, const float *bias, unsigned rows, unsigned columns, int relu) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    float value = values[i] + bias[i % columns];
    values[i] = relu && value < 0.0f ? 0.0f : value;
}

/* Softmax with cross-entropy: each row's loss, and the gradient of the mean over `all` rows. */
extern "C" __global__ void softmax_loss(const float *logits, const int *labels, float *gradient, float *losses, unsigned rows,
                                        unsigned columns, unsigned all) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const float *row = logits + i * columns;
    float most = row[0], sum = 0.0f;
    for (unsigned j = 1; j < columns; j++) most = row[j] > most ? row[j] : most;
    for (unsigned j = 0; j < columns; j++) sum += power(row[j] - most);
    for (unsigned j = 0; j < columns; j++) {
        float part = power(row[j] - most) / sum;
        gradient[i * columns + j] = (part - ((int)j == labels[i] ? 1.0f : 0.0f)) / (float)all;
    }
    losses[i] = logarithm(sum) - (row[labels[i]] - most);
}

/* One block of 256 threads. */
extern "C" __global__ void sum_up(const float *values, float *to, unsigned count) {
    __shared__ float part[256];
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < count; i += 256) sum += values[i];
    part[threadIdx.x] = sum;
    for (unsigned half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (!threadIdx.x) *to = part[0];
}

extern "C" __global__ void sum_columns(const float *values, float *to, unsigned rows, unsigned columns) {
    unsigned j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    float sum = 0.0f;
    for (unsigned i = 0; i < rows; i++) sum += values[i * columns + j];
    to[j] = sum;
}

/* Where ReLU let nothing through, no gradient comes back. */
extern "C" __global__ void relu_back(float *gradient, const float *values, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && values[i] <= 0.0f) gradient[i] = 0.0f;
}

extern "C" __global__ void add(float *to, const float *from, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] += from[i];
}

/* SGD with momentum. */
extern "C" __global__ void update(float *weights, float *moved, const float *gradient, unsigned count, float rate, float keep) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    moved[i] = moved[i] * keep + gradient[i];
    weights[i] -= moved[i] * rate;
}

HOST_MODULE(KERNELS(KERNEL(gemm), KERNEL(add_bias), KERNEL(softmax_loss), KERNEL(sum_up), KERNEL(sum_columns),
                    KERNEL(relu_back), KERNEL(add), KERNEL(update)),
            GLOBALS())
