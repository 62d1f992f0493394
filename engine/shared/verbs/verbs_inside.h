/* What verbs.c (bytes), verbs_orders.c (messages) and verbs_port.c (devices) share. Needs libibverbs' header, and at run time its library. */
#ifndef ELASTIC_AI_VERBS_INSIDE_H
#define ELASTIC_AI_VERBS_INSIDE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING ((size_t)2 << 20) /* in each direction: what is under way, and not taken yet */
#define SEGMENT (RING / 8) /* the most that one message carries */
#define SLOTS 64u /* messages with data under way in a direction */
#define CREDITS 16u /* those without, which say what has been taken; at most 8 of them can be under way */
#define INLINE 160u /* bytes that go with the order itself, where a device takes so many: a request and some more */

/* Where the messages of a direction end, the oldest first. */
struct ends {
    uint64_t at[SLOTS];
    unsigned first, next; /* next - first of them; counters that only grow */
};

struct verbs {
    int fd;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *in_mr, *out_mr;
    char *in, *out; /* rings; `out` lies as the peer's `in` does */
    uint8_t port;
    unsigned gid_index;
    enum ibv_mtu mtu;
    union ibv_gid peer;
    uint32_t first_packet, inline_bytes;
    char device[64];

    uint64_t their_ring;
    uint32_t their_key;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t moved;
    bool pumping; /* a thread sleeps until the device or TCP has something */
    unsigned waiting; /* threads that sleep until that one has looked */
    bool failed;
    int error; /* errno of that, 0: the peer closed the connection */
    int patience_ms;
    unsigned posted; /* orders to send that are not completed */
    uint64_t heard_ns; /* when the last one was, or the first one was given */
    uint64_t sent, arrived_there, credited, released; /* bytes: given to the device, with the peer, taken by it, free again */
    unsigned done; /* messages with data that are completed, as ends.first counts */
    struct ends out_ends;
    uint64_t arrived, taken, told; /* bytes: in the ring, out of it, said to the peer */
    unsigned untold; /* messages that are taken, since then */
    struct ends in_ends;
};

/* libibverbs' functions that are no inline ones; NULL before verbs_open. */
struct verbs_library {
    struct ibv_device **(*get_device_list)(int *count);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *device);
    struct ibv_context *(*open_device)(struct ibv_device *device);
    int (*close_device)(struct ibv_context *context);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes);
    ssize_t (*query_gid_table)(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags,
                               size_t entry_bytes);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *at, size_t bytes, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
    int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *own, struct ibv_comp_channel *channel,
                                int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **own);
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned count);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *event);
    void (*ack_async_event)(struct ibv_async_event *event);
    int (*fork_init)(void);
};
extern struct verbs_library verbs_library;

int verbs_post_receive(struct verbs *v); /* room for one more message of the peer; 0, or errno */

/* Of verbs_orders.c. All are called with the lock held, and those that sleep return with it. */
typedef bool verbs_condition(const struct verbs *v, size_t bytes);
void verbs_fail(struct verbs *v, int error); /* the first reason stays */
void verbs_post_segment(struct verbs *v, size_t bytes); /* a message of what was put where the ring goes on */
void verbs_give_credit(struct verbs *v); /* says what was taken, when it is so much that the peer may wait for it */
void verbs_drain(struct verbs *v); /* takes what the device has */
/* Until `enough` says so: 0; -1 with errno, EAGAIN at that moment (0: never). One of those that wait looks for all. */
int verbs_wait_for(struct verbs *v, verbs_condition *enough, size_t bytes, uint64_t until);
/* When nobody waits any longer for what was sent to be acknowledged; 0: nothing is under way. */
uint64_t verbs_stuck_at(const struct verbs *v);
/* TCP has something: nothing is said there any more, so it has ended, or the peer breaks the protocol. errno of that. */
int verbs_ended(int fd);
bool verbs_ends_full(const struct ends *e);
uint64_t verbs_now_ns(void);

#endif
