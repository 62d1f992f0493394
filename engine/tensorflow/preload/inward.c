/* Turns TensorFlow's own sockets inward: a server that would listen on all addresses of the machine, without asking
 * anybody for anything, listens on a socket file in a folder of its user's, and a connection to one of the addresses
 * below, which nobody has, goes to such a file.
 *
 * TensorFlow has no option for it: GrpcServer::Init says "0.0.0.0:PORT", in the server as in every client of one. It
 * calls bind() and connect() by their names, so a library that is loaded before the C library (LD_PRELOAD) has the first
 * word. Nothing happens to sockets of other ports and addresses, nor before elastic_ai_inward() was called.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST_RULES 32

struct rule {
    uint32_t address; /* host order; 0: to be listened on, whatever the address */
    uint16_t port;
    int listener; /* the socket that stands for it, -1 before the first bind() */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

static struct rule rules[MOST_RULES];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* From now on `address`:`port` ("" to listen on that port) is the socket file `path`. 0, or -1 where it cannot be. */
EXPORTED int elastic_ai_inward(const char *address, int port, const char *path)
{
    struct in_addr parsed = {0};
    if (port <= 0 || port > UINT16_MAX || strlen(path) >= sizeof rules[0].path)
        return -1;
    if (*address && inet_pton(AF_INET, address, &parsed) != 1)
        return -1;
    pthread_mutex_lock(&lock);
    int done = count < MOST_RULES ? 0 : -1;
    if (!done) {
        struct rule *rule = &rules[count++];
        rule->address = ntohl(parsed.s_addr);
        rule->port = (uint16_t)port;
        rule->listener = -1;
        strcpy(rule->path, path);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static int where(const struct sockaddr *name, socklen_t size, uint32_t *address, uint16_t *port)
{
    if (name && name->sa_family == AF_INET && size >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *in = (const void *)name;
        *address = ntohl(in->sin_addr.s_addr);
        *port = ntohs(in->sin_port);
        return 1;
    }
    if (name && name->sa_family == AF_INET6 && size >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *in = (const void *)name;
        uint32_t last;
        memcpy(&last, &in->sin6_addr.s6_addr[12], sizeof last);
        *address = IN6_IS_ADDR_V4MAPPED(&in->sin6_addr) ? ntohl(last) : 0;
        *port = ntohs(in->sin6_port);
        return 1;
    }
    return 0;
}

static struct rule *found(const struct sockaddr *name, socklen_t size, int listens)
{
    uint32_t address;
    uint16_t port;
    if (!count || !where(name, size, &address, &port))
        return NULL;
    for (int i = 0; i < count; i++)
        if (rules[i].port == port && (listens ? !rules[i].address : rules[i].address && rules[i].address == address))
            return &rules[i];
    return NULL;
}

/* A socket file's socket with the flags that `fd` has. */
static int made(int fd)
{
    int status = fcntl(fd, F_GETFL);
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock >= 0 && status >= 0)
        fcntl(sock, F_SETFL, status);
    return sock;
}

static void name_of(const struct rule *rule, struct sockaddr_un *name)
{
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    strcpy(name->sun_path, rule->path);
}

/* `sock` takes the place of `fd`, and of its number. */
static int put(int sock, int fd)
{
    int flags = fcntl(fd, F_GETFD);
    return dup3(sock, fd, flags >= 0 && flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0 ? -1 : 0;
}

static int listens(struct rule *rule, int fd)
{
    struct sockaddr_un name;
    name_of(rule, &name);
    if (rule->listener < 0) { /* gRPC binds once for each of its pollers: all have one socket */
        int sock = made(fd);
        if (sock < 0)
            return -1;
        unlink(rule->path);
        int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
        if (real(sock, (struct sockaddr *)&name, sizeof name) < 0) {
            int why = errno;
            close(sock);
            errno = why;
            return -1;
        }
        rule->listener = sock;
    }
    return put(rule->listener, fd);
}

EXPORTED int bind(int fd, const struct sockaddr *name, socklen_t size)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    struct rule *rule = found(name, size, 1);
    if (!rule)
        return real(fd, name, size);
    pthread_mutex_lock(&lock);
    int done = listens(rule, fd);
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORTED int connect(int fd, const struct sockaddr *name, socklen_t size)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    struct rule *rule = found(name, size, 0);
    if (!rule)
        return real(fd, name, size);
    struct sockaddr_un inward;
    name_of(rule, &inward);
    int sock = made(fd);
    if (sock < 0)
        return -1;
    int done = put(sock, fd);
    close(sock);
    return done < 0 ? -1 : real(fd, (struct sockaddr *)&inward, sizeof inward);
}
