/* Lets in those alone who have a lease's token: a checkpoint provider of Lupine (its ABI version 1), which its server
 * loads into the process of each new connection, before any CUDA call and any request.
 *
 * The publisher's interface names the session of a client only where the client sends one, so a client without a
 * session would never be asked. start() therefore looks at what the client has sent, without taking it from the
 * socket: the first HEADERS frame (RFC 9113) has to carry the token in x-lupine-session. Everything else ends the
 * process: no token, another, a first frame that is not as the publisher's client makes it, silence. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TOKEN_MIN = 16, TOKEN_MAX = 255, SESSION_MAX = 4096, MOST_BYTES = 32768, PATIENCE_MS = 5000, MOST_FDS = 1024 };
enum { FRAME_HEADERS = 1, FRAME_SETTINGS = 4, FRAME_WINDOW_UPDATE = 8 };
enum { FLAG_END_STREAM = 1, FLAG_END_HEADERS = 4 };
static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
static const char HEADER[] = "x-lupine-session";

/* nghttp2's public interface for header compression (RFC 7541), found in the server, which is linked to it. */
typedef struct {
    uint8_t *name, *value;
    size_t namelen, valuelen;
    uint8_t flags;
} header;
typedef struct inflater inflater;
static int (*inflate_new)(inflater **);
static ssize_t (*inflate)(inflater *, header *, int *, const uint8_t *, size_t, int);
static void (*inflate_del)(inflater *);
enum { INFLATED_FINAL = 1, INFLATED_HEADER = 2 };

static char token[TOKEN_MAX + 1];

static void refuse(const char *why) {
    fprintf(stderr, "refused a connection: %s\n", why);
    fflush(stderr);
    _exit(1);
}

static int read_token(void) {
    const char *path = getenv("ELASTIC_AI_TOKEN_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, token, TOKEN_MAX);
    if (fd >= 0)
        close(fd);
    token[n < 0 ? 0 : n] = '\0';
    token[strcspn(token, "\n")] = '\0';
    return strlen(token) >= TOKEN_MIN;
}

static int same(const char *given, size_t length) {
    size_t n = strlen(token);
    unsigned char differs = length != n;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)token[i] ^ (unsigned char)given[length ? i % length : 0];
    return length && !differs;
}

/* A session is the tokens of all servers of a lease, with commas between. Every one of them is compared. */
static int admits(const char *session, size_t length) {
    int found = 0;
    if (length > SESSION_MAX || strlen(token) < TOKEN_MIN)
        return 0;
    for (size_t from = 0, i = 0; i <= length; i++)
        if (i == length || session[i] == ',') {
            found |= same(session + from, i - from);
            from = i + 1;
        }
    return found;
}

/* The one connected socket of this process; -1 where there is none, or more. */
static int connection(void) {
    int found = -1;
    for (int fd = 0; fd < MOST_FDS; fd++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0)
            continue;
        if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6)
            continue;
        if (found >= 0)
            return -1;
        found = fd;
    }
    return found;
}

static int headers_admit(const uint8_t *block, size_t length) {
    inflater *state;
    int admitted = 0, flags = 0;
    if (inflate_new(&state) != 0)
        return 0;
    while (!(flags & INFLATED_FINAL)) {
        header one;
        flags = 0;
        ssize_t used = inflate(state, &one, &flags, block, length, 1);
        if (used < 0 || (used == 0 && !flags)) {
            admitted = 0;
            break;
        }
        block += used;
        length -= (size_t)used;
        if ((flags & INFLATED_HEADER) && one.namelen == strlen(HEADER) && !memcmp(one.name, HEADER, one.namelen))
            admitted = admits((const char *)one.value, one.valuelen);
    }
    inflate_del(state);
    return admitted;
}

/* 1: the client has the token, 0: it has not, -1: it has not said enough yet. */
static int judge(const uint8_t *data, size_t n) {
    size_t at = strlen(PREFACE);
    if (memcmp(data, PREFACE, n < at ? n : at))
        return 0;
    for (;;) {
        if (n < at + 9)
            return -1;
        size_t length = (size_t)data[at] << 16 | (size_t)data[at + 1] << 8 | data[at + 2];
        uint8_t kind = data[at + 3], flags = data[at + 4];
        if (length > MOST_BYTES - at - 9)
            return 0;
        if (kind == FRAME_HEADERS) {
            if ((flags & ~FLAG_END_STREAM) != FLAG_END_HEADERS)
                return 0;
            return n < at + 9 + length ? -1 : headers_admit(data + at + 9, length);
        }
        if (kind != FRAME_SETTINGS && kind != FRAME_WINDOW_UPDATE)
            return 0;
        at += 9 + length;
    }
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int find_nghttp2(void) {
    *(void **)&inflate_new = dlsym(RTLD_DEFAULT, "nghttp2_hd_inflate_new");
    *(void **)&inflate = dlsym(RTLD_DEFAULT, "nghttp2_hd_inflate_hd2");
    *(void **)&inflate_del = dlsym(RTLD_DEFAULT, "nghttp2_hd_inflate_del");
    return inflate_new && inflate && inflate_del;
}

static int start(void) {
    static uint8_t seen[MOST_BYTES];
    int fd = connection();
    if (!read_token())
        refuse("this server knows no token of its lease");
    if (!find_nghttp2())
        refuse("this server's way to read headers is not known");
    if (fd < 0)
        refuse("no connection, or more than one, in its process");
    ssize_t before = 0;
    for (int64_t until = now_ms() + PATIENCE_MS; now_ms() < until;) {
        ssize_t n = recv(fd, seen, sizeof seen, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0)
            refuse("its client went away");
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            refuse(strerror(errno));
        int admitted = n > 0 ? judge(seen, (size_t)n) : -1;
        if (admitted == 1)
            return 0;
        if (admitted == 0)
            refuse("it has not the token of this lease");
        /* What is there already would wake poll() at once: then wait for more by the clock. */
        struct pollfd one = {.fd = fd, .events = n > 0 && n == before ? 0 : POLLIN};
        poll(&one, 1, n > 0 ? 5 : 200);
        before = n;
    }
    refuse("it did not show a token in time");
    return 1;
}

static int restore(const char *session) {
    if (!session || !admits(session, strlen(session)))
        refuse("it changed its token");
    return 0;
}

static int checkpoint(const char *session) {
    (void)session;
    return 0;
}

static void stop(void) {}

typedef struct {
    size_t struct_size;
    uint32_t abi_version;
    int (*start)(void);
    int (*restore)(const char *);
    int (*checkpoint)(const char *);
    void (*stop)(void);
} provider;

__attribute__((visibility("default"))) const provider *lupinecr_get_lupine_provider_v1(void) {
    static const provider ours = {sizeof(provider), 1, start, restore, checkpoint, stop};
    return &ours;
}
