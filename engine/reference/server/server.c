/* elastic-ai-refserver: accepts, forks a child per connection that shows the token, accounts for their memory. No
 * threads. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accounts.h"
#include "child.h"
#include "door.h"
#include "join.h"
#include "options.h"
#include "report.h"
#include "../../shared/verbs/verbs.h"

#define ACCEPTS 64 /* connections between two looks at children and signals */
#define BACKLOG 4096
#define DEFER_S 1

static pid_t children[MAX_CHILDREN]; /* 0: free */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "elastic-ai-refserver: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Whoever offers verbs has them on that address, or does not start. Asked in a process of its own: what RDMA libraries
 * have would not outlive the forks of this one. */
static void require_verbs(const struct sockaddr *address) {
    char why[VERBS_WHY];
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        bool failed = verbs_check(address, why) != 0;
        if (failed) fprintf(stderr, "elastic-ai-refserver: --transport %s: %s\n", options.transport, why);
        fflush(stderr);
        _exit(failed);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (status) exit(1);
}

static int listen_on(int *port) {
    char text[16];
    snprintf(text, sizeof text, "%d", options.port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE}, *found;
    if (getaddrinfo(options.bind, text, &hints, &found)) {
        fprintf(stderr, "elastic-ai-refserver: --bind %s: give an IP address of this machine\n", options.bind);
        exit(2);
    }
    if (options.verbs) require_verbs(found->ai_addr);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (fd < 0) fail("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* A client speaks first: who says nothing does not come as far as here for a while, and takes nobody's place. */
    if (setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){DEFER_S}, sizeof(int))) fail("TCP_DEFER_ACCEPT");
    if (bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG)) fail(options.bind);
    freeaddrinfo(found);
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &size)) fail("getsockname");
    *port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                           : ((struct sockaddr_in *)&at)->sin_port);
    return fd;
}

static void write_port(int port) {
    char path[4096];
    if (!options.port_file) return;
    if (snprintf(path, sizeof path, "%s.new", options.port_file) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        fail("--port-file");
    }
    FILE *file = fopen(path, "we");
    if (!file || fprintf(file, "%d\n", port) < 0 || fclose(file) || rename(path, options.port_file)) fail(path);
}

static void peer_name(const struct sockaddr_storage *from, struct in6_addr *address, char *name, size_t size) {
    if (from->ss_family == AF_INET6) {
        *address = ((const struct sockaddr_in6 *)from)->sin6_addr;
    } else {
        *address = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
        memcpy(&address->s6_addr[12], &((const struct sockaddr_in *)from)->sin_addr, 4);
    }
    if (IN6_IS_ADDR_V4MAPPED(address)) inet_ntop(AF_INET, &address->s6_addr[12], name, (socklen_t)size);
    else inet_ntop(AF_INET6, address, name, (socklen_t)size);
}

static bool allowed(const struct in6_addr *address) {
    for (int i = 0; i < options.allowed_count; i++)
        if (!memcmp(address, &options.allowed[i], sizeof *address)) return true;
    return false;
}

static void start_child(int fd, const char *peer, int listener, int signals, const sigset_t *old_mask) {
    int child = 0;
    while (child < MAX_CHILDREN && children[child]) child++;
    if (child == MAX_CHILDREN) {
        report("{\"event\": \"refused\", \"peer\": \"%s\", \"why\": \"%d connections are open\"}", peer, MAX_CHILDREN);
        return;
    }
    bool opened = join_open(child, peer);
    pid_t parent = getpid(), pid = opened ? fork() : -1;
    if (pid < 0) {
        report("{\"event\": \"refused\", \"peer\": \"%s\", \"why\": \"%s: %s\"}", peer, opened ? "fork" : "socketpair",
               strerror(errno));
        join_close(child);
        return;
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1); /* it ended before the line above */
        close(listener);
        close(signals);
        door_leave();
        join_keep(child);
        sigprocmask(SIG_SETMASK, old_mask, NULL);
        serve(fd, child, peer);
    }
    join_forked(child);
    children[child] = pid;
    report("{\"event\": \"client\", \"peer\": \"%s\", \"pid\": %d}", peer, pid);
}

/* Its child takes it when it is asked to: nobody waits for it here. */
static void pass_on(int fd, const char *peer, int session) {
    struct welcome welcome = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .verdict = WELCOME, .release = ENGINE_RELEASE};
    if (join_pass(session, fd))
        report("{\"event\": \"refused\", \"peer\": \"%s\", \"why\": \"its session has ended\"}", peer);
    else
        (void)!send(fd, &welcome, sizeof welcome, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void serve_proven(int listener, int signals, const sigset_t *old_mask) {
    char peer[INET6_ADDRSTRLEN];
    int session;
    for (int fd; (fd = door_proven(now_s(), peer, &session)) >= 0; close(fd)) {
        if (session < 0) start_child(fd, peer, listener, signals, old_mask);
        else pass_on(fd, peer, session);
    }
}

/* False: nobody (else) is there. */
static bool accept_one(int listener) {
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) usleep(10000);
        return errno == EINTR || errno == ECONNABORTED;
    }
    struct in6_addr address;
    char peer[INET6_ADDRSTRLEN];
    peer_name(&from, &address, peer, sizeof peer);
    if (allowed(&address)) {
        door_open(fd, &address, peer, now_s());
    } else {
        door_refused(peer, "address not allowed");
        close(fd);
    }
    return true;
}

static int reap(void) {
    int left = 0, status;
    for (int i = 0; i < MAX_CHILDREN; i++) {
        pid_t pid = children[i];
        if (!pid) continue;
        if (waitpid(pid, &status, WNOHANG) == pid) {
            account_clear(i);
            join_close(i);
            children[i] = 0;
            int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            report("{\"event\": \"gone\", \"pid\": %d, \"status\": %d}", pid, code);
        } else {
            left++;
        }
    }
    return left;
}

static void end_children(int number) {
    for (int i = 0; i < MAX_CHILDREN; i++)
        if (children[i]) kill(children[i], number);
}

static void stop(const char *why) {
    end_children(SIGTERM);
    for (double until = now_s() + 2; reap();) {
        usleep(2000);
        if (now_s() > until) end_children(SIGKILL);
    }
    if (options.port_file) unlink(options.port_file);
    report("{\"event\": \"stopped\", \"why\": \"%s\"}", why);
    exit(0);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none); /* a core file would hold the token and tenants' data */
    accounts_make();
    sigset_t mask, old_mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_BLOCK, &mask, &old_mask);
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK), port;
    if (signals < 0) fail("signalfd");
    int listener = listen_on(&port);
    write_port(port);
    report("{\"event\": \"listening\", \"port\": %d, \"pid\": %d}", port, getpid());

    double idle_since = now_s();
    for (;;) {
        struct pollfd waits[2 + MAX_WAITING] = {{.fd = listener, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        nfds_t entries = 2 + (nfds_t)door_polls(waits + 2);
        double until_s = door_until_s();
        if (reap()) {
            idle_since = now_s();
        } else if (options.idle_timeout_s) {
            double idle_until_s = idle_since + options.idle_timeout_s;
            if (idle_until_s <= now_s()) stop("idle");
            if (!until_s || idle_until_s < until_s) until_s = idle_until_s;
        }
        double left_s = until_s - now_s();
        if (poll(waits, entries, !until_s ? -1 : left_s > 0 ? (int)(left_s * 1000) + 1 : 0) < 0 && errno != EINTR)
            fail("poll");
        struct signalfd_siginfo got;
        while (read(signals, &got, sizeof got) == sizeof got)
            if (got.ssi_signo != SIGCHLD) stop(got.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
        reap(); /* so that a row is free and cleared before it is given out again */
        serve_proven(listener, signals, &old_mask);
        /* Who comes with its hello is looked at before the next one could take its place. */
        for (int i = 0; i < ACCEPTS && accept_one(listener); i++) serve_proven(listener, signals, &old_mask);
    }
}
