/* A TCP relay that stands for a link: each direction passes so many bytes a second, and each byte comes so much later.
 *
 *     elastic-ai-relay TO_ADDRESS TO_PORT BYTES_PER_S DELAY_US
 *
 * From a port of 127.0.0.1, which it prints, to an IPv4 address; 0 bytes/s: as fast as it goes. One process for each
 * connection, which ends with it; all of them end with the relay's parent. A byte leaves when those before it have left at that rate, and arrives the
 * delay later: what a queue of unlimited length in front of a link does, up to ROOM bytes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM ((size_t)16 << 20) /* bytes of a direction under way; 10 Gbit/s for 13 ms */
#define PIECE ((size_t)16 << 10) /* bytes that arrive together; 13 us of 10 Gbit/s */
#define PIECES (ROOM / 512)

struct piece { uint64_t until, due_ns; }; /* bytes up to `until` of the direction arrive then */

struct direction {
    int from, to;
    char *data; /* a ring of ROOM bytes */
    uint64_t in, out; /* bytes so far */
    struct piece *pieces; /* a ring of PIECES */
    uint64_t first, last;
    uint64_t free_ns; /* until then the link is taken */
    int ended; /* 1: no more comes; 2: told */
};

static uint64_t rate, delay_ns;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int full(const struct direction *d) {
    return d->in - d->out >= ROOM || d->last - d->first >= PIECES;
}

/* 0: nothing there. */
static int take(struct direction *d) {
    size_t at = d->in % ROOM, room = ROOM - (size_t)(d->in - d->out);
    if (room > ROOM - at) room = ROOM - at;
    if (room > PIECE) room = PIECE;
    ssize_t got = recv(d->from, d->data + at, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) {
        d->ended = 1;
        return 0;
    }
    uint64_t now = now_ns(), begins = d->free_ns > now ? d->free_ns : now;
    d->free_ns = begins + (rate ? (uint64_t)got * 1000000000u / rate : 0);
    d->in += (uint64_t)got;
    d->pieces[d->last++ % PIECES] = (struct piece){d->in, d->free_ns + delay_ns};
    return 1;
}

/* What is due; 0 where nothing could be given. */
static int give(struct direction *d, uint64_t now) {
    uint64_t until = d->out;
    for (uint64_t i = d->first; i < d->last && d->pieces[i % PIECES].due_ns <= now; i++) until = d->pieces[i % PIECES].until;
    if (until == d->out) return 0;
    size_t at = d->out % ROOM, bytes = (size_t)(until - d->out);
    if (bytes > ROOM - at) bytes = ROOM - at;
    ssize_t sent = send(d->to, d->data + at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (sent < 0) exit(0);
    d->out += (uint64_t)sent;
    while (d->first < d->last && d->pieces[d->first % PIECES].until <= d->out) d->first++;
    return 1;
}

static void pass(struct direction *both) {
    for (;;) {
        struct pollfd fds[2];
        uint64_t now = now_ns(), next = UINT64_MAX;
        int busy = 0;
        for (int i = 0; i < 2; i++) {
            struct direction *d = &both[i];
            busy |= give(d, now);
            if (!d->ended && !full(d)) busy |= take(d);
            if (d->ended == 1 && d->first == d->last) {
                shutdown(d->to, SHUT_WR);
                d->ended = 2;
            }
        }
        if (both[0].ended == 2 && both[1].ended == 2) exit(0);
        if (busy) continue;
        for (int i = 0; i < 2; i++) {
            struct direction *d = &both[i], *back = &both[1 - i];
            int waits = back->first < back->last && back->pieces[back->first % PIECES].due_ns <= now; /* its end is full */
            fds[i] = (struct pollfd){d->from, (short)((d->ended || full(d) ? 0 : POLLIN) | (waits ? POLLOUT : 0)), 0};
            if (!fds[i].events) fds[i].fd = -1;
            if (d->first < d->last && d->pieces[d->first % PIECES].due_ns > now && d->pieces[d->first % PIECES].due_ns < next)
                next = d->pieces[d->first % PIECES].due_ns;
        }
        struct timespec wait = {(time_t)((next - now) / 1000000000u), (long)((next - now) % 1000000000u)};
        (void)ppoll(fds, 2, next == UINT64_MAX ? NULL : &wait, NULL);
    }
}

static struct sockaddr_in to = {.sin_family = AF_INET};

static int dial(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && !connect(fd, (const struct sockaddr *)&to, sizeof to) ? fd : -1;
}

static void one(int client) {
    static const int yes = 1;
    int server = dial();
    if (server < 0) exit(1);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct direction both[2] = {{.from = client, .to = server}, {.from = server, .to = client}};
    for (int i = 0; i < 2; i++) {
        both[i].data = malloc(ROOM);
        both[i].pieces = calloc(PIECES, sizeof *both[i].pieces);
        if (!both[i].data || !both[i].pieces) exit(1);
    }
    pass(both);
}

int main(int count, char **words) {
    if (count != 5 || inet_pton(AF_INET, words[1], &to.sin_addr) != 1) return 2;
    to.sin_port = htons((uint16_t)atoi(words[2]));
    rate = strtoull(words[3], NULL, 10);
    delay_ns = strtoull(words[4], NULL, 10) * 1000;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    signal(SIGCHLD, SIG_IGN);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 16)) return 1;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes)) return 1;
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) continue;
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_TIMERSLACK, 1);
            one(client);
        }
        close(client);
    }
}
