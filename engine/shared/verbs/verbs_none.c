/* Instead of the others here where libibverbs' header was not there: verbs_open gives none, and a sentence. */
#ifndef WITH_VERBS

#include <errno.h>
#include <stdio.h>

#include "verbs.h"

static int none(char why[VERBS_WHY]) {
    snprintf(why, VERBS_WHY, "this engine was built where libibverbs' header was not there (package libibverbs-dev)");
    return -1;
}

struct verbs *verbs_open(int fd, char why[VERBS_WHY]) {
    (void)fd;
    (void)none(why);
    return NULL;
}

int verbs_check(const struct sockaddr *address, char why[VERBS_WHY]) {
    (void)address;
    return none(why);
}

int verbs_connect(struct verbs *v, const struct verbs_end *theirs, char why[VERBS_WHY]) {
    (void)v, (void)theirs;
    return none(why);
}

void verbs_tell(const struct verbs *v, struct verbs_end *end) { (void)v, (void)end; }
void verbs_close(struct verbs *v) { (void)v; }
void verbs_forget(struct verbs *v) { (void)v; }
void verbs_where(const struct verbs *v, struct verbs_port *where) { (void)v, (void)where; }

int verbs_read(struct verbs *v, void *to, size_t least, size_t most, size_t *got) {
    (void)v, (void)to, (void)least, (void)most, (void)got;
    errno = ENOTSUP;
    return -1;
}

int verbs_write(struct verbs *v, struct iovec *parts, size_t count) {
    (void)v, (void)parts, (void)count;
    errno = ENOTSUP;
    return -1;
}

ssize_t verbs_read_within(struct verbs *v, void *to, size_t most, int ms) {
    (void)v, (void)to, (void)most, (void)ms;
    errno = ENOTSUP;
    return -1;
}

ssize_t verbs_write_now(struct verbs *v, const void *from, size_t bytes) {
    (void)v, (void)from, (void)bytes;
    errno = ENOTSUP;
    return -1;
}

void verbs_patience(struct verbs *v, int ms) { (void)v, (void)ms; }
void verbs_wait(struct verbs *v, bool reads, int ms) { (void)v, (void)reads, (void)ms; }
bool verbs_is_ready(struct verbs *v) { (void)v; return true; }
bool verbs_has_room(struct verbs *v, size_t bytes) { (void)v, (void)bytes; return true; }
bool verbs_is_idle(struct verbs *v, size_t bytes) { (void)v, (void)bytes; return true; }
void verbs_flush(struct verbs *v, int ms) { (void)v, (void)ms; }

#endif
