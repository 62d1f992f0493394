/* What is linked to the runtime by name, as PyTorch's libraries are. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
void cudaFakeAfterFree(void (*run)(void));
int cudaMemGetInfo(size_t *, size_t *);
int cudaSetDevice(int);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaMallocHost(void **, size_t);
int cudaFreeHost(void *);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaDeviceSynchronize(void);
int cudaMallocAsync(void **, size_t, void *);
int cudaMallocFromPoolAsync(void **, size_t, void *, void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaMallocArray(void **, void *, size_t, size_t, unsigned);
int cudaMemPoolCreate(void **, void *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);

int user_malloc(void **where, size_t bytes) { return cudaMalloc(where, bytes); }
int user_free(void *data) { return cudaFree(data); }
void user_after_free(void (*run)(void)) { cudaFakeAfterFree(run); }
int user_info(size_t *left, size_t *total) { return cudaMemGetInfo(left, total); }
int user_device(int to) { return cudaSetDevice(to); }
int user_host(void **where, size_t bytes, int plain) {
    return plain ? cudaMallocHost(where, bytes) : cudaHostAlloc(where, bytes, 0);
}
int user_free_host(void *data) { return cudaFreeHost(data); }
/* A kernel that runs on a stream of its own, until somebody waits. */
int user_write(void *data, int value, size_t bytes) { return cudaMemsetAsync(data, value, bytes, (void *)77); }
int user_wait(void) { return cudaDeviceSynchronize(); }
int user_other(int which) {
    void *made = NULL;
    size_t pitch = 0;
    switch (which) {
    case 0: return cudaMallocAsync(&made, 4096, NULL);
    case 1: return cudaMallocFromPoolAsync(&made, 4096, NULL, NULL);
    case 2: return cudaMallocManaged(&made, 4096, 1);
    case 3: return cudaMallocPitch(&made, &pitch, 64, 64);
    case 4: return cudaMallocArray(&made, NULL, 64, 64, 0);
    default: return cudaMemPoolCreate(&made, NULL);
    }
}
/* What a function of the driver answers that the runtime was asked for. */
int user_driver(const char *name) {
    int (*function)(void) = NULL, status = 0;
    int error = cudaGetDriverEntryPointByVersion(name, (void **)&function, 12000, 0, &status);
    return error ? error : function();
}
/* Bytes that are not `value`. */
size_t user_others(const unsigned char *data, int value, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += data[i] != value;
    return count;
}

/* As a program: the runtime is its own dependency. Prints how many bytes of new memory are not zero. */
int main(void) {
    void *data = NULL;
    int error = cudaMalloc(&data, 1 << 20);
    printf("%d %zu\n", error, error ? 0 : user_others(data, 0, 1 << 20));
    return 0;
}
