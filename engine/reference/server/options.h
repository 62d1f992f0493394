/* What the server was started with. */
#ifndef ELASTIC_AI_OPTIONS_H
#define ELASTIC_AI_OPTIONS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "../wire.h"

#define MAX_ALLOWED 64

struct options {
    const char *bind, *port_file, *token_file, *transport;
    bool tcp, verbs; /* of `transport` */
    int port, report_fd, idle_timeout_s;
    uint64_t memory_limit; /* bytes per device over all children; 0: none */
    uint64_t context_bytes; /* what a context takes of a device, as measured; counts against the limit */
    struct in6_addr allowed[MAX_ALLOWED]; /* IPv4 as mapped addresses */
    int allowed_count;
    char token[WIRE_TOKEN];
};
extern struct options options;

/* Exits with 2 and a sentence when something is wrong. */
void read_options(int argc, char **argv);

#endif
