#define _GNU_SOURCE
#include "reach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "../wire.h"

int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int reach(const struct sockaddr *here, unsigned here_bytes, const struct sockaddr *there, unsigned there_bytes,
          int64_t until) {
    int fd = socket(there->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;
    if (fd < 0) return -1;
    if ((here && bind(fd, here, here_bytes)) || connect(fd, there, there_bytes)) error = errno;
    if (error == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        int64_t left, done = 0;
        while ((left = until - now_ms()) > 0 && (done = poll(&wait, 1, (int)left)) < 0 && errno == EINTR) {}
        error = ETIMEDOUT;
        if (done > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    fcntl(fd, F_SETFL, 0);
    return fd;
}

void limit_socket(int fd, int64_t until) {
    if (!until) {
        watch_socket(fd);
        return;
    }
    int64_t left = until - now_ms();
    struct timeval limit = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000 + 1};
    if (left <= 0) limit = (struct timeval){0, 1};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void end_at_once(int fd) {
    static const struct linger none = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}
