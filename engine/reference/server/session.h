/* The session of this child with its client: what arrives, what is answered, which context is current. */
#ifndef ELASTIC_AI_SESSION_H
#define ELASTIC_AI_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../shared/cu.h"
#include "../lanes.h"
#include "../link.h"
#include "../wire.h"

struct session {
    struct link link;
    struct lanes lanes;
    int child, devices;
    uint64_t current; /* context */
    CUresult late; /* first error of a request that had no reply, of no context */
    struct device_info info[MAX_DEVICES];
};
extern struct session session;

void session_open(int fd, int child);
/* Ends the child. The driver ends with the process; its exit handlers have nothing to save and could wait. */
_Noreturn void session_end(int status);
_Noreturn void session_linger(void); /* the same, of a client that has gone, in a moment */
void receive(void *to, size_t bytes); /* ends the child when the client has gone */
bool received_more(void); /* what has come is not all taken */
void discard(uint64_t bytes); /* of a payload that is not wanted: the next request comes behind it */
void answer(const struct request *r, CUresult status, uint64_t v0, uint64_t v1, const void *body, uint64_t bytes);
/* An earlier request without reply may have failed: `status`, or that error of the current context or of none, which is
 * then forgotten. */
CUresult with_late(CUresult status);
void keep_late(const struct request *r, CUresult status);
CUresult use_context(uint64_t number);

#endif
