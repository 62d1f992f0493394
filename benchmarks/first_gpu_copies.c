/* Copies by CUDA's driver API and nothing of the toolkit's: a second opinion on what its probes measure.
 *
 *   first_gpu_copies BYTES
 *
 * For each GPU, from pinned memory of the host, to it, and within the GPU (read and written, counted twice): sixteen copies
 * in a row between two events, as bandwidth tools count, and one copy between two events. The first of seven rounds is not
 * counted. Then the time of a copy of 4 bytes with its wait, by the clock. A line of JSON for each. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 7
#define SMALL 1000
#define NEED(type, name, ...) \
    type (*name)(__VA_ARGS__) = (type (*)(__VA_ARGS__))dlsym(cuda, #name); \
    if (name == NULL) return fprintf(stderr, "the driver has no " #name "\n"), 1

typedef unsigned long long address;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"h2d", "d2h", "local"};
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    size_t bytes = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    int gpus = 0, failed = 0;
    if (bytes < 4) return fprintf(stderr, "BYTES of a copy are wanted, 4 and more\n"), 1;
    if (cuda == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    NEED(int, cuInit, unsigned);
    NEED(int, cuDeviceGetCount, int *);
    NEED(int, cuDevicePrimaryCtxRetain, void **, int);
    NEED(int, cuDevicePrimaryCtxRelease_v2, int);
    NEED(int, cuCtxSetCurrent, void *);
    NEED(int, cuMemAlloc_v2, address *, size_t);
    NEED(int, cuMemHostAlloc, void **, size_t, unsigned);
    NEED(int, cuStreamCreate, void **, unsigned);
    NEED(int, cuEventCreate, void **, unsigned);
    NEED(int, cuEventRecord, void *, void *);
    NEED(int, cuEventElapsedTime, float *, void *, void *);
    NEED(int, cuStreamSynchronize, void *);
    NEED(int, cuMemcpyHtoDAsync_v2, address, const void *, size_t, void *);
    NEED(int, cuMemcpyDtoHAsync_v2, void *, address, size_t, void *);
    NEED(int, cuMemcpyDtoDAsync_v2, address, address, size_t, void *);
    if (cuInit(0) != 0 || cuDeviceGetCount(&gpus) != 0) return fprintf(stderr, "the driver does not start\n"), 1;
    for (int gpu = 0; gpu < gpus; gpu++) {
        void *context, *stream, *first, *last, *host;
        address a, b;
        if (cuDevicePrimaryCtxRetain(&context, gpu) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&a, bytes) ||
            cuMemAlloc_v2(&b, bytes) || cuMemHostAlloc(&host, bytes, 0) || cuStreamCreate(&stream, 1) ||
            cuEventCreate(&first, 0) || cuEventCreate(&last, 0)) {
            fprintf(stderr, "GPU %d cannot be taken\n", gpu);
            failed = 1;
            continue;
        }
        memset(host, 1, bytes);
        for (int kind = 0; kind < 3; kind++) {
            int code = 0;
            for (int row = 16; row > 0; row = row == 16 ? 1 : 0) {
                double rates[ROUNDS];
                for (int round = 0; round < ROUNDS; round++) {
                    float took_ms = 0;
                    code |= cuEventRecord(first, stream);
                    for (int i = 0; i < row; i++)
                        code |= kind == 0   ? cuMemcpyHtoDAsync_v2(a, host, bytes, stream)
                                : kind == 1 ? cuMemcpyDtoHAsync_v2(host, a, bytes, stream)
                                            : cuMemcpyDtoDAsync_v2(b, a, bytes, stream);
                    code |= cuEventRecord(last, stream) | cuStreamSynchronize(stream);
                    code |= cuEventElapsedTime(&took_ms, first, last);
                    rates[round] = took_ms > 0 ? (kind == 2 ? 2.0 : 1.0) * row * (double)bytes / took_ms / 1e6 : 0;
                }
                qsort(rates + 1, ROUNDS - 1, sizeof *rates, order);
                if (code == 0)
                    printf("{\"gpu\": %d, \"copy\": \"%s\", \"bytes\": %zu, \"in_a_row\": %d, \"median_gb_s\": %.3f, "
                           "\"best_gb_s\": %.3f}\n", gpu, names[kind], bytes, row, (rates[3] + rates[4]) / 2,
                           rates[ROUNDS - 1]);
            }
            double took[SMALL];
            for (int i = 0; i < SMALL && code == 0; i++) {
                double began = now_us();
                code |= kind == 0   ? cuMemcpyHtoDAsync_v2(a, host, 4, stream)
                        : kind == 1 ? cuMemcpyDtoHAsync_v2(host, a, 4, stream)
                                    : cuMemcpyDtoDAsync_v2(b, a, 4, stream);
                code |= cuStreamSynchronize(stream);
                took[i] = now_us() - began;
            }
            if (code != 0) {
                fprintf(stderr, "GPU %d, %s: a call failed\n", gpu, names[kind]);
                failed = 1;
                continue;
            }
            qsort(took, SMALL, sizeof *took, order);
            printf("{\"gpu\": %d, \"copy\": \"%s\", \"bytes\": 4, \"median_us\": %.2f, \"p99_us\": %.2f}\n", gpu,
                   names[kind], took[SMALL / 2], took[SMALL * 99 / 100]);
        }
        cuDevicePrimaryCtxRelease_v2(gpu);
    }
    return gpus == 0 || failed;
}
