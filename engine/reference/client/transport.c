/* What carries a connection's bytes after the welcome: TCP, or verbs where the program's environment asks for them. Who
 * asks for verbs gets verbs or an error, never TCP. */
#define _GNU_SOURCE
#include "transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "../../shared/verbs/verbs.h"

#define FIRST_MS 5000 /* until the first answer by verbs */

CUresult transport_wanted(bool *verbs) {
    const char *wanted = getenv("ELASTIC_AI_TRANSPORT");
    *verbs = wanted && !strcmp(wanted, "verbs");
    if (*verbs || !wanted || !*wanted || !strcmp(wanted, "tcp")) return CUDA_SUCCESS;
    say("ELASTIC_AI_TRANSPORT is '%.40s': give tcp or verbs", wanted);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult transport_offered(const struct connection *c, const char *offered) {
    bool verbs;
    TRY(transport_wanted(&verbs));
    const char *name = verbs ? "verbs" : "tcp", *at = strstr(offered, name);
    if (at) return CUDA_SUCCESS;
    say("the server %s offers %s alone, and this program's ELASTIC_AI_TRANSPORT asks for %s", c->name, offered, name);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static CUresult refuse(struct connection *c, const char *why) {
    say("verbs to the server %s cannot be had, and nothing else was asked for: %s", c->name, why);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* A request of the handshake and its reply: `room` bytes, or a sentence. 0, or -1 and `why`. */
static int exchange(struct connection *c, const void *body, size_t bytes, void *to, size_t room, char why[VERBS_WHY]) {
    struct request r = {.op = OP_VERBS, .flags = FLAG_REPLY, .bytes = bytes};
    struct reply reply;
    int failed = link_write_both(&c->link, &r, sizeof r, body, bytes) ||
                 link_read_all(&c->link, &reply, sizeof reply);
    bool fits = !failed && (reply.status ? reply.bytes && reply.bytes < VERBS_WHY : reply.bytes == room);
    if (!failed && fits && reply.bytes) failed = link_read_all(&c->link, reply.status ? why : to, reply.bytes);
    if (failed) snprintf(why, VERBS_WHY, "%s", !errno ? "it closed the connection" : errno == EAGAIN ? "it did not answer" : strerror(errno));
    else if (!fits) snprintf(why, VERBS_WHY, "its answer makes no sense");
    else if (!reply.status) return 0;
    else why[reply.bytes] = '\0';
    return -1;
}

CUresult transport_verbs(struct connection *c) {
    char why[VERBS_WHY];
    struct verbs_end ours, theirs;
    struct verbs *v = verbs_open(c->link.fd, why);
    if (!v) return refuse(c, why);
    verbs_tell(v, &ours);
    if (exchange(c, &ours, sizeof ours, &theirs, sizeof theirs, why) || verbs_connect(v, &theirs, why)) {
        verbs_close(v);
        return refuse(c, why);
    }
    c->link.verbs = v;
    verbs_patience(v, FIRST_MS);
    if (exchange(c, NULL, 0, NULL, 0, why)) {
        struct verbs_port here;
        char words[2 * VERBS_WHY];
        verbs_where(v, &here);
        snprintf(words, sizeof words,
                 "the first question by %s got no answer (%s); is UDP port 4791 open between the two machines?",
                 here.device, why);
        c->link.verbs = NULL;
        CUresult status = refuse(c, words);
        verbs_close(v);
        return status;
    }
    verbs_patience(v, 0);
    return CUDA_SUCCESS;
}
