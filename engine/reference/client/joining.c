/* The data connections of a server: made with the first copy that is large enough, and kept. Who has none of them, for
 * whatever reason, copies by the first connection. */
#define _GNU_SOURCE
#include "joining.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "connections.h"
#include "reach.h"
#include "rpc.h"

#define JOIN_TIMEOUT_MS 4500 /* of all of them */

/* From the address that the first connection has, to where that leads. */
static int reach_again(const struct connection *c, int64_t until_ms) {
    struct sockaddr_storage here, there;
    socklen_t here_size = sizeof here, there_size = sizeof there;
    if (getsockname(c->link.fd, (struct sockaddr *)&here, &here_size) ||
        getpeername(c->link.fd, (struct sockaddr *)&there, &there_size))
        return -1;
    if (here.ss_family == AF_INET6) ((struct sockaddr_in6 *)&here)->sin6_port = 0;
    else ((struct sockaddr_in *)&here)->sin_port = 0;
    return reach((struct sockaddr *)&here, here_size, (struct sockaddr *)&there, there_size, until_ms);
}

/* A data connection that the server has taken; -1: none. */
static int join(const struct connection *c, const char ticket[WIRE_TICKET], int64_t until_ms) {
    struct hello hello = {.magic = WIRE_JOIN, .protocol = WIRE_PROTOCOL, .pid = (uint32_t)getpid()};
    struct welcome welcome;
    int fd = reach_again(c, until_ms);
    if (fd < 0) return -1;
    limit_socket(fd, until_ms);
    tune_socket(fd);
    snprintf(hello.release, sizeof hello.release, "%s", ENGINE_RELEASE);
    memcpy(hello.token, ticket, WIRE_TICKET);
    bool taken = !write_all(fd, &hello, sizeof hello) && !read_all(fd, &welcome, sizeof welcome) &&
                 !memcmp(welcome.magic, WIRE_MAGIC, sizeof welcome.magic) && welcome.verdict == WELCOME;
    explicit_bzero(&hello, sizeof hello);
    if (taken) {
        limit_socket(fd, 0);
        end_at_once(fd);
        return fd;
    }
    close(fd);
    return -1;
}

static bool open_lanes(struct connection *c) {
    char tickets[MOST_LANES][WIRE_TICKET];
    struct request ask_tickets = {.op = OP_TICKETS};
    int fd[MOST_LANES];
    unsigned count = 0;
    int64_t until_ms = now_ms() + JOIN_TIMEOUT_MS;
    if (c->link.verbs || call_for_data(c, &ask_tickets, tickets, sizeof tickets, false, NULL)) return false;
    /* One after the other: many clients of one address would not find room at the server's door for all at once. */
    while (count < MOST_LANES && (fd[count] = join(c, tickets[count], until_ms)) >= 0) count++;
    explicit_bzero(tickets, sizeof tickets);
    struct request take = {.op = OP_LANES, .arg = {count}};
    if (count == MOST_LANES && !lanes_start(&c->lanes, fd, count, 2)) {
        if (!call(c, &take, NULL, NULL) && !__atomic_load_n(&lost, __ATOMIC_SEQ_CST)) return true;
        lanes_stop(&c->lanes);
    }
    while (count) close(fd[--count]);
    return false;
}

bool lanes_ready(struct connection *c) {
    enum { UNKNOWN, NONE, OPEN };
    int found = __atomic_load_n(&c->joined, __ATOMIC_ACQUIRE);
    if (found != UNKNOWN) return found == OPEN;
    pthread_mutex_lock(&c->joining);
    found = c->joined;
    if (found == UNKNOWN) {
        found = open_lanes(c) ? OPEN : NONE;
        __atomic_store_n(&c->joined, found, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&c->joining);
    return found == OPEN;
}
