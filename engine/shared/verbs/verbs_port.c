/* The RDMA port that has a connection's address, and a queue pair on it. libibverbs is loaded when it is first wanted:
 * programs and servers that keep to TCP need none. */
#ifdef WITH_VERBS /* else verbs_none.c */
#define _GNU_SOURCE
#include "verbs_port.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "verbs_inside.h"

static int because(char why[VERBS_WHY], const char *format, ...) __attribute__((format(printf, 2, 3)));

static int because(char why[VERBS_WHY], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, VERBS_WHY, format, arguments);
    va_end(arguments);
    return -1;
}

#define MOST_GIDS 1024 /* of a device, in use; the kernel refuses (EINVAL) to be asked for more than 64 KiB of them */
#define BITS_24 0xffffffu
#define HOPS 64
/* A packet that nobody answers is sent again after 0.54 s, as often as can be asked for: seven times, so that an adapter gives
 * up after 4.3 s at the earliest. Soft-RoCE takes seven for endless ones, which STUCK_NS ends: its answers wait for a
 * processor, and that of a busy machine may be late by seconds, as TCP's beside it. */
#define ACK_TIMEOUT 17
#define RETRIES 7
#define FOR_EVER 7 /* rnr_retry: a peer without an order to receive; credits keep it from happening */
#define RNR_TIMER 12 /* 0.64 ms */

struct verbs_library verbs_library;

static int load(char why[VERBS_WHY]) {
    static const struct { const char *name; void *to; } wanted[] = {
        {"ibv_get_device_list", &verbs_library.get_device_list},
        {"ibv_free_device_list", &verbs_library.free_device_list},
        {"ibv_get_device_name", &verbs_library.get_device_name},
        {"ibv_open_device", &verbs_library.open_device},
        {"ibv_close_device", &verbs_library.close_device},
        {"ibv_query_port", &verbs_library.query_port},
        {"_ibv_query_gid_table", &verbs_library.query_gid_table},
        {"ibv_alloc_pd", &verbs_library.alloc_pd},
        {"ibv_dealloc_pd", &verbs_library.dealloc_pd},
        {"ibv_reg_mr", &verbs_library.reg_mr},
        {"ibv_dereg_mr", &verbs_library.dereg_mr},
        {"ibv_create_comp_channel", &verbs_library.create_comp_channel},
        {"ibv_destroy_comp_channel", &verbs_library.destroy_comp_channel},
        {"ibv_create_cq", &verbs_library.create_cq},
        {"ibv_destroy_cq", &verbs_library.destroy_cq},
        {"ibv_get_cq_event", &verbs_library.get_cq_event},
        {"ibv_ack_cq_events", &verbs_library.ack_cq_events},
        {"ibv_create_qp", &verbs_library.create_qp},
        {"ibv_modify_qp", &verbs_library.modify_qp},
        {"ibv_destroy_qp", &verbs_library.destroy_qp},
        {"ibv_get_async_event", &verbs_library.get_async_event},
        {"ibv_ack_async_event", &verbs_library.ack_async_event},
        {"ibv_fork_init", &verbs_library.fork_init},
    };
    static void *library;
    if (library) return 0;
    void *found = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!found) return because(why, "libibverbs cannot be loaded (%.140s); package libibverbs1 has it", dlerror());
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *function = dlsym(found, wanted[i].name);
        if (!function) return because(why, "libibverbs here has no %s: it is older than rdma-core 32", wanted[i].name);
        memcpy(wanted[i].to, &function, sizeof function);
    }
    library = found;
    (void)verbs_library.fork_init(); /* fails where something was registered before; kernels from 5.12 need none */
    return 0;
}

/* As RoCE v2 has it in a port's table: an IPv4 address is a mapped one. */
static union ibv_gid gid_of(const struct sockaddr *address) {
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
    if (address->sa_family == AF_INET6) memcpy(gid.raw, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
    else memcpy(gid.raw + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
    return gid;
}

static const char *name_of(const union ibv_gid *gid, char name[INET6_ADDRSTRLEN]) {
    const struct in6_addr *address = (const struct in6_addr *)gid->raw;
    if (IN6_IS_ADDR_V4MAPPED(address)) return inet_ntop(AF_INET, gid->raw + 12, name, INET6_ADDRSTRLEN);
    return inet_ntop(AF_INET6, gid->raw, name, INET6_ADDRSTRLEN);
}

/* The entry of that address in a device's table: 1; 0 where there is none; a negative errno. */
static int has(struct ibv_context *context, const union ibv_gid *gid, struct ibv_gid_entry *found) {
    struct ibv_gid_entry *all = calloc(MOST_GIDS, sizeof *all);
    ssize_t count = all ? verbs_library.query_gid_table(context, all, MOST_GIDS, 0, sizeof *all) : -ENOMEM, i = 0;
    while (i < count && (all[i].gid_type != IBV_GID_TYPE_ROCE_V2 || memcmp(all[i].gid.raw, gid->raw, 16))) i++;
    if (i < count) *found = all[i];
    free(all);
    return count < 0 ? (int)count : i < count;
}

static int port_found(struct verbs *v, const struct ibv_gid_entry *entry, const char *name, char why[VERBS_WHY]) {
    struct ibv_port_attr port;
    memset(&port, 0, sizeof port);
    int error = verbs_library.query_port(v->context, (uint8_t)entry->port_num, &port);
    if (error) return because(why, "port %u of %s cannot be asked: %s", entry->port_num, v->device, strerror(error));
    if (port.state != IBV_PORT_ACTIVE)
        return because(why, "port %u of %s, which has the address %s, is down", entry->port_num, v->device, name);
    v->port = (uint8_t)entry->port_num;
    v->gid_index = entry->gid_index;
    v->mtu = port.active_mtu;
    return 0;
}

static int find_port(struct verbs *v, const union ibv_gid *gid, char why[VERBS_WHY]) {
    char name[INET6_ADDRSTRLEN], refused[160] = "";
    int count = 0;
    struct ibv_device **list = verbs_library.get_device_list(&count);
    name_of(gid, name);
    for (int i = 0; list && i < count && !v->context; i++) {
        struct ibv_gid_entry entry = {0};
        v->context = verbs_library.open_device(list[i]);
        snprintf(v->device, sizeof v->device, "%s", verbs_library.get_device_name(list[i]));
        if (!v->context) {
            snprintf(refused, sizeof refused, "; %s cannot be opened: %s", v->device, strerror(errno));
            continue;
        }
        int answer = has(v->context, gid, &entry);
        if (answer > 0) {
            verbs_library.free_device_list(list);
            return port_found(v, &entry, name, why);
        }
        if (answer < 0)
            snprintf(refused, sizeof refused, "; %s does not tell its addresses: %s", v->device, strerror(-answer));
        verbs_library.close_device(v->context);
        v->context = NULL;
    }
    if (list) verbs_library.free_device_list(list);
    return because(why, "no RDMA port has the address %s for RoCE v2 (%d RDMA devices%s)", name, count, refused);
}

static char *ring(struct verbs *v, int access, struct ibv_mr **mr) {
    char *at = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    *mr = verbs_library.reg_mr(v->pd, at, RING, access);
    if (*mr) return at;
    int error = errno;
    munmap(at, RING);
    errno = error;
    return NULL;
}

static int make_rings(struct verbs *v, char why[VERBS_WHY]) {
    v->in = ring(v, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &v->in_mr);
    if (v->in) v->out = ring(v, 0, &v->out_mr);
    if (v->out) return 0;
    struct rlimit limit = {0, 0};
    int error = errno;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (error != ENOMEM) return because(why, "memory cannot be given to %s: %s", v->device, strerror(error));
    return because(why, "%zu KiB of memory cannot be locked for %s: the limit (ulimit -l) is %llu KiB", 2 * RING >> 10,
                   v->device, (unsigned long long)limit.rlim_cur >> 10);
}

int verbs_post_receive(struct verbs *v) {
    struct ibv_recv_wr order = {0}, *bad; /* the bytes go into the ring; only the word comes this way */
    return ibv_post_recv(v->qp, &order, &bad);
}

static int make_pair(struct verbs *v, char why[VERBS_WHY]) {
    const uint32_t orders = SLOTS + CREDITS;
    v->pd = verbs_library.alloc_pd(v->context);
    if (!v->pd) return because(why, "%s gives no protection domain: %s", v->device, strerror(errno));
    if (make_rings(v, why)) return -1;
    v->channel = verbs_library.create_comp_channel(v->context);
    if (v->channel) v->cq = verbs_library.create_cq(v->context, 2 * (int)orders, NULL, v->channel, 0);
    struct ibv_qp_init_attr wanted = {.send_cq = v->cq, .recv_cq = v->cq, .qp_type = IBV_QPT_RC,
                                      .cap = {.max_send_wr = orders, .max_recv_wr = orders, .max_send_sge = 1,
                                              .max_recv_sge = 1, .max_inline_data = INLINE}};
    struct ibv_qp_init_attr as_is = wanted;
    if (v->cq) v->qp = verbs_library.create_qp(v->pd, &as_is);
    if (v->cq && !v->qp) {
        as_is = wanted;
        as_is.cap.max_inline_data = 0;
        v->qp = verbs_library.create_qp(v->pd, &as_is);
    }
    if (!v->qp) return because(why, "%s gives no queue pair: %s", v->device, strerror(errno));
    v->inline_bytes = as_is.cap.max_inline_data;
    struct ibv_qp_attr start = {.qp_state = IBV_QPS_INIT, .port_num = v->port,
                                .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int error = verbs_library.modify_qp(v->qp, &start,
                                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    for (uint32_t i = 0; i < orders && !error; i++) error = verbs_post_receive(v);
    return error ? because(why, "%s does not start a queue pair: %s", v->device, strerror(error)) : 0;
}

struct verbs *verbs_open(int fd, char why[VERBS_WHY]) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof here, there_size = sizeof there;
    if (load(why)) return NULL;
    if (getsockname(fd, (struct sockaddr *)&here, &here_size) || getpeername(fd, (struct sockaddr *)&there, &there_size)) {
        because(why, "the connection's addresses are not known: %s", strerror(errno));
        return NULL;
    }
    struct verbs *v = calloc(1, sizeof *v);
    if (!v || getrandom(&v->first_packet, sizeof v->first_packet, 0) < 0) {
        because(why, "%s", strerror(errno));
        free(v);
        return NULL;
    }
    v->fd = fd;
    v->first_packet &= BITS_24;
    v->peer = gid_of((struct sockaddr *)&there);
    pthread_mutex_init(&v->lock, NULL);
    pthread_condattr_t by;
    pthread_condattr_init(&by);
    pthread_condattr_setclock(&by, CLOCK_MONOTONIC);
    pthread_cond_init(&v->moved, &by);
    pthread_condattr_destroy(&by);
    union ibv_gid own = gid_of((struct sockaddr *)&here);
    if (find_port(v, &own, why) || make_pair(v, why)) {
        verbs_close(v);
        return NULL;
    }
    return v;
}

void verbs_tell(const struct verbs *v, struct verbs_end *end) {
    *end = (struct verbs_end){.queue_pair = v->qp->qp_num, .first_packet = v->first_packet, .mtu = v->mtu,
                              .key = v->in_mr->rkey, .ring = (uintptr_t)v->in};
}

int verbs_connect(struct verbs *v, const struct verbs_end *theirs, char why[VERBS_WHY]) {
    if (theirs->queue_pair > BITS_24 || theirs->first_packet > BITS_24 || theirs->mtu < IBV_MTU_256 ||
        theirs->mtu > IBV_MTU_4096)
        return because(why, "what the other end says of its queue pair makes no sense");
    v->their_ring = theirs->ring;
    v->their_key = theirs->key;
    if (theirs->mtu < v->mtu) v->mtu = theirs->mtu;
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTR, .path_mtu = v->mtu, .dest_qp_num = theirs->queue_pair, .rq_psn = theirs->first_packet,
        .max_dest_rd_atomic = 1, .min_rnr_timer = RNR_TIMER,
        .ah_attr = {.is_global = 1, .port_num = v->port,
                    .grh = {.dgid = v->peer, .sgid_index = (uint8_t)v->gid_index, .hop_limit = HOPS}},
    };
    int error = verbs_library.modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                                       IBV_QP_MIN_RNR_TIMER);
    if (error) {
        char name[INET6_ADDRSTRLEN];
        return because(why, "%s finds no way to %s: %s", v->device, name_of(&v->peer, name), strerror(error));
    }
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = v->first_packet, .timeout = ACK_TIMEOUT,
                             .retry_cnt = RETRIES, .rnr_retry = FOR_EVER, .max_rd_atomic = 1};
    error = verbs_library.modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    return error ? because(why, "%s does not start to send: %s", v->device, strerror(error)) : 0;
}

int verbs_check(const struct sockaddr *address, char why[VERBS_WHY]) {
    union ibv_gid any = gid_of(address);
    const struct in6_addr *plain = (const struct in6_addr *)any.raw;
    if (load(why)) return -1;
    if (IN6_IS_ADDR_UNSPECIFIED(plain) || (IN6_IS_ADDR_V4MAPPED(plain) && !memcmp(any.raw + 12, "\0\0\0\0", 4))) return 0;
    struct verbs v = {0};
    int failed = find_port(&v, &any, why);
    if (v.context) verbs_library.close_device(v.context);
    return failed;
}

void verbs_close(struct verbs *v) {
    if (v->qp) verbs_library.destroy_qp(v->qp);
    if (v->cq) verbs_library.destroy_cq(v->cq);
    if (v->channel) verbs_library.destroy_comp_channel(v->channel);
    if (v->in_mr) verbs_library.dereg_mr(v->in_mr);
    if (v->out_mr) verbs_library.dereg_mr(v->out_mr);
    if (v->in) munmap(v->in, RING);
    if (v->out) munmap(v->out, RING);
    if (v->pd) verbs_library.dealloc_pd(v->pd);
    if (v->context) verbs_library.close_device(v->context);
    free(v);
}

void verbs_forget(struct verbs *v) {
    close(v->channel->fd);
    close(v->context->cmd_fd);
    if (v->context->async_fd >= 0) close(v->context->async_fd);
}

void verbs_where(const struct verbs *v, struct verbs_port *where) {
    *where = (struct verbs_port){v->device, v->port, v->gid_index, 128u << v->mtu};
}

#endif
