#define _GNU_SOURCE
#include "join.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "accounts.h"
#include "session.h"

enum { PARENT, CHILD };

static struct seats {
    bool open;
    int pass[2]; /* what the parent hands over, and where the child takes it */
    char peer[INET6_ADDRSTRLEN];
    char ticket[MOST_LANES][WIRE_TICKET]; /* "": used */
} seats[MAX_CHILDREN];
static int own; /* the child's number */

bool join_open(int child, const char *peer) {
    struct seats *s = &seats[child];
    unsigned char random[MOST_LANES][WIRE_TICKET / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s->pass)) return false;
    for (int i = 0; i < MOST_LANES; i++)
        for (size_t b = 0; b < sizeof *random; b++) snprintf(s->ticket[i] + 2 * b, 3, "%02x", random[i][b]);
    explicit_bzero(random, sizeof random);
    snprintf(s->peer, sizeof s->peer, "%s", peer);
    s->open = true;
    return true;
}

void join_forked(int child) {
    close(seats[child].pass[CHILD]);
    seats[child].pass[CHILD] = -1;
}

int join_take(const char ticket[WIRE_TOKEN], const char *peer) {
    int found = -1;
    for (int child = 0; child < MAX_CHILDREN; child++) {
        for (int i = 0; seats[child].open && i < MOST_LANES; i++) {
            char *have = seats[child].ticket[i];
            if (!*have || !equal_secret(have, ticket, WIRE_TICKET) || strcmp(seats[child].peer, peer)) continue;
            explicit_bzero(have, WIRE_TICKET);
            found = child;
        }
    }
    return found;
}

int join_pass(int child, int fd) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof fd)];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec nothing = {"", 1};
    struct msghdr message = {.msg_iov = &nothing, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    return sendmsg(seats[child].pass[PARENT], &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -1;
}

void join_close(int child) {
    if (!seats[child].open) return;
    close(seats[child].pass[PARENT]);
    if (seats[child].pass[CHILD] >= 0) close(seats[child].pass[CHILD]);
    explicit_bzero(&seats[child], sizeof *seats);
}

void join_keep(int child) {
    own = child;
    for (int i = 0; i < MAX_CHILDREN; i++)
        if (i != child) join_close(i);
    close(seats[child].pass[PARENT]);
}

void join_tell(const struct request *r) {
    answer(r, CUDA_SUCCESS, 0, 0, seats[own].ticket, sizeof seats[own].ticket);
}

/* -1: none is there. */
static int taken(void) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd;
    struct iovec nothing = {&byte, 1};
    struct msghdr message = {.msg_iov = &nothing, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(seats[own].pass[CHILD], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) return -1;
    if (message.msg_controllen < sizeof control.head) return -1;
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    return fd;
}

/* A lane's client has gone, or the network has cut it. The session's client is told by the first connection, at once, for
 * it may be waiting there. */
static void *watch_lanes(void *unused) {
    struct pollfd gone[MOST_LANES];
    (void)unused;
    for (unsigned i = 0; i < session.lanes.count; i++)
        gone[i] = (struct pollfd){.fd = session.lanes.fd[i], .events = POLLRDHUP};
    for (bool here = true; here;) {
        int ready = poll(gone, session.lanes.count, look_ms());
        here = ready == 0 || (ready < 0 && errno == EINTR);
        for (unsigned i = 0; i < session.lanes.count; i++) here = here && !is_cut(gone[i].fd);
    }
    shutdown(session.link.fd, SHUT_WR);
    session_linger();
}

static void lane_broken(int error) {
    session_end(error ? 1 : 0);
}

void join_lanes(const struct request *r) {
    int fd[MOST_LANES];
    unsigned count = 0;
    pthread_t watcher;
    bool may = !session.link.verbs && !session.lanes.count && r->arg[0] && r->arg[0] <= MOST_LANES;
    while (may && count < r->arg[0] && (fd[count] = taken()) >= 0) {
        tune_socket(fd[count]);
        watch_socket(fd[count++]);
    }
    session.lanes.broken = lane_broken;
    if (may && count == r->arg[0] && !lanes_start(&session.lanes, fd, count, 1)) {
        if (pthread_create(&watcher, NULL, watch_lanes, NULL)) session_end(1);
        answer(r, CUDA_SUCCESS, 0, 0, NULL, 0);
        return;
    }
    while (count) close(fd[--count]);
    answer(r, CUDA_ERROR_NOT_SUPPORTED, 0, 0, NULL, 0);
}
