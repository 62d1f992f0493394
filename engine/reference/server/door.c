/* Connections whose clients have not shown the lease's token yet. */
#define _GNU_SOURCE
#include "door.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "join.h"
#include "options.h"
#include "report.h"
#include "../wire.h"

static struct waiting {
    int fd;
    double until_s;
    struct in6_addr address;
    char peer[INET6_ADDRSTRLEN];
    size_t got;
    struct hello hello;
} waiting[MAX_WAITING]; /* the oldest first */
static int count;
static double now;

/* Who has no token may come as often as he likes: so many of him are told in so many seconds, and how many were not. */
#define TOLD 200
#define TOLD_S 10.0

void door_refused(const char *peer, const char *why) {
    static double since_s;
    static unsigned long told, left_out;
    if (!since_s || now - since_s >= TOLD_S) {
        if (left_out) report("{\"event\": \"refused\", \"left_out\": %lu}", left_out);
        since_s = now, told = left_out = 0;
    }
    if (told++ < TOLD) report("{\"event\": \"refused\", \"peer\": \"%s\", \"why\": \"%s\"}", peer, why);
    else left_out++;
}

static void refused(const struct waiting *w, const char *why) {
    door_refused(w->peer, why);
}

/* Takes entry i out; its descriptor stays open. */
static void forget(int i) {
    explicit_bzero(&waiting[i].hello, sizeof waiting[i].hello);
    memmove(waiting + i, waiting + i + 1, (size_t)(--count - i) * sizeof *waiting);
    explicit_bzero(&waiting[count], sizeof waiting[count]);
}

static int of_address(const struct in6_addr *address) {
    int found = 0;
    for (int i = 0; i < count; i++) found += !memcmp(&waiting[i].address, address, sizeof *address);
    return found;
}

static void make_room(void) {
    int oldest = 0, most = 0;
    for (int i = 0; i < count; i++) {
        int has = of_address(&waiting[i].address);
        if (has > most) most = has, oldest = i;
    }
    refused(&waiting[oldest], "too many connections wait without a token");
    close(waiting[oldest].fd);
    forget(oldest);
}

void door_open(int fd, const struct in6_addr *address, const char *peer, double now_s) {
    now = now_s;
    if (count == MAX_WAITING) make_room();
    struct waiting *w = &waiting[count++];
    *w = (struct waiting){.fd = fd, .until_s = now_s + TOKEN_S, .address = *address};
    snprintf(w->peer, sizeof w->peer, "%s", peer);
}

int door_polls(struct pollfd to[MAX_WAITING]) {
    for (int i = 0; i < count; i++) to[i] = (struct pollfd){.fd = waiting[i].fd, .events = POLLIN};
    return count;
}

double door_until_s(void) {
    return count ? waiting[0].until_s : 0;
}

enum seen { MORE, GONE, WRONG, PROVEN };

static bool begins(const struct waiting *w, const char *magic) {
    return !memcmp(w->hello.magic, magic, sizeof w->hello.magic);
}

/* As much of the hello as has come. It may begin wrong: what is no client is not waited for. *session: that which a
 * ticket is of. */
static enum seen look(struct waiting *w, int *session) {
    while (w->got < sizeof w->hello) {
        ssize_t n = recv(w->fd, (char *)&w->hello + w->got, sizeof w->hello - w->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return MORE;
        if (n <= 0) return GONE;
        w->got += (size_t)n;
        if (w->got >= sizeof w->hello.magic && !begins(w, WIRE_MAGIC) && !begins(w, WIRE_JOIN)) return GONE;
    }
    struct welcome welcome = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .release = ENGINE_RELEASE};
    w->hello.release[sizeof w->hello.release - 1] = '\0';
    *session = begins(w, WIRE_JOIN) ? join_take(w->hello.token, w->peer) : -1;
    if (begins(w, WIRE_JOIN) ? *session < 0 : !equal_secret(w->hello.token, options.token, WIRE_TOKEN))
        welcome.verdict = WRONG_TOKEN;
    else if (w->hello.protocol != WIRE_PROTOCOL || strcmp(w->hello.release, ENGINE_RELEASE))
        welcome.verdict = WRONG_RELEASE;
    else return PROVEN;
    refused(w, welcome.verdict != WRONG_TOKEN ? "release differs" : begins(w, WIRE_JOIN) ? "ticket refused" : "token refused");
    /* The first bytes of a connection find room; a client that made none learns nothing. */
    (void)!send(w->fd, &welcome, sizeof welcome, MSG_DONTWAIT | MSG_NOSIGNAL);
    return WRONG;
}

int door_proven(double now_s, char peer[INET6_ADDRSTRLEN], int *session) {
    now = now_s;
    for (int i = 0; i < count;) {
        struct waiting *w = &waiting[i];
        int fd = w->fd;
        enum seen seen = look(w, session);
        if (seen == MORE && now_s < w->until_s) {
            i++;
            continue;
        }
        if (seen == MORE) refused(w, "no token in time");
        if (seen == PROVEN) memcpy(peer, w->peer, INET6_ADDRSTRLEN);
        else close(fd);
        forget(i);
        if (seen == PROVEN) return fd;
    }
    return -1;
}

void door_leave(void) {
    for (int i = 0; i < count; i++) close(waiting[i].fd);
    explicit_bzero(waiting, sizeof waiting);
    count = 0;
    explicit_bzero(options.token, sizeof options.token); /* what a client could make this process leak has it not */
}
