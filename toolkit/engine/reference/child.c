/* One connection: hello, then requests in order until the client goes. */
#define _GNU_SOURCE
#include "child.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "driver.h"
#include "ops.h"
#include "options.h"
#include "report.h"
#include "session.h"

#define HELLO_TIMEOUT_S 5

static void describe(int device, struct device_info *info) {
    CUuuid uuid;
    size_t total = 0;
    CUdevice d;
    if (driver.cuDeviceGet(&d, device)) return;
    driver.cuDeviceGetName(info->name, sizeof info->name - 1, d);
    if (!driver.cuDeviceGetUuid(&uuid, d)) memcpy(info->uuid, uuid.bytes, 16);
    driver.cuDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id - 1, d);
    driver.cuDeviceTotalMem_v2(&total, d);
    info->total_bytes = options.memory_limit && options.memory_limit < total ? options.memory_limit : total;
    for (int a = 0; a < WIRE_ATTRIBUTES; a++)
        info->attribute_status[a] = driver.cuDeviceGetAttribute(&info->attribute[a], a, d);
}

/* Ends the child unless the client may stay. */
static void greet(const char *peer) {
    struct hello hello;
    struct welcome welcome = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .release = ENGINE_RELEASE};
    struct timeval limit = {HELLO_TIMEOUT_S, 0}, none = {0, 0};
    setsockopt(session.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(session.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    alarm(2 * HELLO_TIMEOUT_S); /* also for one that sends a byte a second */
    if (read_all(session.fd, &hello, sizeof hello) || memcmp(hello.magic, welcome.magic, sizeof hello.magic)) session_end(1);
    bool known = equal_secret(hello.token, options.token, WIRE_TOKEN);
    explicit_bzero(hello.token, WIRE_TOKEN);
    explicit_bzero(options.token, WIRE_TOKEN); /* what a client could make this process leak does not hold it */
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
        write_all(session.fd, &welcome, sizeof welcome);
        session_end(3);
    }
    driver.cuDriverGetVersion(&welcome.cuda_version);
    session.devices = devices < MAX_DEVICES ? devices : MAX_DEVICES;
    welcome.devices = (uint32_t)session.devices;
    for (int i = 0; i < session.devices; i++) describe(i, &session.info[i]);
    size_t bytes = sizeof *session.info * (size_t)session.devices;
    if (write_both(session.fd, &welcome, sizeof welcome, session.info, bytes)) session_end(1);
    alarm(0);
    setsockopt(session.fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    setsockopt(session.fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
}

void serve(int fd, int child, const char *peer) {
    session_open(fd, child);
    prctl(PR_SET_NAME, "refserver-child");
    tune_socket(fd);
    greet(peer);
    for (;;) {
        struct request request;
        receive(&request, sizeof request);
        if (request.bytes && !takes_payload(&request)) {
            report("{\"event\": \"broken\", \"peer\": \"%s\", \"op\": \"%s\", \"why\": \"takes no payload\"}", peer,
                   op_name(&request));
            session_end(1);
        }
        serve_request(&request);
    }
}
