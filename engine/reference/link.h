/* The bytes of a connection after its welcome: by TCP, or by verbs where both ends have taken them. */
#ifndef ELASTIC_AI_LINK_H
#define ELASTIC_AI_LINK_H

#include <stddef.h>

struct iovec;
struct verbs;

struct link {
    int fd; /* of TCP, which also tells when the peer has gone */
    struct verbs *verbs; /* NULL: TCP carries the bytes */
};

/* 0, or -1 with errno (0 in errno: the other side closed the connection). `read` takes at least `least` bytes, and more
 * where they are there. */
int link_read(struct link *l, void *to, size_t least, size_t most, size_t *got);
int link_read_all(struct link *l, void *to, size_t bytes);
int link_write(struct link *l, struct iovec *parts, size_t count); /* which are used up */
int link_write_both(struct link *l, const void *head, size_t head_bytes, const void *body, size_t body_bytes);
void link_close(struct link *l); /* nobody else may be using it */
void link_forget(struct link *l); /* in a forked child */

#endif
