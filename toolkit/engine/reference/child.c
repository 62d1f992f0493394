/* One connection: hello, then requests in order until the client goes. */
#define _GNU_SOURCE
#include "server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define BUFFER ((size_t)256 << 10)
#define HELLO_TIMEOUT_S 5

struct connection connection;

/* The driver ends with the process; its exit handlers have nothing to save and could wait. */
static _Noreturn void end(int status) {
    _exit(status);
}

static void fill(void *to, size_t least, size_t most, size_t *got) {
    *got = 0;
    while (*got < least) {
        ssize_t n = recv(connection.fd, (char *)to + *got, most - *got, most == least ? MSG_WAITALL : 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) end(n == 0 && *got == 0 ? 0 : 1);
        *got += (size_t)n;
    }
}

void receive(void *to, size_t bytes) {
    size_t have = connection.until - connection.from, step = have < bytes ? have : bytes, got;
    memcpy(to, connection.buffer + connection.from, step);
    connection.from += step;
    if (step == bytes) return;
    bytes -= step;
    to = (char *)to + step;
    if (bytes >= BUFFER / 4) {
        fill(to, bytes, bytes, &got);
        return;
    }
    fill(connection.buffer, bytes, BUFFER, &got);
    memcpy(to, connection.buffer, bytes);
    connection.from = bytes;
    connection.until = got;
}

void answer(const struct request *r, CUresult status, uint64_t v0, uint64_t v1, const void *body, uint64_t bytes) {
    if (!(r->flags & FLAG_REPLY)) {
        if (status && status != CUDA_ERROR_NOT_READY && !connection.late) connection.late = status;
        return;
    }
    struct reply reply = {r->seq, status, bytes, {v0, v1}};
    if (write_both(connection.fd, &reply, sizeof reply, body, bytes)) end(1);
}

CUresult use_context(uint64_t number) {
    struct object *context = object_get(number, CONTEXT);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (connection.current == number) return CUDA_SUCCESS;
    CUresult status = driver.cuCtxSetCurrent(context->handle);
    if (!status) connection.current = number;
    return status;
}

static void describe(int device, struct device_info *info) {
    CUuuid uuid;
    size_t total = 0;
    CUdevice d;
    if (driver.cuDeviceGet(&d, device)) return;
    driver.cuDeviceGetName(info->name, sizeof info->name - 1, d);
    if (!driver.cuDeviceGetUuid(&uuid, d)) memcpy(info->uuid, uuid.bytes, 16);
    driver.cuDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id - 1, d);
    driver.cuDeviceTotalMem_v2(&total, d);
    info->total_bytes = server.memory_limit && server.memory_limit < total ? server.memory_limit : total;
    for (int a = 0; a < WIRE_ATTRIBUTES; a++)
        info->attribute_status[a] = driver.cuDeviceGetAttribute(&info->attribute[a], a, d);
}

/* Ends the child unless the client may stay. */
static void greet(const char *peer) {
    struct hello hello;
    struct welcome welcome = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .release = ENGINE_RELEASE};
    struct timeval limit = {HELLO_TIMEOUT_S, 0}, none = {0, 0};
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(connection.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    alarm(2 * HELLO_TIMEOUT_S); /* also for one that sends a byte a second */
    if (read_all(connection.fd, &hello, sizeof hello) || memcmp(hello.magic, welcome.magic, sizeof hello.magic)) end(1);
    bool known = equal_secret(hello.token, server.token, WIRE_TOKEN);
    explicit_bzero(hello.token, WIRE_TOKEN);
    explicit_bzero(server.token, WIRE_TOKEN); /* what a client could make this process leak does not hold it */
    hello.release[sizeof hello.release - 1] = '\0';
    const char *why;
    int devices = 0;
    if (!known) welcome.verdict = WRONG_TOKEN;
    else if (hello.protocol != WIRE_PROTOCOL || strcmp(hello.release, ENGINE_RELEASE)) welcome.verdict = WRONG_RELEASE;
    else if ((why = driver_load()) || driver.cuDeviceGetCount(&devices)) {
        welcome.verdict = NO_DRIVER;
        snprintf(welcome.why, sizeof welcome.why, "%s", why ? why : "cuDeviceGetCount failed");
    }
    if (welcome.verdict) {
        static const char *const said[] = {"", "release differs", "token refused", "no driver"};
        report("{\"event\": \"refused\", \"peer\": \"%s\", \"why\": \"%s\"}", peer, said[welcome.verdict]);
        write_all(connection.fd, &welcome, sizeof welcome);
        end(3);
    }
    driver.cuDriverGetVersion(&welcome.cuda_version);
    connection.devices = devices < MAX_DEVICES ? devices : MAX_DEVICES;
    welcome.devices = (uint32_t)connection.devices;
    for (int i = 0; i < connection.devices; i++) describe(i, &connection.info[i]);
    size_t bytes = sizeof *connection.info * (size_t)connection.devices;
    if (write_both(connection.fd, &welcome, sizeof welcome, connection.info, bytes)) end(1);
    alarm(0);
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    setsockopt(connection.fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
}

void serve(int fd, int child, const char *peer) {
    connection.fd = fd;
    connection.child = child;
    prctl(PR_SET_NAME, "refserver-child");
    tune_socket(fd);
    greet(peer);
    connection.buffer = malloc(BUFFER);
    if (!connection.buffer) end(1);
    for (;;) {
        struct request request;
        receive(&request, sizeof request);
        if (request.bytes && request.op != OP_HTOD) end(1); /* no other has a payload */
        handle(&request);
    }
}
