#define _GNU_SOURCE
#include "link.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../shared/verbs/verbs.h"
#include "wire.h"

int link_read(struct link *l, void *to, size_t least, size_t most, size_t *got) {
    *got = 0;
    if (l->verbs) return verbs_read(l->verbs, to, least, most, got);
    while (*got < least) {
        ssize_t n = recv(l->fd, (char *)to + *got, most - *got, most == least ? MSG_WAITALL : 0);
        if (n < 0 && may_go_on(l->fd)) continue;
        if (n == 0) errno = 0;
        if (n <= 0) return -1;
        *got += (size_t)n;
    }
    return 0;
}

int link_read_all(struct link *l, void *to, size_t bytes) {
    size_t got;
    return link_read(l, to, bytes, bytes, &got);
}

int link_write(struct link *l, struct iovec *parts, size_t count) {
    return l->verbs ? verbs_write(l->verbs, parts, count) : write_parts(l->fd, parts, count);
}

int link_write_both(struct link *l, const void *head, size_t head_bytes, const void *body, size_t body_bytes) {
    struct iovec parts[2] = {{(void *)(uintptr_t)head, head_bytes}, {(void *)(uintptr_t)body, body_bytes}};
    return link_write(l, parts, 2);
}

void link_close(struct link *l) {
    if (l->fd >= 0) close(l->fd);
    if (l->verbs) verbs_close(l->verbs);
    *l = (struct link){-1, NULL};
}

void link_forget(struct link *l) {
    if (l->fd >= 0) close(l->fd);
    if (l->verbs) verbs_forget(l->verbs);
}
