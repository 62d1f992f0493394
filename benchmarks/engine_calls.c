/* What calls of the driver API cost a program, beside the round trip of the same bytes over the same link.
 *
 *     engine_calls echo ADDRESS PORT          answers one connection's 80 bytes with 32, until it ends
 *     engine_calls calls PTX ADDRESS PORT     figures as JSON; ADDRESS "" leaves the raw round trip out
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cu.h"

#define ROUNDS 15
#define SYNCS 200
#define LAUNCHES 20000
#define REQUEST 80 /* bytes of the engine's request and reply: engine/reference/wire.h */
#define REPLY 32
#define CHECK(call) \
    do { \
        int status_ = (call); \
        if (status_) return fprintf(stderr, "%s: %d\n", #call, status_), 1; \
    } while (0)

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int whole(int fd, char *data, ssize_t bytes) {
    return recv(fd, data, (size_t)bytes, MSG_WAITALL) == bytes ? 0 : -1;
}

static int tcp(const char *address, const char *port, int listens) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listens) {
        if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1)) return -1;
        puts("ready");
        fflush(stdout);
        fd = accept(fd, NULL, NULL);
    } else if (connect(fd, (struct sockaddr *)&at, sizeof at)) {
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static int up(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, up);
    printf("\"%s\": %.3f, \"%s_p99\": %.3f, ", name, values[count / 2], name, values[count * 99 / 100]);
}

int main(int argc, char **argv) {
    static double raw[ROUNDS * SYNCS], sync[ROUNDS * SYNCS], pair[ROUNDS * SYNCS];
    static double wall[ROUNDS], thread[ROUNDS], process[ROUNDS], all[ROUNDS], step[ROUNDS];
    char data[REQUEST] = {0};
    if (argc == 4 && !strcmp(argv[1], "echo")) {
        int fd = tcp(argv[2], argv[3], 1);
        while (fd >= 0 && !whole(fd, data, REQUEST))
            if (send(fd, data, REPLY, MSG_NOSIGNAL) != REPLY) break;
        return fd < 0;
    }
    if (argc != 5) return 2;
    int fd = *argv[3] ? tcp(argv[3], argv[4], 0) : -1;
    CUcontext context;
    CUdeviceptr memory;
    CUmodule module;
    CUfunction function;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&memory, 4096));
    CHECK(cuModuleLoad(&module, argv[2]));
    CHECK(cuModuleGetFunction(&function, module, "spin"));
    unsigned none = 0, value = 0;
    void *params[] = {&memory, &none};
    for (int round = -1; round < ROUNDS; round++) { /* the first is not counted */
        int k = round < 0 ? 0 : round, at = k * SYNCS;
        for (int i = 0; i < SYNCS; i++) {
            double began = now(CLOCK_MONOTONIC);
            if (fd >= 0 && (send(fd, data, REQUEST, MSG_NOSIGNAL) != REQUEST || whole(fd, data, REPLY))) return 1;
            double then = now(CLOCK_MONOTONIC);
            CHECK(cuCtxSynchronize());
            double later = now(CLOCK_MONOTONIC);
            CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
            CHECK(cuCtxSynchronize());
            raw[at + i] = then - began;
            sync[at + i] = later - then;
            pair[at + i] = now(CLOCK_MONOTONIC) - later;
        }
        double began = now(CLOCK_MONOTONIC), mine = now(CLOCK_THREAD_CPUTIME_ID), ours = now(CLOCK_PROCESS_CPUTIME_ID);
        for (int i = 0; i < LAUNCHES; i++)
            CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        wall[k] = (now(CLOCK_MONOTONIC) - began) / LAUNCHES;
        thread[k] = (now(CLOCK_THREAD_CPUTIME_ID) - mine) / LAUNCHES;
        process[k] = (now(CLOCK_PROCESS_CPUTIME_ID) - ours) / LAUNCHES;
        CHECK(cuCtxSynchronize());
        all[k] = (now(CLOCK_MONOTONIC) - began) / LAUNCHES;
        began = now(CLOCK_MONOTONIC); /* as a training step: data in, 13 launches, a loss out */
        static char batch[200000];
        for (int i = 0; i < 10; i++) {
            CHECK(cuMemcpyHtoDAsync_v2(memory, batch, 4096, NULL));
            for (int j = 0; j < 13; j++)
                CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
            CHECK(cuMemcpyDtoH_v2(&value, memory, 4));
        }
        step[k] = (now(CLOCK_MONOTONIC) - began) / 10;
    }
    printf("{");
    if (fd >= 0) show("raw_us", raw, ROUNDS * SYNCS);
    show("sync_us", sync, ROUNDS * SYNCS);
    show("launch_and_sync_us", pair, ROUNDS * SYNCS);
    show("launch_us", wall, ROUNDS);
    show("launch_thread_cpu_us", thread, ROUNDS);
    show("launch_process_cpu_us", process, ROUNDS);
    show("launch_to_the_end_us", all, ROUNDS);
    show("step_of_13_launches_us", step, ROUNDS);
    printf("\"launches\": %d}\n", LAUNCHES);
    return 0;
}
