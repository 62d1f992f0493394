/* A link of a rate and a delay between two network namespaces, for kernels without netem: two TUN devices, and a thread
 * for each direction between them. TCP at both ends is the kernel's own; packets are as large as segmentation offload
 * makes them, and what finds 20 ms of others before it is dropped.
 *     delay_line NAMESPACE NAMESPACE MTU GBPS DELAY_US_EACH_WAY      says "ready" when both have their device "v0" */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LARGEST ((size_t)66 << 10) /* a packet with its virtio header */
#define PACKETS 4096
#define QUEUE_NS 20000000

static double gbps;
static uint64_t delay_ns;

struct packet {
    uint64_t due_ns;
    size_t bytes;
    char *data;
};

struct direction {
    int from, to;
    struct packet ring[PACKETS];
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int device(const char *space, int mtu) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", space);
    int in = open(path, O_RDONLY);
    struct ifreq wanted = {.ifr_name = "v0", .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    if (in < 0 || setns(in, CLONE_NEWNET)) fail(path);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK); /* of the namespace that it is opened in */
    if (fd < 0 || ioctl(fd, TUNSETIFF, &wanted)) fail("/dev/net/tun");
    if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) fail("TUNSETOFFLOAD");
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq size = {.ifr_name = "v0", .ifr_mtu = mtu};
    if (any < 0 || ioctl(any, SIOCSIFMTU, &size)) fail("mtu");
    close(any);
    close(in);
    return fd;
}

static void *carry(void *argument) {
    struct direction *d = argument;
    uint64_t link_free_ns = 0;
    unsigned first = 0, count = 0;
    for (int i = 0; i < PACKETS; i++)
        if (!(d->ring[i].data = malloc(LARGEST))) fail("malloc");
    for (;;) {
        uint64_t now = now_ns();
        for (; count && d->ring[first % PACKETS].due_ns <= now; first++, count--) {
            struct packet *p = &d->ring[first % PACKETS];
            (void)!write(d->to, p->data, p->bytes);
        }
        struct packet *next = &d->ring[(first + count) % PACKETS];
        ssize_t got = count < PACKETS ? read(d->from, next->data, LARGEST) : -1;
        if (got > 0) {
            now = now_ns();
            if (link_free_ns < now) link_free_ns = now;
            if (link_free_ns > now + QUEUE_NS) continue;
            link_free_ns += (uint64_t)((double)got * 8 / gbps);
            next->bytes = (size_t)got;
            next->due_ns = link_free_ns + delay_ns;
            count++;
            continue;
        }
        uint64_t due = count ? d->ring[first % PACKETS].due_ns : now + 1000000000u;
        now = now_ns();
        struct timespec pause = {0, due > now ? (long)(due - now) : 0};
        struct pollfd wait = {.fd = d->from, .events = POLLIN};
        if (pause.tv_nsec >= 1000000000) pause = (struct timespec){1, 0};
        ppoll(&wait, 1, &pause, NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    static struct direction there, back;
    pthread_t thread;
    if (argc != 6) return 2;
    gbps = atof(argv[4]);
    delay_ns = strtoull(argv[5], NULL, 10) * 1000;
    int a = device(argv[1], atoi(argv[3])), b = device(argv[2], atoi(argv[3]));
    there.from = back.to = a;
    there.to = back.from = b;
    if (pthread_create(&thread, NULL, carry, &there)) fail("pthread_create");
    puts("ready");
    fflush(stdout);
    carry(&back);
}
