/* A libibverbs for machines without RDMA: one device whose packets are datagrams of this machine. What the engine's second
 * transport asks of a device is kept to: writes only into registered memory by its key, orders to receive, completions in
 * order, events, errors that end a queue pair.
 *
 * FAKE_VERBS_DIR        folder of the wire and of the file `counters` (three u64: queue pairs, packets and bytes sent);
 *                       without it there is no device
 * FAKE_VERBS_ADDRESSES  IPv4 addresses of its port, comma-separated; each is in its table twice, first for RoCE v1
 * FAKE_VERBS_FAULT      down: the port is; memory: none can be locked; silent: packets get lost; reach: writes go beyond
 *                       the peer's ring; word=N: of the 20th message on, its word is N
 * While the folder has a file `cut`, packets get lost and are sent again for ever, as soft-RoCE may do: nothing completes.
 * While it has a file `late`, nobody answers them: they are sent again as often as the pair was asked to, seven times for
 * ever, as soft-RoCE does, in a tenth of its time, and those that are sent arrive once the file has gone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr
#define EXPORT __attribute__((visibility("default")))
#define MTU 1024
#define DATAGRAM 65536
#define ENTRIES 512
#define MOST_MR 64
#define HONEST 20 /* messages before a fault of words shows */
#define UNIT_NS 4096 /* a timeout of n is so many times 2^n */
#define FASTER 10
#define ENDLESS 7

struct wire { uint64_t pairs, packets, bytes; };
struct head { uint32_t source, key, length, word, last, refused; uint64_t at; };

struct queue {
    struct ibv_cq cq;
    pthread_mutex_t lock;
    struct ibv_wc all[ENTRIES];
    unsigned first, next;
    bool armed;
};

struct pair {
    struct ibv_qp qp;
    int fd, stop;
    pthread_t nic;
    pthread_mutex_t sending; /* taken before the other, without which a full socket holds nobody up who receives */
    pthread_mutex_t lock;
    pthread_cond_t more;
    uint32_t peer;
    uint64_t orders[ENTRIES];
    unsigned first, next, messages;
    uint8_t timeout, retries;
    bool broken;
};

static struct wire *wire;
static struct ibv_device device = {.name = "fake_verbs0", .dev_name = "uverbs-fake"};
static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER;
static struct { struct ibv_mr mr; int access; bool used; } regions[MOST_MR];

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static bool fault(const char *name) {
    return !strncmp(setting("FAKE_VERBS_FAULT"), name, strlen(name));
}

static bool wire_is(const char *how) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", setting("FAKE_VERBS_DIR"), how);
    return !access(path, F_OK);
}

static void push(struct queue *q, struct ibv_wc wc) {
    pthread_mutex_lock(&q->lock);
    if (q->next - q->first == ENTRIES) abort(); /* a device would lose its completion queue */
    q->all[q->next++ % ENTRIES] = wc;
    if (q->armed && eventfd_write(q->cq.channel->fd, 1)) abort();
    q->armed = false;
    pthread_mutex_unlock(&q->lock);
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *to) {
    struct queue *q = (struct queue *)cq;
    int count = 0;
    pthread_mutex_lock(&q->lock);
    while (count < most && q->first != q->next) to[count++] = q->all[q->first++ % ENTRIES];
    pthread_mutex_unlock(&q->lock);
    return count;
}

static int notify(struct ibv_cq *cq, int solicited) {
    struct queue *q = (struct queue *)cq;
    (void)solicited;
    pthread_mutex_lock(&q->lock);
    q->armed = true;
    pthread_mutex_unlock(&q->lock);
    return 0;
}

static void address_of(uint32_t pair, struct sockaddr_un *to) {
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(to->sun_path, sizeof to->sun_path, "%s/%u", setting("FAKE_VERBS_DIR"), pair);
}

/* The pair's end: all orders to receive come back. Called with its lock held. */
static void broken(struct pair *p) {
    if (p->broken) return;
    p->broken = true;
    while (p->first != p->next)
        push((struct queue *)p->qp.recv_cq, (struct ibv_wc){.wr_id = p->orders[p->first++ % ENTRIES],
                                                             .status = IBV_WC_WR_FLUSH_ERR, .qp_num = p->qp.qp_num});
    pthread_cond_broadcast(&p->more);
}

static void fail_order(struct pair *p, uint64_t id, enum ibv_wc_status status) {
    push((struct queue *)p->qp.send_cq, (struct ibv_wc){.wr_id = id, .status = status, .qp_num = p->qp.qp_num});
    broken(p);
}

/* False: nobody is there any more. */
static bool transmit(struct pair *p, const struct head *h, const void *data) {
    struct sockaddr_un to;
    struct iovec parts[2] = {{(void *)(uintptr_t)h, sizeof *h}, {(void *)(uintptr_t)data, h->length}};
    struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = parts, .msg_iovlen = 2};
    address_of(p->peer, &to);
    if (fault("silent")) return false;
    __atomic_add_fetch(&wire->packets, (h->length + MTU - 1) / MTU + !h->length, __ATOMIC_RELAXED);
    __atomic_add_fetch(&wire->bytes, h->length, __ATOMIC_RELAXED);
    ssize_t sent;
    while ((sent = sendmsg(p->fd, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR) {}
    return sent >= 0;
}

/* Until somebody answers; false: it was sent as often as was asked for. */
static bool answered(const struct pair *p) {
    const struct timespec pause = {0, (long)((UNIT_NS << p->timeout) / FASTER)};
    for (unsigned tries = 0; wire_is("late"); tries++) {
        if (p->retries != ENDLESS && tries > p->retries) return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *order, struct ibv_send_wr **bad) {
    struct pair *p = (struct pair *)qp;
    const char *data = order->num_sge ? (const char *)(uintptr_t)order->sg_list->addr : NULL;
    uint32_t left = order->num_sge ? order->sg_list->length : 0, word = order->imm_data;
    uint64_t at = order->wr.rdma.remote_addr;
    *bad = order;
    if (order->opcode != IBV_WR_RDMA_WRITE_WITH_IMM || order->num_sge > 1 || order->next) return EINVAL;
    pthread_mutex_lock(&p->sending);
    if (++p->messages > HONEST) {
        if (fault("word=")) word = htonl((uint32_t)strtoul(setting("FAKE_VERBS_FAULT") + 5, NULL, 0));
        if (fault("reach")) at += (uint64_t)1 << 40;
    }
    pthread_mutex_lock(&p->lock);
    bool there = !p->broken;
    if (!there) fail_order(p, order->wr_id, IBV_WC_WR_FLUSH_ERR);
    pthread_mutex_unlock(&p->lock);
    if (there && wire_is("cut")) {
        pthread_mutex_unlock(&p->sending);
        return 0;
    }
    if (there && !answered(p)) {
        pthread_mutex_lock(&p->lock);
        fail_order(p, order->wr_id, IBV_WC_RETRY_EXC_ERR);
        pthread_mutex_unlock(&p->lock);
        there = false;
    }
    for (bool more = there; more && there;) {
        uint32_t step = left < DATAGRAM ? left : DATAGRAM;
        left -= step;
        struct head h = {qp->qp_num, order->wr.rdma.rkey, step, word, !left, 0, at};
        there = transmit(p, &h, data);
        data += step, at += step, more = left;
        if (there) continue;
        pthread_mutex_lock(&p->lock);
        fail_order(p, order->wr_id, IBV_WC_RETRY_EXC_ERR);
        pthread_mutex_unlock(&p->lock);
    }
    if (there)
        push((struct queue *)qp->send_cq, (struct ibv_wc){.wr_id = order->wr_id, .opcode = IBV_WC_RDMA_WRITE});
    pthread_mutex_unlock(&p->sending);
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *order, struct ibv_recv_wr **bad) {
    struct pair *p = (struct pair *)qp;
    (void)bad;
    pthread_mutex_lock(&p->lock);
    p->orders[p->next++ % ENTRIES] = order->wr_id;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static bool may_write(const struct head *h) {
    bool found = false;
    pthread_mutex_lock(&memory);
    for (int i = 0; i < MOST_MR; i++) {
        uint64_t start = (uintptr_t)regions[i].mr.addr, bytes = regions[i].mr.length;
        if (regions[i].used && regions[i].mr.rkey == h->key && regions[i].access & IBV_ACCESS_REMOTE_WRITE)
            found = h->at >= start && h->length <= bytes && h->at - start <= bytes - h->length;
    }
    pthread_mutex_unlock(&memory);
    return found || !h->length;
}

static void take(struct pair *p, struct head *h, const char *data) {
    pthread_mutex_lock(&p->lock);
    if (h->source != p->peer) {
        pthread_mutex_unlock(&p->lock);
        return;
    }
    if (h->refused) {
        fail_order(p, 0, IBV_WC_REM_ACCESS_ERR);
    } else if (!may_write(h)) {
        struct head no = {.source = p->qp.qp_num, .refused = 1};
        (void)transmit(p, &no, NULL);
        broken(p);
    } else {
        if (h->length) memcpy((void *)(uintptr_t)h->at, data, h->length);
        while (h->last && p->first == p->next && !p->broken) pthread_cond_wait(&p->more, &p->lock);
        if (h->last && !p->broken)
            push((struct queue *)p->qp.recv_cq,
                 (struct ibv_wc){.wr_id = p->orders[p->first++ % ENTRIES], .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                 .wc_flags = IBV_WC_WITH_IMM, .imm_data = h->word, .byte_len = h->length});
    }
    pthread_mutex_unlock(&p->lock);
}

static void *nic(void *argument) {
    struct pair *p = argument;
    char *packet = malloc(sizeof(struct head) + DATAGRAM);
    struct pollfd waits[2] = {{.fd = p->fd, .events = POLLIN}, {.fd = p->stop, .events = POLLIN}};
    while (packet && (poll(waits, 2, -1) > 0 || errno == EINTR) && !waits[1].revents) {
        ssize_t got = recv(p->fd, packet, sizeof(struct head) + DATAGRAM, MSG_DONTWAIT);
        struct head *h = (struct head *)packet;
        if (got < (ssize_t)sizeof *h || (size_t)got != sizeof *h + h->length) continue;
        take(p, h, packet + sizeof *h);
    }
    free(packet);
    return NULL;
}

EXPORT struct ibv_device **ibv_get_device_list(int *count) {
    struct ibv_device **list = calloc(2, sizeof *list);
    *count = *setting("FAKE_VERBS_DIR") != '\0';
    if (*count) list[0] = &device;
    return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) { free(list); }
EXPORT const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
EXPORT int ibv_fork_init(void) { return 0; }

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d) {
    char path[512];
    snprintf(path, sizeof path, "%s/counters", setting("FAKE_VERBS_DIR"));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *wire)) return NULL;
    wire = mmap(NULL, sizeof *wire, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct ibv_context *c = calloc(1, sizeof *c);
    c->device = d;
    c->cmd_fd = fd;
    c->async_fd = -1;
    c->ops.poll_cq = poll_cq;
    c->ops.req_notify_cq = notify;
    c->ops.post_send = post_send;
    c->ops.post_recv = post_recv;
    return c;
}

EXPORT int ibv_close_device(struct ibv_context *c) {
    close(c->cmd_fd);
    free(c);
    return 0;
}

EXPORT int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *to) {
    struct ibv_port_attr *a = (struct ibv_port_attr *)to;
    (void)c;
    if (port != 1) return EINVAL;
    a->state = fault("down") ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    a->active_mtu = IBV_MTU_1024;
    return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *to, size_t most, uint32_t flags,
                                    size_t bytes) {
    char text[512];
    size_t count = 0;
    (void)c, (void)flags;
    if (most * bytes > UINT16_MAX) return -EINVAL; /* as the kernel: what an attribute of its answer can hold */
    snprintf(text, sizeof text, "%s", setting("FAKE_VERBS_ADDRESSES"));
    for (char *rest = text, *one; (one = strsep(&rest, ",")) && count + 2 <= most;)
        for (int type = IBV_GID_TYPE_ROCE_V1; type <= IBV_GID_TYPE_ROCE_V2; type++) {
            to[count] = (struct ibv_gid_entry){.gid_index = (uint32_t)count, .port_num = 1, .gid_type = (uint32_t)type,
                                               .gid.raw = {[10] = 0xff, [11] = 0xff}};
            inet_pton(AF_INET, one, to[count++].gid.raw + 12);
        }
    return (ssize_t)count;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *c) {
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = c;
    return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd) {
    free(pd);
    return 0;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access) {
    struct ibv_mr *found = NULL;
    errno = ENOMEM;
    if (fault("memory")) return NULL;
    pthread_mutex_lock(&memory);
    for (int i = 0; i < MOST_MR && !found; i++) {
        if (regions[i].used) continue;
        regions[i].used = true;
        regions[i].access = access;
        found = &regions[i].mr;
        uint32_t key = (uint32_t)getpid() << 8 | (uint32_t)i; /* another process's is another one */
        *found = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = at, .length = bytes, .lkey = key, .rkey = key};
    }
    pthread_mutex_unlock(&memory);
    return found;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr) {
    pthread_mutex_lock(&memory);
    for (int i = 0; i < MOST_MR; i++)
        if (&regions[i].mr == mr) regions[i].used = false;
    pthread_mutex_unlock(&memory);
    return 0;
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c) {
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    channel->context = c;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    return channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    free(channel);
    return 0;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *c, int entries, void *own, struct ibv_comp_channel *channel,
                                    int vector) {
    struct queue *q = calloc(1, sizeof *q);
    (void)vector;
    q->cq = (struct ibv_cq){.context = c, .channel = channel, .cq_context = own, .cqe = entries};
    pthread_mutex_init(&q->lock, NULL);
    return &q->cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq) {
    free(cq);
    return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **own) {
    eventfd_t one;
    *cq = NULL;
    *own = NULL;
    return eventfd_read(channel->fd, &one);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) { (void)cq, (void)count; }

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a) {
    struct pair *p = calloc(1, sizeof *p);
    struct sockaddr_un own;
    p->qp = (struct ibv_qp){.context = pd->context, .pd = pd, .send_cq = a->send_cq, .recv_cq = a->recv_cq,
                            .qp_type = a->qp_type};
    if (a->cap.max_inline_data > 64) { /* as a device that takes less than it is asked for */
        free(p);
        errno = EINVAL;
        return NULL;
    }
    p->qp.qp_num = (uint32_t)__atomic_add_fetch(&wire->pairs, 1, __ATOMIC_RELAXED);
    pthread_mutex_init(&p->sending, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    p->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    p->stop = eventfd(0, EFD_CLOEXEC);
    address_of(p->qp.qp_num, &own);
    if (bind(p->fd, (struct sockaddr *)&own, sizeof own) || pthread_create(&p->nic, NULL, nic, p)) return NULL;
    return &p->qp;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask) {
    struct pair *p = (struct pair *)qp;
    static const union ibv_gid none;
    if (a->qp_state == IBV_QPS_RTR) {
        bool v2 = a->ah_attr.grh.sgid_index % 2; /* the peer is there by its address alone */
        if (!(mask & IBV_QP_AV) || !v2 || !memcmp(&a->ah_attr.grh.dgid, &none, sizeof none)) return EINVAL;
        pthread_mutex_lock(&p->lock);
        p->peer = a->dest_qp_num;
        pthread_mutex_unlock(&p->lock);
    }
    if (a->qp_state == IBV_QPS_RTS) p->timeout = a->timeout, p->retries = a->retry_cnt;
    qp->state = a->qp_state;
    return 0;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp) {
    struct pair *p = (struct pair *)qp;
    struct sockaddr_un own;
    if (eventfd_write(p->stop, 1)) abort();
    pthread_mutex_lock(&p->lock);
    broken(p);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->nic, NULL);
    address_of(qp->qp_num, &own);
    unlink(own.sun_path);
    close(p->fd);
    close(p->stop);
    free(p);
    return 0;
}

EXPORT int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event) {
    (void)c, (void)event;
    return -1;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }
