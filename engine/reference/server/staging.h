/* Pinned memory between the network and a device, and how a copy begins and fails, whatever way its bytes go. */
#ifndef ELASTIC_AI_STAGING_H
#define ELASTIC_AI_STAGING_H

#include <stdbool.h>

#include "handles.h"
#include "../wire.h"

#define SLOTS 4 /* of a copy by one connection */
#define MOST_SLOTS (2 * MOST_LANES) /* of a striped one */

/* Pinned memory that a context's copies go through. */
struct staging {
    void *host[MOST_SLOTS];
    CUevent done[MOST_SLOTS];
    bool busy[MOST_SLOTS];
    unsigned next;
};

void staging_free(struct handle *context); /* the context must be current */
/* Checks a copy of arg[1] bytes at arg[0] on stream arg[2]; takes its context, and staging of so many slots at least. */
CUresult copy_begin(const struct request *r, unsigned slots, CUstream *stream, struct staging **s);
CUresult slot_free(struct staging *s, unsigned slot); /* waits until the device is done with it */
void copy_out_failed(const struct request *r, CUresult status); /* before any of its data left */

#endif
