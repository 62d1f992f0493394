/* Images with what the program wants of their compiler. */
#ifndef ELASTIC_AI_JIT_H
#define ELASTIC_AI_JIT_H

#include "client.h"

struct image {
    size_t bytes; /* of `data`: options, code */
    unsigned options;
    char data[];
};

/* Where a program wants the compiler's words; NULL: nowhere. */
struct wish {
    char *text[2]; /* what it says, what it objects to */
    size_t room[2];
    void **told[2]; /* gets the length */
};

/* A copy of the image with its options, of malloc. */
CUresult image_make(const void *code, unsigned count, const int *options, void **values, struct image **image,
                    struct wish *wish);
/* The module's number on the server of `context`, and the compiler's words where the program wants them. */
CUresult image_send(const struct image *image, const struct wish *wish, struct object *context, uint64_t *number);

#endif
