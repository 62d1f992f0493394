#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#define CUT_S 25
#define LOOK_S 5

/* Keep-alive finds a cut network where nothing is on its way. Where something is, TCP_USER_TIMEOUT would, but it also ends a
 * connection whose other side answers and only takes nothing for a while: a session in a long kernel, a program in a
 * debugger. So the kernel is asked whether nothing at all was acknowledged. */
bool is_cut(int fd) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size)) return false;
    return (info.tcpi_unacked > 0 || info.tcpi_probes > 1) && info.tcpi_last_ack_recv > CUT_S * 1000;
}

/* A socket with another limit than watch_socket's (limit_socket) has given up for good. */
static bool goes_on(int fd) {
    struct timeval limit = {0, 0};
    socklen_t size = sizeof limit;
    if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &size) || limit.tv_sec != LOOK_S || limit.tv_usec) return false;
    if (!is_cut(fd)) return true;
    errno = ETIMEDOUT;
    return false;
}

int look_ms(void) {
    return LOOK_S * 1000;
}

bool may_go_on(int fd) {
    return errno == EINTR || ((errno == EAGAIN || errno == EWOULDBLOCK) && goes_on(fd));
}

int read_all(int fd, void *to, size_t bytes) {
    char *at = to;
    while (bytes) {
        ssize_t got = recv(fd, at, bytes, 0);
        if (got < 0 && may_go_on(fd)) continue;
        if (got <= 0) {
            if (got == 0) errno = 0;
            return -1;
        }
        at += got;
        bytes -= (size_t)got;
    }
    return 0;
}

int write_all(int fd, const void *from, size_t bytes) {
    return write_both(fd, from, bytes, NULL, 0);
}

int write_both(int fd, const void *head, size_t head_bytes, const void *body, size_t body_bytes) {
    struct iovec parts[2] = {{(void *)(uintptr_t)head, head_bytes}, {(void *)(uintptr_t)body, body_bytes}};
    return write_parts(fd, parts, 2);
}

int write_parts(int fd, struct iovec *parts, size_t count) {
    while (count) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        if (!parts->iov_len) {
            parts++, count--;
            continue;
        }
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            if (may_go_on(fd)) continue;
            return -1;
        }
        for (size_t left = (size_t)sent, i = 0; left && i < count; i++) {
            size_t step = left < parts[i].iov_len ? left : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + step;
            parts[i].iov_len -= step;
            left -= step;
        }
    }
    return 0;
}

void tune_socket(int fd) {
    static const struct { int level, name, value; } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},      {SOL_SOCKET, SO_KEEPALIVE, 1},  {IPPROTO_TCP, TCP_KEEPIDLE, 10},
        {IPPROTO_TCP, TCP_KEEPINTVL, 5},    {IPPROTO_TCP, TCP_KEEPCNT, 3},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

void watch_socket(int fd) {
    static const struct timeval limit = {LOOK_S, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool equal_secret(const char *a, const char *b, size_t bytes) {
    volatile unsigned char differs = 0;
    for (size_t i = 0; i < bytes; i++) differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}
