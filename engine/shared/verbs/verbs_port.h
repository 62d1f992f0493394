/* RDMA under one connection: a reliable connected queue pair between the very addresses that its TCP connection has. TCP
 * stays open beside it: it has carried the token, and its end is the end of both. verbs.h has the bytes. */
#ifndef ELASTIC_AI_VERBS_PORT_H
#define ELASTIC_AI_VERBS_PORT_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

struct verbs;

/* What an end tells the other one over TCP. Its address, thus its GID, is not told: each takes that of the TCP peer. */
struct verbs_end {
    uint32_t queue_pair, first_packet; /* 24 bits each */
    uint32_t mtu; /* enum ibv_mtu */
    uint32_t key; /* of the ring */
    uint64_t ring; /* where its bytes arrive */
};

#define VERBS_WHY 200 /* bytes of a sentence that says what is wrong */

/* The port here whose RoCE v2 address is that of the connected socket `fd`, and a queue pair on it. NULL: `why`. */
struct verbs *verbs_open(int fd, char why[VERBS_WHY]);
void verbs_tell(const struct verbs *v, struct verbs_end *end);
/* Connects it with the other end. 0, or -1 and `why`; what a peer says that cannot be is refused. */
int verbs_connect(struct verbs *v, const struct verbs_end *theirs, char why[VERBS_WHY]);
/* Whether verbs can be had on the port of that address (any port, where it is no single one). 0, or -1 and `why`. */
int verbs_check(const struct sockaddr *address, char why[VERBS_WHY]);
/* Frees the queue pair; nobody else may be using it. */
void verbs_close(struct verbs *v);
/* In a forked child: its descriptors only. */
void verbs_forget(struct verbs *v);

struct verbs_port { const char *device; unsigned port, gid_index, mtu_bytes; };
void verbs_where(const struct verbs *v, struct verbs_port *where);

#ifdef __cplusplus
}
#endif
#endif
