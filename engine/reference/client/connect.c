/* Who the servers are, and the way to them: everything that can be wrong is one sentence on stderr. */
#define _GNU_SOURCE
#include "connect.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "connections.h"
#include "reach.h"
#include "say.h"
#include "transport.h"

#define CONNECT_TIMEOUT_MS 4500 /* all servers together; the caller is promised 5 s */
#define PCI_DOMAIN CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID

static char tokens[MAX_SERVERS][WIRE_TOKEN];

static CUresult read_servers(void) {
    const char *list = getenv("ELASTIC_AI_SERVERS");
    if (!list || !*list) {
        say("ELASTIC_AI_SERVERS is not set: no remote GPU is leased here; 'toolkit run' sets it");
        return CUDA_ERROR_NO_DEVICE;
    }
    connection_count = 0;
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        char one[280];
        if (connection_count == MAX_SERVERS || length >= sizeof one) {
            say("ELASTIC_AI_SERVERS names more than %d servers, or a name that is too long", MAX_SERVERS);
            return CUDA_ERROR_INVALID_VALUE;
        }
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        struct connection *c = &connections[connection_count];
        char *colon = strrchr(one, ':'), *host = one;
        if (colon) *colon = '\0';
        size_t end = strlen(one);
        if (one[0] == '[' && one[end - 1] == ']') one[end - 1] = '\0', host++; /* [IPv6]:port */
        if (!colon || !*host || !colon[1] || strlen(colon + 1) > 5 || colon[1 + strspn(colon + 1, "0123456789")]) {
            say("ELASTIC_AI_SERVERS: '%.*s' is not host:port", (int)length, at);
            return CUDA_ERROR_INVALID_VALUE;
        }
        snprintf(c->host, sizeof c->host, "%s", host);
        snprintf(c->port, sizeof c->port, "%s", colon + 1);
        snprintf(c->name, sizeof c->name, "%.*s", (int)length, at);
        c->number = connection_count++;
        at += length + (at[length] == ',');
    }
    return CUDA_SUCCESS;
}

static CUresult read_tokens(void) {
    const char *path = getenv("ELASTIC_AI_TOKEN_FILE");
    FILE *file = path && *path ? fopen(path, "re") : NULL;
    if (!file) {
        if (path && *path) say("the lease's token file %s cannot be read: %s", path, strerror(errno));
        else say("ELASTIC_AI_TOKEN_FILE is not set: the servers need the lease's token; 'toolkit run' sets it");
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    char line[WIRE_TOKEN + 2];
    int count = 0;
    while (count < MAX_SERVERS && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (*line && strlen(line) < WIRE_TOKEN) strncpy(tokens[count++], line, WIRE_TOKEN);
    }
    fclose(file);
    if (count != 1 && count != connection_count) {
        say("%s holds %d tokens for %d servers: give one line for each, or one for all", path, count, connection_count);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    for (int i = count; i < connection_count; i++) memcpy(tokens[i], tokens[0], WIRE_TOKEN);
    return CUDA_SUCCESS;
}

static CUresult unreachable(const struct connection *c, const char *why) {
    say("the lease's server %s cannot be reached: %s", c->name, why);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* The time that the server's driver takes to start is added to *until: it is none of the network's. */
static CUresult greet(struct connection *c, int64_t *until) {
    struct hello hello = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .pid = (uint32_t)getpid()};
    struct welcome welcome;
    snprintf(hello.release, sizeof hello.release, "%s", ENGINE_RELEASE);
    gethostname(hello.client, sizeof hello.client - 1);
    memcpy(hello.token, tokens[c->number], WIRE_TOKEN);
    int failed = write_all(c->link.fd, &hello, sizeof hello) || read_all(c->link.fd, &welcome, sizeof welcome);
    explicit_bzero(&hello, sizeof hello);
    if (!failed && welcome.verdict == STARTING && !memcmp(welcome.magic, WIRE_MAGIC, sizeof welcome.magic)) {
        struct timeval patience = {STARTING_S, 0};
        int64_t began = now_ms();
        setsockopt(c->link.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        failed = read_all(c->link.fd, &welcome, sizeof welcome);
        *until += now_ms() - began;
    }
    if (failed) {
        if (errno == 0 || errno == ECONNRESET || errno == EPIPE)
            return unreachable(c, "it closed the connection; it may not allow this machine's address, or be full");
        return unreachable(c, errno == EAGAIN ? "it accepted and did not answer" : strerror(errno));
    }
    if (memcmp(welcome.magic, WIRE_MAGIC, sizeof welcome.magic))
        return unreachable(c, "what answers there is no server of the reference engine");
    welcome.release[sizeof welcome.release - 1] = welcome.why[sizeof welcome.why - 1] = '\0';
    switch (welcome.verdict) {
    case WELCOME: break;
    case WRONG_RELEASE:
        say("this client's engine is release %s and the server %s is release %s: install the same on both",
            ENGINE_RELEASE, c->name, welcome.release);
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case WRONG_TOKEN:
        say("the server %s refused the token: the lease has ended, or is another one's", c->name);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    default:
        say("the server %s cannot use its devices: %s", c->name, welcome.why);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    TRY(transport_offered(c, welcome.why));
    if (welcome.devices > MAX_DEVICES) return unreachable(c, "its answer makes no sense");
    c->devices = (int)welcome.devices;
    c->cuda_version = welcome.cuda_version;
    if (read_all(c->link.fd, c->info, sizeof *c->info * welcome.devices))
        return unreachable(c, "it ended while it answered");
    for (int i = 0; i < c->devices; i++) {
        c->info[i].name[sizeof c->info[i].name - 1] = '\0';
        c->info[i].pci_bus_id[sizeof c->info[i].pci_bus_id - 1] = '\0';
    }
    return CUDA_SUCCESS;
}

/* Servers of one model have their devices at the same PCI addresses, which some programs (NCCL) take for one device. So
 * the first of the four digits of the PCI domain says which machine it is (MAX_SERVERS is 16). Servers at one address are
 * one machine, whose devices may really be the same. */
static void tell_machines_apart(struct connection *c) {
    int machine = 0;
    while (strcmp(connections[machine].host, c->host)) machine++;
    for (int i = 0; i < c->devices; i++) {
        struct device_info *info = &c->info[i];
        char *bus = strchr(info->pci_bus_id, ':');
        if (!bus || bus - info->pci_bus_id < 4 || bus[-4] != '0') continue; /* of another form, or that domain is used */
        bus[-4] = "0123456789ABCDEF"[machine];
        if (!info->attribute_status[PCI_DOMAIN]) info->attribute[PCI_DOMAIN] += machine << 12;
    }
}

static CUresult connect_one(struct connection *c, int64_t *until, bool verbs) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found = NULL;
    int error = getaddrinfo(c->host, c->port, &hints, &found);
    if (error) return unreachable(c, gai_strerror(error));
    c->link = (struct link){-1, NULL};
    errno = ETIMEDOUT;
    for (struct addrinfo *a = found; a && c->link.fd < 0; a = a->ai_next) c->link.fd = reach(NULL, 0, a->ai_addr, a->ai_addrlen, *until);
    error = errno;
    freeaddrinfo(found);
    if (c->link.fd < 0) return unreachable(c, strerror(error));
    limit_socket(c->link.fd, *until);
    tune_socket(c->link.fd);
    CUresult status = greet(c, until);
    int64_t began = now_ms();
    if (!status && verbs) status = transport_verbs(c);
    *until += now_ms() - began; /* of the devices, as above */
    if (!status) tell_machines_apart(c);
    if (status) {
        link_close(&c->link);
        return status;
    }
    limit_socket(c->link.fd, 0);
    end_at_once(c->link.fd);
    pthread_mutex_init(&c->joining, NULL);
    pthread_mutex_init(&c->send, NULL);
    pthread_mutex_init(&c->receive, NULL);
    pthread_mutex_init(&c->queue, NULL);
    pthread_cond_init(&c->came, NULL);
    c->last = &c->first;
    c->device_base = device_count;
    device_count += c->devices;
    return CUDA_SUCCESS;
}

CUresult connect_all(void) {
    int64_t until = now_ms() + CONNECT_TIMEOUT_MS;
    bool verbs = false;
    CUresult status = read_servers();
    if (!status) status = transport_wanted(&verbs);
    if (!status) status = read_tokens();
    for (int i = 0; i < connection_count && !status; i++) {
        status = connect_one(&connections[i], &until, verbs);
        if (status)
            for (int j = 0; j < i; j++) link_close(&connections[j].link);
    }
    explicit_bzero(tokens, sizeof tokens);
    return status;
}
