/* One connection of a client that has shown its token: welcome, then requests in order until the client goes. */
#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "driver.h"
#include "join.h"
#include "ops.h"
#include "options.h"
#include "report.h"
#include "session.h"
#include "../../shared/verbs/verbs.h"

#define SEND_TIMEOUT_S 5

_Static_assert(CU_DEVICE_ATTRIBUTE_MAX <= WIRE_ATTRIBUTES && (int)CU_FUNC_ATTRIBUTE_MAX <= FUNC_ATTRIBUTES,
               "all attributes that CUDA has fit");

static void describe(int device, struct device_info *info) {
    CUuuid uuid;
    size_t total = 0;
    CUdevice d;
    if (driver.cuDeviceGet(&d, device)) return;
    driver.cuDeviceGetName(info->name, sizeof info->name - 1, d);
    /* The first version says the GPU's own of a MIG instance; drivers before R470 have only that. */
    CUresult known = driver.cuDeviceGetUuid_v2 ? driver.cuDeviceGetUuid_v2(&uuid, d) : driver.cuDeviceGetUuid(&uuid, d);
    if (!known) memcpy(info->uuid, uuid.bytes, 16);
    driver.cuDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id - 1, d);
    driver.cuDeviceTotalMem_v2(&total, d);
    info->total_bytes = options.memory_limit && options.memory_limit < total ? options.memory_limit : total;
    for (int a = 0; a < WIRE_ATTRIBUTES; a++)
        info->attribute_status[a] = driver.cuDeviceGetAttribute(&info->attribute[a], a, d);
}

/* Loads the driver and tells the client what there is; ends the child where there is nothing. */
static void greet(const char *peer) {
    struct welcome welcome = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .release = ENGINE_RELEASE};
    struct timeval limit = {SEND_TIMEOUT_S, 0};
    setsockopt(session.link.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    welcome.verdict = STARTING;
    if (write_all(session.link.fd, &welcome, sizeof welcome)) session_end(1);
    welcome.verdict = WELCOME;
    alarm(STARTING_S);
    const char *why = driver_load();
    int devices = 0;
    if (why || driver.cuDeviceGetCount(&devices)) {
        welcome.verdict = NO_DRIVER;
        snprintf(welcome.why, sizeof welcome.why, "%s", why ? why : "cuDeviceGetCount failed");
        report("{\"event\": \"refused\", \"peer\": \"%s\", \"why\": \"no driver\"}", peer);
        write_all(session.link.fd, &welcome, sizeof welcome);
        session_end(3);
    }
    driver.cuDriverGetVersion(&welcome.cuda_version);
    session.devices = devices < MAX_DEVICES ? devices : MAX_DEVICES;
    welcome.devices = (uint32_t)session.devices;
    snprintf(welcome.why, sizeof welcome.why, "%s", options.transport);
    for (int i = 0; i < session.devices; i++) describe(i, &session.info[i]);
    size_t bytes = sizeof *session.info * (size_t)session.devices;
    if (write_both(session.link.fd, &welcome, sizeof welcome, session.info, bytes)) session_end(1);
    alarm(0);
    watch_socket(session.link.fd);
}

/* While the driver waits for a kernel, nobody reads, and a kernel may never end: its client's end is seen here. */
static void *watch(void *unused) {
    struct pollfd gone = {.fd = session.link.fd, .events = POLLRDHUP};
    (void)unused;
    for (;;) {
        int ready = poll(&gone, 1, look_ms());
        if (ready > 0 || (ready < 0 && errno != EINTR) || is_cut(gone.fd)) break;
    }
    session_linger();
}

static _Noreturn void broken(const char *peer, const char *op, const char *why) {
    report("{\"event\": \"broken\", \"peer\": \"%s\", \"op\": \"%s\", \"why\": \"%s\"}", peer, op, why);
    session_end(1);
}

/* From the answer on, everything goes by verbs. The device is opened here, in the connection's own process: what RDMA
 * libraries have would not outlive a fork. */
static void take_verbs(const struct request *r, const char *peer) {
    struct verbs_end theirs, ours;
    struct verbs_port where;
    char why[VERBS_WHY] = "this server does not offer them";
    struct verbs *v = NULL;
    if (r->bytes != (session.link.verbs ? 0 : sizeof theirs)) broken(peer, "verbs", "its payload is of another size");
    if (session.link.verbs) {
        answer(r, CUDA_SUCCESS, 0, 0, NULL, 0);
        return;
    }
    receive(&theirs, sizeof theirs);
    if (received_more()) broken(peer, "verbs", "more came by TCP");
    if (options.verbs) v = verbs_open(session.link.fd, why);
    if (v && verbs_connect(v, &theirs, why)) {
        verbs_close(v);
        v = NULL;
    }
    if (!v) {
        report("{\"event\": \"refused\", \"peer\": \"%s\", \"why\": \"no verbs\"}", peer);
        answer(r, CUDA_ERROR_NOT_SUPPORTED, 0, 0, why, strlen(why));
        return;
    }
    verbs_tell(v, &ours);
    answer(r, CUDA_SUCCESS, 0, 0, &ours, sizeof ours);
    session.link.verbs = v;
    verbs_where(v, &where);
    report("{\"event\": \"verbs\", \"peer\": \"%s\", \"pid\": %d, \"device\": \"%s\", \"port\": %u}", peer, getpid(),
           where.device, where.port);
}

void serve(int fd, int child, const char *peer) {
    session_open(fd, child);
    prctl(PR_SET_NAME, "refserver-child");
    tune_socket(fd);
    greet(peer);
    pthread_t watcher;
    if (pthread_create(&watcher, NULL, watch, NULL)) session_end(1);
    for (;;) {
        struct request request;
        receive(&request, sizeof request);
        if (request.op == OP_VERBS) {
            take_verbs(&request, peer);
            continue;
        }
        if (!options.tcp && !session.link.verbs) broken(peer, op_name(&request), "TCP is not offered");
        if (request.op == OP_TICKETS || request.op == OP_LANES) {
            if (request.bytes) broken(peer, "lanes", "takes no payload");
            if (request.op == OP_TICKETS) join_tell(&request);
            else join_lanes(&request);
            continue;
        }
        if (request.bytes && !takes_payload(&request)) broken(peer, op_name(&request), "takes no payload");
        serve_request(&request);
    }
}
